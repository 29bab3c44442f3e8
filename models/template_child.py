"""The child process in which templates that nobody has vouched for are rendered.  Run as a script.

Owns the child's limits and its side of the conversation: frames of a 4-byte length (big end first) and JSON, one
request in, one answer out, until the input ends.  Knows the sandbox and nothing else of the program: it starts without
NumPy.

    python -I -S template_child.py '{"path": [...], "memory_bytes": N, "cpu_s": N}'
"""

from __future__ import annotations

import json
import struct
import sys
from typing import Any, BinaryIO

LENGTH = struct.Struct(">I")
# Compiling and running the template's own code; everything else that Python reports is reaching out.
_ALLOWED_EVENTS = frozenset(("compile", "exec", "object.__getattr__", "code.__new__", "sys._getframe", "builtins.id"))
# Makes Python load what a template needs, before the lock.
_WARM_UP = r"""
{{- '\n' ~ {'a': 1.5} | tojson ~ strftime_now('%Y') ~ 'a' | title ~ [1] | random ~ 'a b' | wordwrap(1) ~ 1 | pprint }}
"""


def lock() -> None:
    """From here on this process opens nothing, starts nothing, connects to nothing and imports nothing."""

    def refuse(event: str, _: tuple[Any, ...]) -> None:
        if event not in _ALLOWED_EVENTS:
            raise PermissionError(f"{event} is closed to chat templates")

    sys.addaudithook(refuse)


def limit(*, memory_bytes: int, cpu_s: int) -> None:
    """Memory and processor time of this process, for good.  What a system does not have is left alone."""
    import resource

    wanted = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
    }
    for kind, value in wanted.items():
        try:
            resource.setrlimit(kind, (value, value))
        except (OSError, ValueError):
            pass  # macOS refuses a limit on address space; the parent's clock still holds


def serve(source: BinaryIO, target: BinaryIO) -> None:
    """Answers requests until the input ends."""
    import jinja2.debug  # noqa: F401  (jinja2 itself imports it with the first error)

    from models.errors import TemplateError
    from models.template_sandbox import RefusedMessages, Renderer, RenderRequest

    renderer = Renderer()
    renderer.render(RenderRequest(source=_WARM_UP, variables={}, now=None, max_characters=80))
    _send(target, {"ready": True})
    lock()
    while header := source.read(LENGTH.size):
        request = RenderRequest(**json.loads(source.read(*LENGTH.unpack(header))))
        try:
            answer = {"text": renderer.render(request)}
        except RefusedMessages as refusal:
            answer = {"refused": refusal.words}
        except TemplateError as error:
            answer = {"error": str(error)}
        except Exception as error:  # the lock's, or one that no template should be able to cause
            answer = {"error": f"{request.called} was stopped: {type(error).__name__}, {error}."}
        _send(target, answer)


def _send(target: BinaryIO, answer: dict[str, Any]) -> None:
    data = json.dumps(answer).encode()
    target.write(LENGTH.pack(len(data)) + data)
    target.flush()


def _main() -> None:
    options = json.loads(sys.argv[1])
    sys.path[:] = options["path"]
    limit(memory_bytes=options["memory_bytes"], cpu_s=options["cpu_s"])
    serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    _main()
