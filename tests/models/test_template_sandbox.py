"""Templates as Hugging Face renders them, and templates that mean harm: refused in a child, and nothing runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from words import child

from models.errors import TemplateError
from models.template_process import SandboxLimits, TemplateProcess
from models.template_sandbox import RefusedMessages, Renderer, RenderRequest

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
IN_PROCESS = Renderer()


def request(source: str, *, now: str | None = None, max_characters: int = 1 << 20, **variables: Any) -> RenderRequest:
    return RenderRequest(
        source=source, variables={"messages": MESSAGES, **variables}, now=now, max_characters=max_characters
    )


def refusal(source: str, **variables: Any) -> str:
    """What the child says of a template that it does not render."""
    with pytest.raises(TemplateError) as caught:
        child().render(request(source, **variables))
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")
    return str(caught.value)


AS_HUGGING_FACE = [
    ("{{ messages[::-1][0].content }}", "two"),
    ("{% for message in messages[1::-1] %}{{ message['content'] }}{% endfor %}", "twoone"),
    ("  {% if true %}\n  x\n  {% endif %}\ny", "  x\ny"),
    ("{%- if true -%}  x  {%- endif -%}", "x"),
    (
        "{{ {'a': '<é> & \"q\"', 'b': [1, 2.5, none, true]} | tojson }}",
        '{"a": "<é> & \\"q\\"", "b": [1, 2.5, null, true]}',
    ),
    ("{{ {'b': 1, 'a': 2} | tojson }}", '{"b": 1, "a": 2}'),
    ("{{ {'a': 1} | tojson(indent=2) }}", '{\n  "a": 1\n}'),
    (
        "{{ {'b': 'é', 'a': 1} | tojson(ensure_ascii=true, sort_keys=true, separators=(',', ':')) }}",
        '{"a":1,"b":"\\u00e9"}',
    ),
    (
        "{% set ns = namespace(sum=0, last='') %}{% for n in [1, 2, 3] %}{% set ns.sum = ns.sum + n %}"
        "{% if loop.previtem is defined %}{% set ns.last = loop.previtem %}{% endif %}{% endfor %}"
        "{{ ns.sum }}{{ ns.last }}",
        "62",
    ),
    (
        "{% for n in range(9) %}{% if n == 1 %}{% continue %}{% endif %}"
        "{% if n == 3 %}{% break %}{% endif %}{{ n }}{% endfor %}",
        "02",
    ),
    ("{% for n in [1, 2] %}{{ loop.nextitem is defined }}{% endfor %}", "TrueFalse"),
    ("{% generation %}{{ messages[1].content }}{% endgeneration %}!", "two!"),
    ("{% macro say(x) %}<{{ x }}>{% endmacro %}{{ say('a') }}", "<a>"),
    ("{{ 'a\nb'.split('\n') | join('|') }}{{ ' x '.strip() }}{{ 'x'.upper() }}{{ 'abc' | length }}", "a|bxX3"),
    ("{{ '</think>' in 'a</think>b' }}{{ 'a</think>b'.split('</think>')[-1].lstrip('\n') }}", "Trueb"),
    ("{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join }}", "one"),
    ("{{ messages[0].tool_calls is defined }}{{ messages[0].tool_calls }}{{ tools is none }}", "FalseTrue"),
    ("{{ '%s-%05.1f' | format('a', 2) }}{{ '{}:{x}'.format(1, x=2) }}", "a-002.01:2"),
    ("{{ dict(a=1).items() | list }}{{ {'a': 1} | items | list }}", "[('a', 1)][('a', 1)]"),
    ("{{ '<b>' }}{{ '<b>' | e }}", "<b>&lt;b&gt;"),
    ("{{ strftime_now('%d %b %Y') }}", "02 Jan 2031"),
    ("{{ 'x\n' }}\n", "x\n"),
]


@pytest.mark.parametrize(("source", "expected"), AS_HUGGING_FACE)
def test_renders_as_hugging_face_does(source: str, expected: str) -> None:
    asked = request(source, now="2031-01-02T03:04:05", tools=None)
    assert IN_PROCESS.render(asked) == expected
    assert child().render(asked) == expected


def test_the_clock_is_asked_where_no_date_is_given() -> None:
    before = datetime.now().year
    assert before <= int(child().render(request("{{ strftime_now('%Y') }}"))) <= datetime.now().year


@pytest.mark.parametrize("render", [IN_PROCESS.render, lambda asked: child().render(asked)], ids=["here", "child"])
def test_the_templates_own_words_reach_the_user(render: Any) -> None:
    source = "{{ raise_exception('Only user and assistant roles are supported!') }}"
    with pytest.raises(RefusedMessages) as caught:
        render(request(source))
    assert caught.value.words == "Only user and assistant roles are supported!"
    assert str(caught.value).endswith(caught.value.words)


REACHING_OUT = [
    "{{ ''.__class__ }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ''['__class__'] }}",
    "{{ '' | attr('__class__') }}",
    "{{ '' | attr('__cla' ~ 'ss__') }}",
    "{{ [''] | map(attribute='__class__') | list }}",
    "{{ [''] | map('attr', '__class__') | list }}",
    "{{ [''] | groupby('__class__') | list }}",
    "{{ raise_exception.__globals__ }}",
    "{{ strftime_now.__func__ }}",
    "{{ cycler.__init__.__globals__.os.popen('touch FILE').read() }}",
    "{{ joiner.__init__.__globals__['os'].system('touch FILE') }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ namespace(__class__=1) }}",
    "{% set ns = namespace(a=1) %}{% set ns.__class__ = 2 %}",
    "{{ self.__init__.__globals__ }}",
    "{{ self._TemplateReference__context.eval_ctx }}",
    "{{ messages.__class__ }}",
    "{{ (messages | map('upper')).gi_frame.f_globals }}",
    "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}",
    "{{ '{0.__class__}'.format(1) }}",
    "{{ '{0.__class__.__mro__[1].__subclasses__}'.format('') }}",
    "{{ '{x.__class__}'.format_map({'x': 1}) }}",
    "{{ ('{0.__cla' ~ 'ss__}').format(1) }}",
    "{{ ['{0.__class__}'] | map('format') | list }}{{ ('{0.__class__}' | attr('format'))(1) }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update(role='system') }}",
    "{{ messages.clear() }}",
]


@pytest.mark.parametrize("source", REACHING_OUT)
def test_reaching_for_python_is_refused(source: str, tmp_path: Path) -> None:
    assert "reaches for what no template may have" in refusal(source.replace("FILE", str(tmp_path / "made")))
    assert list(tmp_path.iterdir()) == []


BROKEN = [
    ("{% if %}", "no valid template: line 1"),
    ("{% include '/etc/passwd' %}", "failed"),
    ("{% import 'os' as os %}", "failed"),
    ("{% extends 'x' %}", "failed"),
    ("{% debug %}", "no valid template"),
    ("{{ lipsum() }}", "'lipsum' is undefined"),
    ("{{ messages[0].name.first }}", "do not have"),
    ("{{ messages[0].content + 1 }}", "TypeError"),
    ("{{ 1 / 0 }}", "ZeroDivisionError"),
    ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError"),
    ("{{ range(10 ** 9) | list }}", "OverflowError"),
    ("{{ 'a'.encode('punycode') }}", "import is closed to chat templates"),
    ("{{ raise_exception() }}", "TypeError"),
    ("{" * 3, "no valid template"),
]


@pytest.mark.parametrize(("source", "words"), BROKEN)
def test_broken_templates_are_named(source: str, words: str) -> None:
    assert words in refusal(source)


HUGE = [
    "{{ 'a' * 2000000000 }}",
    "{{ ['a'] * 1000000000 }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '{:>1000000000}'.format(1) }}",
    "{{ 'a' | center(1000000000) }}",
    "{% set ns = namespace(x='a') %}{% for n in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
]


@pytest.mark.parametrize("source", HUGE)
def test_gigabytes_are_refused(source: str) -> None:
    # Only Linux limits a process's memory: elsewhere the sizes of texts and the clock have to do.
    words = ("more memory than it may have",) if sys.platform == "linux" else ("may have", "characters", "still busy")
    found = refusal(source)
    assert any(word in found for word in words)


@pytest.mark.parametrize("source", ["{{ 'ab' * 600 }}", "{% for n in range(1001) %}a{% endfor %}"])
def test_long_prompts_are_refused(source: str) -> None:
    asked = request(source, max_characters=1000)
    for render in (IN_PROCESS.render, child().render):
        with pytest.raises(TemplateError, match="more than 1,000 characters"):
            render(asked)


@pytest.fixture
def hasty() -> Iterator[TemplateProcess]:
    """A child of its own that may take a second."""
    process = TemplateProcess(SandboxLimits(time_s=1.0))
    yield process
    process.close()


def test_endless_work_is_stopped_and_the_next_template_rendered(hasty: TemplateProcess) -> None:
    nine = "{% for a in range(99999) %}" * 3 + "{% endfor %}" * 3
    for source in ("{{ 10 ** (10 ** 10) }}", nine):
        with pytest.raises(TemplateError, match="still busy after 1 s"):
            hasty.render(request(source))
    assert hasty.render(request("{{ messages[0].content }}")) == "one"


def test_a_child_that_dies_is_told_and_started_again(hasty: TemplateProcess) -> None:
    assert hasty.render(request("a")) == "a"
    assert hasty.process_id is not None
    os.kill(hasty.process_id, signal.SIGKILL)
    with pytest.raises(TemplateError, match="ended without an answer"):
        hasty.render(request("a"))
    assert hasty.render(request("a")) == "a"


def test_a_child_that_cannot_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    process = TemplateProcess(SandboxLimits())
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    process.prepare()
    with pytest.raises(TemplateError, match="could not be started"):
        process.render(request("a"))


def test_closing_ends_the_child() -> None:
    process = TemplateProcess(SandboxLimits())
    process.prepare()
    started = process.process_id
    assert started is not None and _is_running(started)
    process.close()
    assert process.process_id is None and not _is_running(started)


def test_the_child_is_warm_and_carries_long_prompts() -> None:
    content = "Grüße 😀\n" * 100_000
    asked = request("{{ content }}", max_characters=1 << 21, content=content)
    assert child().render(asked) == content
    first = child().process_id
    assert child().render(request("a")) == "a"
    assert child().process_id == first


def test_the_child_sees_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    environments: list[dict[str, str]] = []

    class Recorded(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            environments.append(options["env"])
            super().__init__(*arguments, **options)

    monkeypatch.setenv("HF_TOKEN", "a secret")
    monkeypatch.setenv("TZ", "Europe/Amsterdam")
    monkeypatch.setattr(subprocess, "Popen", Recorded)
    process = TemplateProcess(SandboxLimits())
    assert process.render(request("a")) == "a"
    process.close()
    assert len(environments) == 1
    assert environments[0]["TZ"] == "Europe/Amsterdam"
    assert environments[0].keys() <= {"LD_LIBRARY_PATH", "PATH", "TZ"}


LOCKED = """
import sys
sys.path.insert(0, {root!r})
from models.template_child import lock
import os, socket, subprocess
lock()
attempts = {{
    "open": lambda: open({path!r}, "w"),
    "system": lambda: os.system("touch " + {path!r}),
    "popen": lambda: subprocess.Popen(["touch", {path!r}]),
    "fork": lambda: os.posix_spawn("/usr/bin/touch", ["touch", {path!r}], {{}}),
    "remove": lambda: os.remove({kept!r}),
    "socket": lambda: socket.create_connection(("127.0.0.1", 9), 1),
    "import": lambda: __import__("ctypes"),
}}
for name, attempt in attempts.items():
    try:
        attempt()
    except PermissionError as error:
        print(name, error)
"""


def test_the_lock_holds_even_outside_the_sandbox(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.touch()
    script = LOCKED.format(root=str(ROOT), path=str(tmp_path / "made"), kept=str(kept))
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    lines = shown.splitlines()
    assert [line.split()[0] for line in lines] == ["open", "system", "popen", "fork", "remove", "socket", "import"]
    assert all(line.endswith("is closed to chat templates") for line in lines)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_an_interrupted_exchange_does_not_answer_the_next_one(
    hasty: TemplateProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasty.render(request("a"))

    def interrupted(self: TemplateProcess, count: int, deadline: float) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TemplateProcess, "_read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            hasty.render(request("b"))
    assert hasty.render(request("c")) == "c"


def test_a_child_ends_with_its_parent() -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from models.template_process import SandboxLimits, TemplateProcess\n"
        "process = TemplateProcess(SandboxLimits()); process.prepare(); print(process.process_id, flush=True)\n"
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    )
    pid = int(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False).stdout)
    deadline = time.monotonic() + 30
    while _is_running(pid):
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.02)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A container without an init leaves the dead standing.
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"
