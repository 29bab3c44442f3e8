"""Reporting from generated code, and other helpers of generated code."""

from typing import Any

def __getattr__(name: str) -> Any: ...
