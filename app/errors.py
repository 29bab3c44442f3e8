"""What can go wrong between the terminal and the engine, and how any fault becomes one sentence and an exit status.

Owns the error tree of this room and the wording of the last line on stderr.  Does not know streams (output.py).
"""

from __future__ import annotations

from dataclasses import dataclass

EXIT_SUCCESS = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class AppError(Exception):
    """Something that the person can mend.  hint: what to do, where the message does not say it already."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(AppError):
    """The command line asks for what does not exist or does not fit together."""


class SettingsError(AppError):
    """The settings file or a TANDEM_ variable holds what cannot be used."""


class OutputClosedError(Exception):
    """Whoever read our output went away: there is nobody to tell."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """The last words on stderr, and the exit status."""

    message: str
    hint: str | None
    status: int


def report_of(error: BaseException) -> Report:
    """What to say about an exception.  Faults that the rooms know are sentences already."""
    if isinstance(error, AppError):
        status = EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILURE
        return Report(message=str(error), hint=error.hint, status=status)
    if isinstance(error, MemoryError):
        return Report(
            message="This machine ran out of memory.",
            hint="choose a smaller model, or a smaller context with --ctx-size.",
            status=EXIT_FAILURE,
        )
    if _is_known(error):
        return Report(message=str(error), hint=None, status=EXIT_FAILURE)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return Report(message=f"{where}{error.strerror or error}.", hint=None, status=EXIT_FAILURE)
    return Report(
        message=f"Tandem failed in a way it does not know: {type(error).__name__}: {error}",
        hint="TANDEM_DEBUG=1 shows where; please report it together with what `tandem doctor` prints.",
        status=EXIT_FAILURE,
    )


def _is_known(error: BaseException) -> bool:
    from runtime.catalog import ModelError
    from runtime.errors import EngineError

    return isinstance(error, ModelError | EngineError)
