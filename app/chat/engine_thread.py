"""The thread on which the chat's engine lives: loads it, answers one request after the other, loads another.

Owns the thread and cancelling. Tells the screen through the mailbox and never waits for it. Knows the engine through
its port only.
"""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import replace

from app.chat.conversation import prompt_turns
from app.chat.engine_port import (
    ChatEngine,
    EndReason,
    EngineFault,
    EngineLoader,
    LoadCancelled,
    LoadStep,
    ModelFacts,
    PromptTurn,
    ReplyEnd,
    ReplyStream,
    Role,
)
from app.chat.engine_requests import CountRequest, LoadRequest, ReplyRequest, Request, SummaryRequest
from app.chat.events import (
    EngineReady,
    FactsChanged,
    LoadFailed,
    LoadProgressed,
    Mailbox,
    PrefillAdvanced,
    ReplyEnded,
    ReplyGrew,
    ReplyStarted,
    SummaryEnded,
    TokensCounted,
)
from app.chat.window_fit import full_window, least_room, summary_tokens, used_tokens

_SUMMARISE = (
    "Summarise our conversation so far in at most 120 words, for yourself to go on from. Keep names, numbers, "
    "decisions and open questions. Write nothing else."
)


class EngineThread:
    """Runs an engine beside the screen. All methods may be called from the screen's thread and return at once."""

    def __init__(self, loader: EngineLoader | None, mailbox: Mailbox) -> None:
        """`loader`: of the first model; None: there is none before `load` is called."""
        self._loader = loader
        self._mailbox = mailbox
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._loads: list[LoadRequest] = []
        self._engine: ChatEngine | None = None
        self._leaving = threading.Event()
        self._lock = threading.Lock()
        self._stream: ReplyStream | None = None
        self._cancelled_turn: str | None = None
        self._told: ModelFacts | None = None  # what the screen knows of the loaded model
        # A daemon: a load that can't be interrupted must not keep the program from ending.
        self._thread = threading.Thread(target=self._run, name="chat-engine", daemon=True)

    def start(self) -> int:
        """Begins to load the first model; the number that its events carry, 0 where there is none."""
        self._thread.start()
        return self.load(self._loader) if self._loader is not None else 0

    def load(self, loader: EngineLoader) -> int:
        """Gives the engine back, and what it is doing up, and loads another; the number that its events carry."""
        for earlier in self._loads:
            earlier.abandoned.set()
        with self._lock:
            if self._stream is not None:
                self._stream.cancel()
        request = LoadRequest(number=len(self._loads) + 1, loader=loader, abandoned=threading.Event())
        self._loads.append(request)
        self._requests.put(request)
        return request.number

    def ask(self, request: ReplyRequest | SummaryRequest) -> None:
        """Asks for a reply or a summary; what becomes of it comes through the mailbox."""
        self._requests.put(request)

    def count(self, text: str) -> None:
        """Asks how many tokens a text is; that comes through the mailbox, once nothing else is being done."""
        self._requests.put(CountRequest(text=text))

    def cancel(self, turn_id: str) -> None:
        """Stops the reply of this turn, also before it has begun."""
        with self._lock:
            self._cancelled_turn = turn_id
            if self._stream is not None:
                self._stream.cancel()

    def close(self, timeout_s: float) -> bool:
        """Ends a load or a reply and the thread; False where that took longer than `timeout_s`."""
        self._leaving.set()
        for load in self._loads:
            load.abandoned.set()
        with self._lock:
            if self._stream is not None:
                self._stream.cancel()
        if self._thread.ident is None:  # The chat was left before anything was begun.
            return True
        self._requests.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while (request := self._requests.get()) is not None and not self._leaving.is_set():
                match request:
                    case LoadRequest():
                        self._close_engine()
                        self._load(request)
                    case CountRequest():
                        self._count(request.text)
                    case SummaryRequest():
                        self._summarise(request)
                    case ReplyRequest():
                        self._answer(request)
        finally:
            self._close_engine()

    def _close_engine(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def _load(self, request: LoadRequest) -> None:
        def report(step: LoadStep) -> None:
            if request.abandoned.is_set():
                raise LoadCancelled
            self._mailbox.post(LoadProgressed(step=step, load=request.number))

        if request.abandoned.is_set():
            return
        try:
            self._engine = request.loader(report, request.abandoned)
        except LoadCancelled:
            return
        except EngineFault as fault:
            self._mailbox.post(LoadFailed(sentence=fault.sentence, way_on=fault.way_on, load=request.number))
        except Exception as fault:  # A bug below must end as a sentence on the screen, not as a chat that waits.
            sentence = f"The model can't be loaded: {_words_of(fault)}"
            self._mailbox.post(LoadFailed(sentence=sentence, way_on="", load=request.number))
        else:
            self._told = self._engine.facts
            self._mailbox.post(EngineReady(facts=self._told, load=request.number))

    def _summarise(self, request: SummaryRequest) -> None:
        try:
            if self._engine is None:
                raise EngineFault("There is no model to answer.")
            text, num_tokens = self._write_summary(self._engine, request)
        except Exception as fault:  # As for a reply: the conversation stays, with one sentence.
            self._mailbox.post(SummaryEnded(turn_id=request.turn_id, fault=_words_of(fault)))
        else:
            self._mailbox.post(SummaryEnded(turn_id=request.turn_id, text=text, num_tokens=num_tokens))

    def _write_summary(self, engine: ChatEngine, request: SummaryRequest) -> tuple[str, int]:
        """The text and its tokens. Raises EngineFault where there can be none, or where it was stopped."""
        conversation, facts = request.conversation, engine.facts
        end = next(place for place, turn in enumerate(conversation.turns) if turn.id == request.start_turn_id)
        part = replace(conversation, turns=conversation.turns[:end])
        turns = [*prompt_turns(part, facts.vocabulary), PromptTurn(role=Role.USER, text=_SUMMARISE)]
        most_tokens = summary_tokens(facts.context_size)
        if engine.prompt_size(turns) + most_tokens > facts.context_size:
            raise EngineFault("What would be left out is too long to be summarised in one go.")
        stream = engine.reply(turns)
        with self._lock:
            self._stream = stream
        text, num_tokens, is_enough = "", 0, False
        try:
            for piece in stream:
                text += piece.text
                num_tokens += len(piece.token_ids)
                if num_tokens >= most_tokens and not is_enough:
                    is_enough = True
                    stream.cancel()
        finally:
            with self._lock:
                self._stream = None
                was_stopped = self._cancelled_turn == request.turn_id
                self._cancelled_turn = None
        if was_stopped or not text.strip():
            raise EngineFault("The summary was stopped." if was_stopped else "The model wrote no summary.")
        return text.strip(), num_tokens

    def _count(self, text: str) -> None:
        if self._engine is None:
            return
        try:
            self._mailbox.post(TokensCounted(text=text, num_tokens=self._engine.count_tokens(text)))
        except EngineFault:
            pass  # The text is told by its lines, then.

    def _answer(self, request: ReplyRequest) -> None:
        try:
            if self._engine is None:
                raise EngineFault("There is no model to answer.")
            end = self._write_reply(self._engine, request)
        except EngineFault as fault:
            error = f"{fault.sentence} {fault.way_on}".strip()
            end = ReplyEnd(reason=EndReason.FAILED, error=error)
        except Exception as fault:  # As above: the conversation stays, with one sentence.
            end = ReplyEnd(reason=EndReason.FAILED, error=f"The reply broke off: {_words_of(fault)}")
        if end is not None:
            self._mailbox.post(ReplyEnded(turn_id=request.turn_id, end=end))
        if self._engine is not None and (now := self._engine.facts) != self._told:
            self._told = now
            self._mailbox.post(FactsChanged(facts=now))

    def _write_reply(self, engine: ChatEngine, request: ReplyRequest) -> ReplyEnd | None:
        """Runs the request to its end; None where the window is full and the user is asked instead."""
        facts = engine.facts
        turns = prompt_turns(request.conversation, facts.vocabulary)
        prompt_tokens = used_tokens(engine, request, turns)
        if request.is_full or prompt_tokens + least_room(facts.context_size) > facts.context_size:
            self._mailbox.post(full_window(engine, request, prompt_tokens))
            return None
        turn_id = request.turn_id
        self._mailbox.post(ReplyStarted(turn_id=turn_id, prompt_tokens=prompt_tokens))

        def report_prefill(done: int, total: int) -> None:
            self._mailbox.post(PrefillAdvanced(turn_id=turn_id, done=done, total=total))

        stream = engine.reply(turns, begun=request.begun, begun_text=request.begun_text, on_prefill=report_prefill)
        with self._lock:
            self._stream = stream
            if self._cancelled_turn == turn_id or self._leaving.is_set():
                stream.cancel()
        try:
            for piece in stream:
                self._mailbox.post(
                    ReplyGrew(
                        turn_id=turn_id,
                        text=piece.text,
                        thinking=piece.thinking,
                        token_ids=piece.token_ids,
                        at_s=time.monotonic(),
                        is_guessed=piece.is_guessed,
                        num_drafted=piece.num_drafted,
                        spent=piece.spent,
                    )
                )
        finally:
            with self._lock:
                self._stream = None
                self._cancelled_turn = None
        return stream.end


def _words_of(fault: Exception) -> str:
    return f"{fault}" or type(fault).__name__
