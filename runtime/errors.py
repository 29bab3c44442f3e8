"""The error tree of the runtime room.

Owns what can go wrong between a prompt and an answer.  Files, vocabularies and templates have their own tree
(models/errors.py).  Every message says where, what was found, what was expected and what to do.
"""

from __future__ import annotations


class EngineError(Exception):
    """Something the engine could not do."""


class OptionError(EngineError):
    """An option's value makes no sense.

    option: the field's name; flag: what it is called on a command line; value: what was found; expected: what would do.
    """

    def __init__(self, *, option: str, flag: str | None, value: object, expected: str) -> None:
        name = f"{option} ({flag})" if flag else option
        super().__init__(f"{name} is {_show(value)}; expected {expected}.")
        self.option = option
        self.flag = flag
        self.value = value
        self.expected = expected


class ContextError(EngineError):
    """The prompt is longer than the context window.  Both sizes in tokens."""

    def __init__(self, *, prompt_tokens: int, context_size: int) -> None:
        super().__init__(
            f"The prompt has {prompt_tokens} tokens and the context window holds {context_size}. "
            f"Shorten the prompt, or load the model with a larger context size."
        )
        self.prompt_tokens = prompt_tokens
        self.context_size = context_size


class CapacityError(EngineError):
    """The model does not fit in this machine's memory.  Both sizes in bytes."""

    def __init__(self, message: str, *, needed_bytes: int, available_bytes: int) -> None:
        super().__init__(message)
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes


class DeviceError(EngineError):
    """A device is missing, or can't run this model, or failed to make itself ready."""


class DeviceLostError(DeviceError):
    """A device stopped answering; what was on it is gone."""


class EngineClosedError(EngineError):
    """The engine was closed and takes no more work."""


class NumericError(EngineError):
    """The device gave logits that are not numbers."""


class ConstraintError(EngineError):
    """A schema, expression or grammar can't be honoured.  place: where in it, "" for all of it."""

    def __init__(self, message: str, *, place: str = "") -> None:
        super().__init__(message)
        self.place = place


class NoTokenLeftError(EngineError):
    """What a caller forbade leaves no token that could come next."""


class Cancelled(EngineError):
    """A device stopped a run because cancel() was called; nothing of that run counts."""


class DeviceReplaced(EngineError):
    """A device was lost and another one took its place: nothing of the run counts, and no page holds anything."""


def _show(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else text[:77] + "..."
