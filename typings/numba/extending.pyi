"""Decorators that turn a function into something with another signature."""

from typing import Any

def __getattr__(name: str) -> Any: ...
