"""The engine: one loaded model that answers prompts.

Owns the parts of a loaded model and their joining.  Does not know how a step is scheduled (loop.py), what a device
computes, nor who asks.

    with Engine.load("model.gguf") as engine:
        for chunk in engine.generate("Why is the sky blue?"):
            print(chunk.text, end="", flush=True)

Every method may be called from any thread.  generate() returns at once; the engine's own thread does the work.

What a token costs beside the device's own work, one sequence, 49,152 tokens in the vocabulary, chunks taken by another
thread (EPYC Zen 4, two cores, CPython 3.11, median of 2,000): 45 us at temperature 0, 165 us with the default sampler.
With 262,144 tokens: 50 and 150 us.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from models.chat_template import ChatTemplate
from models.description import BASE_MODEL_NOTE
from models.gguf_file import ModelFile
from models.template_file import TemplateFile
from models.vocabulary import Vocabulary, load_vocabulary
from runtime.adapters import open_adapted
from runtime.answer import Answer
from runtime.constraints import ConstraintCompiler
from runtime.devices import parts
from runtime.devices.binding import Binding, DeviceMemory, DeviceTimes, DeviceUse, HasTimes, uses_of
from runtime.devices.recovery import RecoveringBinding, rebinding_on_cpu
from runtime.errors import CapacityError, ContextError, DeviceError, OptionError
from runtime.generation import Generation
from runtime.grammar_mask import GrammarMask
from runtime.loop import EngineLoop
from runtime.machine import read_machine
from runtime.memory import MemoryBill
from runtime.options import EngineOptions, GenerateOptions
from runtime.patience import patient_files
from runtime.placement import Placement, place, usable_cards
from runtime.prompts import EncodedPrompt, Prompt, PromptEncoder
from runtime.random_numbers import new_seed
from runtime.sampling import Mask
from runtime.speculation.loading import DraftFile, LoadedDraft, loaded_draft, make_speculator, refusal
from runtime.speculation.speculator import Speculator
from runtime.templates import chosen_file, load_templates
from runtime.token_texts import BannedStrings, TokenTexts

LoadProgress = Callable[[str, int, int], None]
WAITING = "waiting"


@dataclass(frozen=True, kw_only=True)
class EngineDescription:
    """What is loaded.  formats: block formats of the weights, by size; sizes in tokens; threads: on the CPU.

    gpu: the card's name, if it computes layers; gpu_layers: how many of num_layers; cpu_experts: of so many of the
    first layers the experts are on the CPU.  chat_template_sha256: of the file that the template came from, if not of
    the model's own.
    """

    name: str
    architecture: str
    num_parameters: int
    formats: tuple[str, ...]
    size_bytes: int
    trained_context_size: int
    context_size: int
    threads: int
    path: Path
    fingerprint: str
    num_layers: int = 0
    gpu_layers: int = 0
    cpu_experts: int = 0
    gpu: str | None = None
    chat_template_sha256: str | None = None


class Engine:
    """A loaded model.  Close it when done, or use it in a `with` statement."""

    def __init__(
        self,
        *,
        binding: Binding,
        vocabulary: Vocabulary,
        chat_templates: Mapping[str, ChatTemplate],
        description: EngineDescription,
        notes: tuple[str, ...] = (),
        speculator: Speculator | None = None,
        draft: LoadedDraft | None = None,
        guesses_meanwhile: bool = False,
        bill: MemoryBill | None = None,
    ) -> None:
        """Takes the binding and the speculator over, and closes them.  draft: the model that guesses, if any.

        chat_templates: by name, the first for who chooses none; empty for a base model.
        guesses_meanwhile: the binding leaves the processor idle for most of a run, and guesses are made in that time.
        bill: what was planned before loading.
        """
        self.vocabulary = vocabulary
        self.chat_templates = chat_templates
        self.description = description
        self.notes = notes
        self.draft = draft
        self.bill = bill
        self.limits = binding.limits
        self._memory = binding.memory
        self._binding = binding
        num_tokens = min(vocabulary.size, binding.vocab_size)
        self._encoder = PromptEncoder(vocabulary, chat_templates, num_tokens=num_tokens)
        self._texts = TokenTexts(vocabulary.token_bytes, num_tokens=num_tokens)
        self._constraints = ConstraintCompiler(self._texts, self._encode_words)
        self._loop = EngineLoop(
            binding, num_tokens=num_tokens, speculator=speculator, guesses_meanwhile=guesses_meanwhile
        )
        self._finalizer = weakref.finalize(self, _close, self._loop, tuple(chat_templates.values()))

    @classmethod
    def load(
        cls, path: Path | str, options: EngineOptions | None = None, progress: LoadProgress | None = None
    ) -> Engine:
        """Loads a model file; takes seconds, longer when kernels are compiled for the first time.

        progress(stage, done, total) is called from this thread; what it raises ends the load.  While a file does not
        answer it is called with WAITING and the seconds.  Raises ModelError for
        the file's faults, CapacityError when the model does not fit in memory, OptionError for options it can't have.
        """
        options = options or EngineOptions()
        report = progress or _ignore
        speculation = options.speculation
        speculation.require_model()
        with ExitStack() as stack:
            stack.enter_context(patient_files(lambda label, waited_s: report(WAITING, int(waited_s), 0)))
            file = stack.enter_context(open_adapted(path, options.adapters))
            template_file = chosen_file(options, file.metadata)
            background = stack.enter_context(ThreadPoolExecutor(max_workers=1))
            words = background.submit(
                _load_words, file, template_file
            )  # while the device packs weights, without the GIL
            draft_file: DraftFile | None = None
            draft_notes: list[str] = []
            if speculation.uses_draft_model and speculation.draft_model is not None:
                draft_file = stack.enter_context(DraftFile(speculation.draft_model, speculation.draft_weights))
                if reason := refusal(draft_file, words.result()[0], draft_file.load_vocabulary()):
                    draft_notes.append(reason)
                    draft_file = None
            placement = _place_both(file, draft_file, options, draft_notes)
            if placement.bill.draft is None:
                draft_file = None
            placement, binding = _bind(file, draft_file, options, placement, draft_notes, report)
            bindings = stack.enter_context(ExitStack())  # closed if anything fails from here on
            bindings.callback(binding.close)
            draft_binding = draft_file.bind(placement.device_options, report) if draft_file is not None else None
            if draft_binding is not None:
                bindings.callback(draft_binding.close)
            vocabulary, chat_templates = words.result()
            engine = cls(
                binding=binding,
                vocabulary=vocabulary,
                chat_templates=chat_templates,
                description=_described(file, placement, template_file),
                notes=(*_notes(placement, template_file), *vocabulary.notes, *binding.notes, *draft_notes),
                speculator=make_speculator(
                    speculation,
                    draft_binding,
                    num_tokens=min(vocabulary.size, binding.vocab_size),
                    weights_bytes=None if placement.gpu_layers else binding.memory.weights_bytes,
                    notes=tuple(draft_notes),
                ),
                draft=loaded_draft(draft_file, draft_binding),
                bill=placement.bill,
                guesses_meanwhile=2 * placement.gpu_layers >= len(placement.model.program.layers),
            )
            bindings.pop_all()
            return engine

    @property
    def context_size(self) -> int:
        """Positions that a prompt and its answer may have."""
        return self.limits.context_size

    @property
    def memory(self) -> DeviceMemory:
        """What is reserved for weights, KV cache and workspace."""
        return self._memory

    @property
    def uses(self) -> tuple[DeviceUse, ...]:
        """What every device really holds, the CPU first; see `bill`."""
        return uses_of(self._binding)

    @property
    def times(self) -> DeviceTimes | None:
        """Where the time went since it was loaded; None where a CPU alone computes."""
        return self._binding.times if isinstance(self._binding, HasTimes) else None

    def encode(self, prompt: Prompt, options: GenerateOptions | None = None) -> EncodedPrompt:
        """The ids that generate() would begin from, even if they are more than the window holds."""
        return self._encoder.encode(prompt, options or GenerateOptions())

    def generate(self, prompt: Prompt, options: GenerateOptions | None = None) -> Generation:
        """Begins an answer.

        prompt: text (through the chat template, unless options.raw), messages, or token ids as they are.
        Raises at once: OptionError for what is no prompt, ContextError for one that is longer than the window,
        TemplateError for messages that the model's template refuses, ConstraintError for a schema or grammar that can't
        be honoured, EngineClosedError after close().
        """
        options = options or GenerateOptions()
        if options.constraint is not None and options.leaves_thinking_open:
            options = replace(
                options, enable_thinking=False
            )  # the answer is held to its grammar from the first token on
        encoded = self.encode(prompt, options)
        if len(encoded.ids) > self.context_size:
            raise ContextError(prompt_tokens=len(encoded.ids), context_size=self.context_size)
        masks, grammar = self._masks(encoded, options)
        seed = options.sampling.seed
        loop = self._loop
        generation = Generation(
            prompt_ids=encoded.ids,
            notes=encoded.notes,
            seed=new_seed() if seed is None else seed,
            starts_in_thinking=encoded.starts_in_thinking,
            cancel=lambda: loop.cancel(answer),
            keep_alive=self,
        )
        answer = Answer(
            generation=generation,
            options=options,
            end_ids=encoded.end_ids,
            context_size=self.context_size,
            token_bytes=self.vocabulary.token_bytes,
            masks=masks,
            grammar=grammar,
        )
        loop.submit(answer)
        return generation

    def _masks(self, encoded: EncodedPrompt, options: GenerateOptions) -> tuple[list[Mask], GrammarMask | None]:
        """What the tokens of an answer may not be."""
        num_prompt = len(encoded.ids)
        wrong = next((pair for pair in options.sampling.logit_bias if pair[0] >= self._texts.num_tokens), None)
        if wrong is not None:
            expected = f"token ids from 0 to {self._texts.num_tokens - 1}"
            raise OptionError(option="logit_bias", flag="--logit-bias", value=wrong[0], expected=expected)
        strings = options.sampling.banned_strings
        banned = BannedStrings(strings, self._texts, num_prompt=num_prompt) if strings else None
        masks: list[Mask] = [banned] if banned is not None else []
        if options.constraint is None:
            return masks, None
        return masks, self._constraints.mask(
            options.constraint, num_prompt=num_prompt, end_ids=encoded.end_ids, banned=banned
        )

    def _encode_words(self, text: bytes) -> list[int]:
        return self.vocabulary.encode(text, add_special=False, parse_special=False)

    def close(self) -> None:
        """Cancels what is going on and gives everything back.  May be called twice."""
        self._finalizer()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _place_both(file: ModelFile, draft_file: DraftFile | None, options: EngineOptions, notes: list[str]) -> Placement:
    """A placement with room for the draft model, or without one, and a note, if both don't fit."""
    machine, cards = read_machine(), usable_cards(options)
    if draft_file is not None:
        try:
            return place(file, options, machine, cards=cards, draft_price=draft_file.price)
        except CapacityError as error:
            notes.append(
                f"There is no room for the draft model {draft_file.name}, so nothing is guessed by it. {error}"
            )
    return place(file, options, machine, cards=cards)


