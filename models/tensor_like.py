"""What plans ask of a tensor, so that a header is enough for them, and a test can do without a file."""

from __future__ import annotations

from typing import Protocol


class FormatLike(Protocol):
    """What is asked of a block format."""

    @property
    def name(self) -> str: ...


class TensorLike(Protocol):
    """What is asked of a file's tensor: its shape, rows first, and how its values are stored."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def format(self) -> FormatLike: ...
