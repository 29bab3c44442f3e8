"""The CPU target that kernels are compiled for."""

from typing import Any

def __getattr__(name: str) -> Any: ...
