"""How calls of the operating system on a model's file are made: at once, or as whoever opens it wants them made.

Owns that choice.  A read from a network share may never come back, and no signal reaches a process that waits for it;
runtime/patience.py makes calls in a way that can be waited for and given up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol, TypeVar

from models.errors import quoted

Answer = TypeVar("Answer")


class MakeCall(Protocol):
    """Makes a call on the file `label` (quoted, for messages); returns what it returns, raises what it raises."""

    def __call__(self, label: str, call: Callable[[], Any]) -> Any: ...


def _at_once(label: str, call: Callable[[], Any]) -> Any:
    return call()


_chosen: ContextVar[MakeCall] = ContextVar("how calls on files are made", default=_at_once)


def how_calls_are_made() -> MakeCall:
    """What a file that is opened now is to use, for as long as it is open."""
    return _chosen.get()


def ask(place: Path, call: Callable[[], Answer]) -> Answer:
    """What a call on a file or folder returns or raises."""
    return how_calls_are_made()(quoted(str(place), limit=None), call)


@contextmanager
def calls_made_by(make: MakeCall) -> Iterator[None]:
    """Files opened in this block, in this thread, use it."""
    token = _chosen.set(make)
    try:
        yield
    finally:
        _chosen.reset(token)