def _bind(
    file: ModelFile,
    draft_file: DraftFile | None,
    options: EngineOptions,
    placement: Placement,
    notes: list[str],
    report: LoadProgress,
) -> tuple[Placement, Binding]:
    """The binding, and the placement that it has after all: the CPU's, and a note, where the GPU can't be used."""

    def bound() -> Binding:
        return parts.bind(placement.split, file, placement.device_options, report, card=placement.card_place)

    try:
        binding = bound()
    except (CapacityError, DeviceError) as error:
        is_asked = options.asks_for_gpu
        if not placement.gpu_layers or is_asked:
            raise
        notes.append(f"{error} The CPU computes alone.")
        placement = _place_both(file, draft_file, replace(options, device="cpu"), notes)
        binding = bound()
    if placement.gpu_layers:
        binding = RecoveringBinding(binding, rebinding_on_cpu(file, placement.model.program, placement.device_options))
    return placement, binding


def _load_words(file: ModelFile, template_file: TemplateFile | None) -> tuple[Vocabulary, Mapping[str, ChatTemplate]]:
    vocabulary = load_vocabulary(file.metadata)
    chat_templates = load_templates(template_file, file.metadata, vocabulary)
    for first in list(chat_templates.values())[:1]:
        first.prepare()
    return vocabulary, chat_templates


