"""Rendering one chat template in jinja2's immutable sandbox, set up as Hugging Face's renderer is.

Owns the environment and what each kind of failure is called.  Does not know messages' meaning, vocabularies or
processes: it runs in this process for templates that are known good, and in a child (template_child.py) for others.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError, TemplateSyntaxError, UndefinedError
from jinja2.exceptions import TemplateError as JinjaError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from models.errors import TemplateError

CALLED = "The model's chat template"
"""How a sentence about a template begins, where nobody named it."""
# What jinja2 calls the file of a template that came as text.
_OWN_FILE = "<template>"


class RefusedMessages(TemplateError):
    """The template raised an exception of its own.  words: what it said."""

    def __init__(self, words: str, called: str = CALLED) -> None:
        super().__init__(f"{called} refuses these messages: {words}")
        self.words = words


@dataclass(frozen=True, kw_only=True)
class RenderRequest:
    """All that a rendering depends on; plain values, so that it can be sent to another process.

    variables: what the template sees.  now: the ISO date and time that `strftime_now` gives, the clock's if None.
    called: how sentences about the template begin.
    """

    source: str
    variables: dict[str, Any]
    now: str | None
    max_characters: int
    called: str = CALLED


class _Words(Exception):
    """Thrown by the template's raise_exception."""


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, but a forbidden attribute ends the rendering even where nothing is done with it."""

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        raise SecurityError(f"{type(obj).__name__}.{attribute}")


class _Namespace(Namespace):
    """A namespace that stores no name of Python's own kind, as in Hugging Face's renderer."""

    def __init__(*arguments: Any, **named: Any) -> None:  # as the library's own does, so that `self` is a name as well
        self, *rest = arguments
        attributes = dict(*rest, **named)
        for name in attributes:
            _check_attribute(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_attribute(name)
        Namespace.__setitem__(self, name, value)


def _check_attribute(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"namespace.{name}")


class GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's words for training; for a prompt it means its content."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Renderer:
    """Compiles a template once and renders it as often as it is asked for."""

    def __init__(self) -> None:
        self._source: str | None = None
        self._template: Template | None = None
        self._now: datetime | None = None
        self._environment = _Environment(
            trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, loopcontrols], cache_size=0
        )
        self._environment.filters["tojson"] = _to_json
        self._environment.globals.pop("lipsum")
        self._environment.globals["namespace"] = _Namespace
        self._environment.globals["raise_exception"] = _raise_exception
        self._environment.globals["strftime_now"] = self._strftime_now

    def render(self, request: RenderRequest) -> str:
        """The prompt.  Raises RefusedMessages with the template's own words, TemplateError for all else."""
        self._now = None if request.now is None else datetime.fromisoformat(request.now)
        return _in_our_words(lambda: self._rendered(request), request.called)

    def _rendered(self, request: RenderRequest) -> str:
        if self._template is None or self._source != request.source:
            self._template = self._environment.from_string(request.source)
            self._source = request.source
        pieces: list[str] = []
        for piece in _limited(self._template.generate(request.variables), request):
            pieces.append(piece)
        return "".join(pieces)

    def _strftime_now(self, layout: str) -> str:
        return (self._now or datetime.now()).strftime(layout)


def _limited(pieces: Iterator[str], request: RenderRequest) -> Iterator[str]:
    left = request.max_characters
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise TemplateError(
                f"{request.called} made more than {request.max_characters:,} characters of these messages and was "
                "stopped: the template is broken, or meant to do harm."
            )
        yield piece


def _in_our_words(render: Callable[[], str], called: str) -> str:
    try:
        return render()
    except _Words as words:
        raise RefusedMessages(str(words), called) from None
    except TemplateError:
        raise
    except SecurityError as error:
        raise TemplateError(
            f"{called} reaches for what no template may have ({_clause(error)}): it was stopped, and nothing was run."
        ) from None
    except TemplateSyntaxError as error:
        raise TemplateError(f"{called} is no valid template: line {error.lineno}: {_clause(error)}.") from None
    except UndefinedError as error:
        raise TemplateError(
            f"{called} asks for something that the messages do not have: {_place(error)}{_clause(error)}."
        ) from None
    except MemoryError:
        raise TemplateError(
            f"{called} wanted more memory than it may have and was stopped: the template is broken, "
            "or meant to do harm."
        ) from None
    except (JinjaError, ArithmeticError, AssertionError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise TemplateError(f"{called} failed: {_place(error)}{type(error).__name__}: {_clause(error)}.") from None


def _place(error: BaseException) -> str:
    """The line of the template in which it came about, where jinja2 tells."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == _OWN_FILE]
    return f"line {lines[-1]}: " if lines else ""


def _clause(error: Exception) -> str:
    return str(error).rstrip(".")


def _raise_exception(message: str) -> NoReturn:
    raise _Words(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the escapes that HTML needs."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
