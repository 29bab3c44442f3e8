"""The real engine behind the chat's port.

Owns the translation between what the chat asks and what the runtime offers: messages, figures, faults as sentences.
Knows nothing of the screen; the runtime is imported when a model is loaded, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from app.chat.engine_port import (
    ChatEngine,
    EndReason,
    EngineFault,
    EngineLoader,
    LeaveSignal,
    LoadCancelled,
    LoadProgress,
    LoadStep,
    MemoryUse,
    ModelFacts,
    PrefillProgress,
    PromptTurn,
    ReplyEnd,
    ReplyFigures,
    ReplyPiece,
    ReplyStream,
    Role,
    Spent,
)
from app.drafts import add_draft
from app.errors import report_of
from app.loading import SLOW_AFTER_S, STALLED_AFTER_S, WAITING, stage_title

if TYPE_CHECKING:
    from runtime import Engine, EngineOptions, GenerateOptions, Generation, Message
    from runtime.thinking import Segment, ThinkingSplitter

Outcome = TypeVar("Outcome")

_OTHER_TEMPLATE = (
    "Edit the turn that it fails on or take it out, or use another template: /set chat-template-file FILE."
)

_END_REASONS = {
    "stop": EndReason.STOP,
    "length": EndReason.LENGTH,
    "cancelled": EndReason.CANCELLED,
    "context": EndReason.WINDOW,
}


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """Which model, from where, loaded and asked how.

    generate: how it is to answer; asked before every reply.  draft_model: the name of one that guesses for it.
    engine_for: how a file is loaded for which something was measured; None: as `engine` says.
    """

    model: str
    folder: Path
    offline: bool
    engine: EngineOptions
    generate: Callable[[], GenerateOptions]
    draft_model: str | None = None
    engine_for: Callable[[Path], EngineOptions] | None = None


def loader_of(choice: ModelChoice) -> EngineLoader:
    """What loads this model when the chat asks for it."""

    def load(progress: LoadProgress, leaving: LeaveSignal) -> ChatEngine:
        try:
            return _load(choice, progress, leaving)
        except LoadCancelled:
            raise
        except Exception as fault:
            if leaving.is_set():
                raise LoadCancelled from fault
            raise _fault_of(fault) from fault

    return load


def _load(choice: ModelChoice, progress: LoadProgress, leaving: LeaveSignal) -> ChatEngine:
    from runtime.catalog import resolve_model
    from runtime.patience import patient_files

    def report_download(done: int, total: int) -> None:
        progress(LoadStep(title=f"Downloading {choice.model}", done=done, total=total, unit="bytes"))

    def report_stage(stage: str, done: int, total: int) -> None:
        if stage == WAITING and leaving.is_set():
            raise LoadCancelled
        if stage == WAITING and done < SLOW_AFTER_S:
            return
        title, unit = stage_title(stage)
        if stage == WAITING and done >= STALLED_AFTER_S:
            title = "The file does not answer: look whether its disk or network share is there"
        progress(LoadStep(title=title, done=done, total=total, unit=unit))

    def resolve_draft(name: str) -> Path:
        return resolve_model(
            name, folder=choice.folder, offline=choice.offline, progress=report_download, cancel=leaving
        )

    def find() -> tuple[Path, EngineOptions]:
        with patient_files(lambda label, waited_s: report_stage(WAITING, int(waited_s), 0)):
            path = resolve_model(
                choice.model, folder=choice.folder, offline=choice.offline, progress=report_download, cancel=leaving
            )
            how_to_load = choice.engine if choice.engine_for is None else choice.engine_for(path)
            return path, add_draft(how_to_load, choice.draft_model, path, choice.folder, resolve_draft)

    path, options = _unless_left(find, leaving)
    progress(LoadStep(title="Starting the engine"))
    from runtime import Engine

    engine = Engine.load(path, options, progress=report_stage)
    return RuntimeEngine(engine, choice.generate, choice.model)


def _unless_left(call: Callable[[], Outcome], leaving: LeaveSignal) -> Outcome:
    """What a call gives; LoadCancelled as soon as nobody wants it, though it waits for a server that says nothing."""
    from runtime.patience import Patience

    def look(_label: str, _waited_s: float) -> None:
        if leaving.is_set():
            raise LoadCancelled

    patience = Patience(look)
    try:
        return patience("", call)
    finally:
        patience.close()


def _fault_of(fault: Exception) -> EngineFault:
    report = report_of(fault)
    return EngineFault(report.message, report.hint or "")


def _prompt_fault(fault: Exception) -> EngineFault:
    """The same for turns that should become a prompt: a template that fails on one of them fails again and again."""
    from runtime.catalog import TemplateError

    known = _fault_of(fault)
    if not isinstance(fault, TemplateError):
        return known
    sentence = known.sentence if known.sentence.endswith((".", "!", "?")) else f"{known.sentence}."
    return EngineFault(sentence, _OTHER_TEMPLATE)


class RuntimeEngine:
    """A loaded engine as the chat wants it."""

    def __init__(self, engine: Engine, answers: Callable[[], GenerateOptions], asked_for: str) -> None:
        self._engine = engine
        self._answers = answers
        self._asked_for = asked_for
        self._facts = _facts_of(engine, asked_for)

    @property
    def facts(self) -> ModelFacts:
        """As they are now: where a card was lost, the CPU computes in its place."""
        if _memory_of(self._engine) != self._facts.memory:
            self._facts = _facts_of(self._engine, self._asked_for)
        return self._facts

    def prompt_size(self, turns: Sequence[PromptTurn]) -> int:
        """The tokens of the prompt, also of one that is longer than the window."""
        try:
            return len(self._engine.encode(_messages_of(turns), self._answers()).ids)
        except Exception as fault:
            raise _prompt_fault(fault) from fault

    def count_tokens(self, text: str) -> int:
        """The tokens of a text by itself."""
        try:
            return len(self._engine.encode(text, replace(self._answers(), raw=True)).ids)
        except Exception as fault:
            raise _fault_of(fault) from fault

    def reply(
        self,
        turns: Sequence[PromptTurn],
        *,
        begun: Sequence[int] = (),
        begun_text: str = "",
        on_prefill: PrefillProgress | None = None,
    ) -> ReplyStream:
        """Begins a reply, or goes on with one: the runtime goes on from a last message of the model's own."""
        engine = self._engine
        if begun:
            begun_text = engine.vocabulary.decode(list(begun))  # With its thinking, tags and all.
        opening = [PromptTurn(role=Role.ASSISTANT, text=begun_text, ids=tuple(begun) or None)] if begun_text else []
        try:
            options = replace(self._answers(), on_prefill=on_prefill)
            generation = engine.generate(_messages_of([*turns, *opening]), options)
        except Exception as fault:
            raise _prompt_fault(fault) from fault
        return _Stream(engine, generation, begun_text, tells_notes=self.facts.has_chat_template)

    def close(self) -> None:
        """Gives everything back."""
        self._engine.close()


