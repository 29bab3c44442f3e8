"""Numba ships no types, and what a checker infers is wrong: an intrinsic is called without its typing context."""

from typing import Any

config: Any
types: Any

def __getattr__(name: str) -> Any: ...
