"""Loading what guesses: the draft model's file, whether it may be used, and its device.

Owns these choices.  Does not know how guesses are made.  A draft model that can't be used is no fault: the model
answers without it, and a note says why.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from models.description import ModelDescription, load_description
from models.gguf_file import ModelFile, open_model_file
from models.segments import whole
from models.vocabulary import Vocabulary, load_vocabulary
from runtime.devices import cpu
from runtime.devices.binding import Binding, DeviceMemory, DeviceOptions
from runtime.speculation.drafter import Drafter
from runtime.speculation.model_drafter import USUAL_SHARE, ModelDrafter
from runtime.speculation.ngram_drafter import NgramDrafter
from runtime.speculation.options import DraftWeights, SpeculationOptions
from runtime.speculation.pass_costs import Pace
from runtime.speculation.speculator import Speculator
from runtime.speculation.vocabularies import difference


@dataclass(frozen=True, kw_only=True)
class LoadedDraft:
    """A draft model that is in use.  memory: what it reserved beside the model."""

    name: str
    path: Path
    memory: DeviceMemory


class DraftFile:
    """A draft model's open file: what it is, what it would cost, and its binding."""

    def __init__(self, path: Path, weights: DraftWeights) -> None:
        """Raises ModelError for the file's faults."""
        with ExitStack() as stack:
            self._file: ModelFile = stack.enter_context(open_model_file(path))
            self._model: ModelDescription = load_description(self._file)
            self._stack = stack.pop_all()
        self._weights: DraftWeights = weights
        self.path = path
        self.name = self._model.name or path.stem

    def __enter__(self) -> DraftFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    @property
    def keeps_states(self) -> bool:
        """Whether what it computed can't be cut anywhere."""
        return bool(self._model.program.state_layers)

    def load_vocabulary(self) -> Vocabulary:
        """The draft model's tokens."""
        return load_vocabulary(self._file.metadata)

    def price(self, options: DeviceOptions) -> DeviceMemory:
        """What bind() will reserve beside a model that has these options."""
        return cpu.price(whole(self._model.program), self._file, _own_options(options, self._weights))

    def bind(self, options: DeviceOptions, progress: Callable[[str, int, int], None]) -> Binding:
        """Loads it, for as many and as long sequences as the model has."""
        model = self._model
        if options.limits.context_size != model.context_length:
            model = load_description(self._file, context_size=options.limits.context_size)
        return cpu.bind(whole(model.program), self._file, _own_options(options, self._weights), progress)


def refusal(draft: DraftFile, target: Vocabulary, words: Vocabulary) -> str | None:
    """Why a draft model can't be used for a model with this vocabulary; None when it can."""
    if draft.keeps_states:
        return (
            f"The draft model {draft.name} can't guess for this model, which goes on without it: it keeps a state, from"
            " which guesses that were wrong can't be taken back."
        )
    reason = difference(target, words)
    if reason is None:
        return None
    return f"The draft model {draft.name} can't guess for this model, which goes on without it: {reason}."


def make_speculator(
    options: SpeculationOptions,
    draft: Binding | None,
    *,
    num_tokens: int,
    weights_bytes: int | None,
    notes: tuple[str, ...],
) -> Speculator | None:
    """What guesses; None when nothing does and nothing was asked for.

    draft: the draft model's binding, taken over.  num_tokens: ids that the model has; weights_bytes: what its weights
    take, if both run on one device.
    """
    pace = Pace()
    drafters: list[Drafter] = []
    if options.uses_text:
        drafters.append(NgramDrafter())
    if draft is not None:
        usual_share = draft.memory.weights_bytes / weights_bytes if weights_bytes else USUAL_SHARE
        drafters.append(ModelDrafter(draft, num_tokens=num_tokens, pace=pace, usual_share=usual_share))
    return Speculator(drafters, options, pace=pace, notes=notes) if drafters or notes else None


def loaded_draft(file: DraftFile | None, binding: Binding | None) -> LoadedDraft | None:
    """What is told of a draft model that is in use."""
    if file is None or binding is None:
        return None
    return LoadedDraft(name=file.name, path=file.path, memory=binding.memory)


def _own_options(options: DeviceOptions, weights: DraftWeights) -> DeviceOptions:
    """A draft model gives one row of logits a sequence; as its guesses are checked, it is rounded to be fast."""
    limits = replace(options.limits, max_outputs=options.limits.max_sequences)
    return replace(options, limits=limits, activations="fast", requantize=weights == "q4_0")