class _Stream:
    """A generation as a stream of answer and thinking."""

    def __init__(self, engine: Engine, generation: Generation, begun_text: str, *, tells_notes: bool) -> None:
        from runtime.thinking import ThinkingSplitter

        self._engine = engine
        self._generation = generation
        # Of a base model there is one at the beginning, which the chat has said already.
        self._first_note = 0 if tells_notes else len(generation.notes)
        self._splitter: ThinkingSplitter = ThinkingSplitter(starts_inside=generation.starts_in_thinking)
        self._splitter.push(begun_text)

    def __iter__(self) -> Iterator[ReplyPiece]:
        try:
            for chunk in self._generation:
                piece = _piece_of(self._splitter.push(chunk.text), chunk.token_ids)
                spent = _spent_by(self._engine)
                yield replace(piece, is_guessed=chunk.is_guessed, num_drafted=chunk.num_drafted, spent=spent)
        except Exception as fault:
            raise _fault_of(fault) from fault
        yield _piece_of(self._splitter.finish(), ())

    def cancel(self) -> None:
        self._generation.cancel()

    @property
    def end(self) -> ReplyEnd:
        completion = self._generation.result
        timings = completion.timings
        figures = ReplyFigures(
            prompt_tokens=timings.prompt_tokens,
            reused_tokens=timings.reused_tokens,
            reply_tokens=timings.output_tokens,
            ttft_s=timings.ttft_s or 0.0,
            tokens_per_s=timings.decode_tokens_per_s or 0.0,
        )
        notes = completion.notes[self._first_note :]
        return ReplyEnd(reason=_END_REASONS[completion.finish_reason], figures=figures, notes=notes)