def describe_loaded(file: ModelFile, placement: Placement) -> EngineDescription:
    """What an open file and its placement say about a model."""
    model = placement.model
    return EngineDescription(
        name=model.name or file.paths[0].stem,
        architecture=model.hyperparameters.architecture,
        num_parameters=model.num_parameters,
        formats=tuple(use.name for use in model.formats),
        size_bytes=model.size_bytes,
        trained_context_size=model.context_length,
        context_size=placement.bill.context_size,
        threads=placement.device_options.threads,
        path=file.paths[0],
        fingerprint=file.fingerprint,
        num_layers=len(model.program.layers),
        gpu_layers=placement.gpu_layers,
        cpu_experts=placement.cpu_experts,
        gpu=placement.card.name if placement.card is not None else None,
    )


def _described(file: ModelFile, placement: Placement, template_file: TemplateFile | None) -> EngineDescription:
    described = describe_loaded(file, placement)
    return described if template_file is None else replace(described, chat_template_sha256=template_file.sha256)


def _notes(placement: Placement, template_file: TemplateFile | None) -> tuple[str, ...]:
    """The placement's, without what a template of its own changes."""
    return tuple(note for note in placement.notes if template_file is None or note != BASE_MODEL_NOTE)


def _close(loop: EngineLoop, chat_templates: Sequence[ChatTemplate]) -> None:
    loop.close()
    for chat_template in chat_templates:
        chat_template.close()


def _ignore(stage: str, done: int, total: int) -> None:
    """Progress nobody asked for."""
