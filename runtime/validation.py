"""Checks that options share: whole numbers and real numbers within a range.

Owns the wording of a refused option.  Does not know which options exist.
"""

from __future__ import annotations

from runtime.errors import OptionError


def check_integer(option: str, value: object, *, low: int, high: int, flag: str | None = None) -> None:
    """Raises OptionError unless value is an int (not a bool) from low to high."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise OptionError(option=option, flag=flag, value=value, expected=f"a whole number from {low} to {high}")


def check_number(option: str, value: object, *, low: float, high: float, flag: str | None = None) -> None:
    """Raises OptionError unless value is a number from low to high; NaN never is."""
    is_valid = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
    if not is_valid:
        raise OptionError(option=option, flag=flag, value=value, expected=f"a number from {low:g} to {high:g}")


def check_choice(option: str, value: object, choices: tuple[str, ...], *, flag: str | None = None) -> None:
    """Raises OptionError unless value is one of the choices."""
    if value not in choices:
        raise OptionError(option=option, flag=flag, value=value, expected=f"one of {', '.join(choices)}")