def _piece_of(segments: Sequence[Segment], token_ids: tuple[int, ...]) -> ReplyPiece:
    return ReplyPiece(
        text="".join(segment.text for segment in segments if segment.kind == "answer"),
        thinking="".join(segment.text for segment in segments if segment.kind == "thinking"),
        token_ids=token_ids,
    )


def _messages_of(turns: Sequence[PromptTurn]) -> list[Message]:
    from runtime import Message

    return [Message(role=str(turn.role), content=turn.text, ids=turn.ids) for turn in turns]


def _facts_of(engine: Engine, asked_for: str) -> ModelFacts:
    description = engine.description
    gpu = description.gpu if any(use.kind != "cpu" for use in engine.uses) else None
    words = [
        description.architecture,
        _count(description.num_parameters),
        *description.formats[:1],
        f"window {description.context_size:,}",
        *([f"{description.gpu_layers}/{description.num_layers} layers on {gpu}"] if gpu else []),
    ]
    is_path = "/" in asked_for or asked_for.endswith(".gguf")
    return ModelFacts(
        name=description.path.stem if is_path else asked_for,
        description=" · ".join(words),
        context_size=description.context_size,
        vocabulary=engine.vocabulary.fingerprint,
        has_chat_template=bool(engine.chat_templates),
        chat_templates=tuple(template.source for template in engine.chat_templates.values()),
        template_names=tuple(engine.chat_templates),
        notes=tuple(engine.notes),
        memory=_memory_of(engine),
        trained_context_size=description.trained_context_size,
        uses_gpu=gpu is not None,
    )


def _memory_of(engine: Engine) -> tuple[MemoryUse, ...]:
    """A device each; a draft model lies beside the CPU's part, or where that would be."""
    gpu, draft = engine.description.gpu or "GPU", engine.draft
    draft_bytes = draft.memory.total_bytes if draft is not None else 0
    found = [
        MemoryUse(
            device="CPU" if use.kind == "cpu" else gpu,
            weights_bytes=use.memory.weights_bytes,
            kv_bytes=use.memory.kv_bytes,
            workspace_bytes=use.memory.workspace_bytes,
            draft_bytes=draft_bytes if use.kind == "cpu" else 0,
            own_bytes=use.own_bytes or 0,
        )
        for use in engine.uses
    ]
    if draft_bytes and all(use.kind != "cpu" for use in engine.uses):
        found.insert(0, MemoryUse(device="CPU", draft_bytes=draft_bytes))
    return tuple(found)


def _spent_by(engine: Engine) -> Spent | None:
    times = engine.times
    if times is None:
        return None
    return Spent(cpu_ms=times.cpu_ms, gpu_ms=times.gpu_ms, transfer_ms=times.transfer_ms)


def _count(number: int) -> str:
    """A number of parameters as models are named: 135M, 1.5B."""
    if number >= 10**9:
        return f"{number / 10**9:.1f}B"
    return f"{number / 10**6:.0f}M"
