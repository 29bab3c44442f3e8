"""Compiling and linking: as much as is said about it is that it exists."""

from typing import Any

def __getattr__(name: str) -> Any: ...
