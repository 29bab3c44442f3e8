"""The warm child process for templates that are not known good, seen from the parent.

Owns its start, its time limit and its end.  Does not know what is rendered.

A thread can't stop a power of powers, and no sandbox inside this process gives back the memory that it takes: so such a
template has a process of its own, with limits set by the system, which is killed when it goes over.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
import weakref
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from models.errors import TemplateError
from models.template_child import LENGTH

if TYPE_CHECKING:
    from models.template_sandbox import RenderRequest

_CHILD = Path(__file__).with_name("template_child.py")
_START_S = 60.0  # Python and jinja2 take a tenth of a second; a machine may be busy
_CPU_S = 3600  # over all renderings: a child that its parent left alone ends some day
_INHERITED = ("LD_LIBRARY_PATH", "PATH", "TZ")  # no tokens, no proxies


@dataclass(frozen=True, kw_only=True)
class SandboxLimits:
    """What one rendering may take."""

    time_s: float = 5.0
    memory_bytes: int = 768 << 20
    max_characters: int = 16 << 20


class TemplateProcess:
    """Renders in a child process that is started once and again after it had to be killed."""

    def __init__(self, limits: SandboxLimits) -> None:
        self.limits = limits
        self._child: subprocess.Popen[bytes] | None = None
        self._is_ready = False
        self._finalizer: weakref.finalize | None = None

    def prepare(self) -> None:
        """Starts the child if there is none, without waiting for it.  If that fails, the first rendering says so."""
        try:
            self._start()
        except OSError:
            pass

    def _start(self) -> None:
        if self._child is not None:
            return
        options = {
            "path": [str(_CHILD.parents[1]), *sys.path],
            "memory_bytes": self.limits.memory_bytes,
            "cpu_s": _CPU_S,
        }
        self._child = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_CHILD), json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _INHERITED if name in os.environ},
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for us
        )
        for stream in (self._child.stdin, self._child.stdout):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
        self._is_ready = False
        self._finalizer = weakref.finalize(self, _end, self._child)

    def render(self, request: RenderRequest) -> str:
        """The prompt.  Raises RefusedMessages and TemplateError as the sandbox does, and TemplateError over a limit."""
        try:
            self._start()
        except OSError as error:
            raise TemplateError(
                f"The process that renders the model's chat template could not be started: {error}. Free memory or "
                "processes and try again."
            ) from None
        if not self._is_ready:
            self._exchange(b"", _START_S, request.called)
            self._is_ready = True
        data = json.dumps(asdict(request)).encode()
        answer = self._exchange(LENGTH.pack(len(data)) + data, self.limits.time_s, request.called)
        return _text_of(answer, request.called)

    @property
    def process_id(self) -> int | None:
        """The child's, while there is one."""
        return None if self._child is None else self._child.pid

    def close(self) -> None:
        """Ends the child."""
        if self._finalizer is not None:
            self._finalizer()
        self._child = None

    def _exchange(self, data: bytes, time_s: float, called: str) -> dict[str, Any]:
        deadline = time.monotonic() + time_s
        try:
            self._write(data, deadline)
            (length,) = LENGTH.unpack(self._read(LENGTH.size, deadline))
            if length > 8 * self.limits.max_characters:
                raise EOFError
            return json.loads(self._read(length, deadline))
        except TimeoutError:
            self.close()
            raise TemplateError(
                f"{called} was still busy after {time_s:g} s and was stopped: the template is broken, "
                "or meant to do harm."
            ) from None
        except (EOFError, BrokenPipeError):
            self.close()
            raise TemplateError(
                "The process that renders the model's chat template ended without an answer: the template wanted more "
                "memory or time than it may have, or Python could not be started."
            ) from None
        except BaseException:  # an answer that came half would be taken for the next one's
            self.close()
            raise

    def _write(self, data: bytes, deadline: float) -> None:
        assert self._child is not None and self._child.stdin is not None
        view = memoryview(data)
        while view:
            _wait(self._child.stdin, selectors.EVENT_WRITE, deadline)
            written = self._child.stdin.write(view)
            view = view[written or 0 :]

    def _read(self, count: int, deadline: float) -> bytes:
        assert self._child is not None and self._child.stdout is not None
        data = bytearray()
        while len(data) < count:
            _wait(self._child.stdout, selectors.EVENT_READ, deadline)
            piece = self._child.stdout.read(count - len(data))
            if piece == b"":
                raise EOFError
            data += piece or b""
        return bytes(data)


def _text_of(answer: dict[str, Any], called: str) -> str:
    from models.template_sandbox import RefusedMessages

    if "refused" in answer:
        raise RefusedMessages(answer["refused"], called)
    if "error" in answer:
        raise TemplateError(answer["error"])
    return answer["text"]


def _wait(stream: IO[bytes], event: int, deadline: float) -> None:
    left = deadline - time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(stream, event)
        if left <= 0 or not selector.select(left):
            raise TimeoutError


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            stream.close()
    child.wait()
