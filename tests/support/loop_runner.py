"""An engine's loop on a fake device, and how to ask it, as the engine does.

Does not know models or vocabularies.
"""

from __future__ import annotations

from dataclasses import replace

from fake_device import FakeBinding

from runtime.answer import Answer
from runtime.generation import Generation
from runtime.loop import EngineLoop
from runtime.options import GenerateOptions
from runtime.sampling import SamplingOptions

GREEDY = SamplingOptions(temperature=0)


def token_bytes(token_id: int) -> bytes:
    """Ids 0 to 255 are bytes; the rest are words."""
    return bytes([token_id]) if token_id < 256 else f"<{token_id}>".encode()


class Runner:
    """A loop and how to ask it, as the engine does."""

    def __init__(self, binding: FakeBinding, *, end_ids: frozenset[int] = frozenset()) -> None:
        self.binding = binding
        self.end_ids = end_ids
        self.loop = EngineLoop(binding)

    def ask(self, prompt: list[int], **fields: object) -> Generation:
        options = replace(GenerateOptions(sampling=GREEDY), **fields)  # pyright: ignore[reportArgumentType]
        loop = self.loop
        generation = Generation(
            prompt_ids=tuple(prompt),
            notes=(),
            seed=options.sampling.seed or 0,
            starts_in_thinking=False,
            cancel=lambda: loop.cancel(answer),
        )
        answer = Answer(
            generation=generation,
            options=options,
            end_ids=self.end_ids,
            context_size=self.binding.limits.context_size,
            token_bytes=token_bytes,
        )
        loop.submit(answer)
        return generation
