"""One user's engine: memory, pages, scheduling, sampling, text, timings.

These are the room's public names; each is imported when it is first asked for.  Beside them, runtime.catalog (models on
disk and in the catalog) and runtime.machine (facts about this machine) are public.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from models.chat_template import Message
    from models.errors import ModelError
    from runtime.constraints import OutputConstraint
    from runtime.devices.binding import DeviceMemory
    from runtime.engine import Engine, EngineDescription
    from runtime.errors import (
        CapacityError,
        ConstraintError,
        ContextError,
        DeviceError,
        EngineClosedError,
        EngineError,
        NoTokenLeftError,
        NumericError,
        OptionError,
    )
    from runtime.generation import Chunk, Completion, FinishReason, Generation
    from runtime.memory import MemoryBill
    from runtime.options import EngineOptions, GenerateOptions
    from runtime.prompts import EncodedPrompt, Prompt
    from runtime.sampler_stages import describe_chain
    from runtime.sampling import SamplingOptions
    from runtime.speculation.options import SpeculationOptions, SpeculationReport
    from runtime.thinking import Segment, ThinkingSplitter, ThinkingTags
    from runtime.timings import Timings

__all__ = [
    "CapacityError",
    "Chunk",
    "Completion",
    "ConstraintError",
    "ContextError",
    "DeviceError",
    "DeviceMemory",
    "EncodedPrompt",
    "Engine",
    "EngineClosedError",
    "EngineDescription",
    "EngineError",
    "EngineOptions",
    "FinishReason",
    "GenerateOptions",
    "Generation",
    "MemoryBill",
    "Message",
    "ModelError",
    "NoTokenLeftError",
    "NumericError",
    "OptionError",
    "OutputConstraint",
    "Prompt",
    "SamplingOptions",
    "Segment",
    "SpeculationOptions",
    "SpeculationReport",
    "ThinkingSplitter",
    "ThinkingTags",
    "Timings",
    "describe_chain",
]

_MODULES = {
    "models.chat_template": ("Message",),
    "models.errors": ("ModelError",),
    "runtime.constraints": ("OutputConstraint",),
    "runtime.devices.binding": ("DeviceMemory",),
    "runtime.engine": ("Engine", "EngineDescription"),
    "runtime.errors": (
        "CapacityError",
        "ConstraintError",
        "ContextError",
        "DeviceError",
        "EngineClosedError",
        "EngineError",
        "NoTokenLeftError",
        "NumericError",
        "OptionError",
    ),
    "runtime.generation": ("Chunk", "Completion", "FinishReason", "Generation"),
    "runtime.memory": ("MemoryBill",),
    "runtime.options": ("EngineOptions", "GenerateOptions"),
    "runtime.prompts": ("EncodedPrompt", "Prompt"),
    "runtime.sampler_stages": ("describe_chain",),
    "runtime.sampling": ("SamplingOptions",),
    "runtime.speculation.options": ("SpeculationOptions", "SpeculationReport"),
    "runtime.thinking": ("Segment", "ThinkingSplitter", "ThinkingTags"),
    "runtime.timings": ("Timings",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
