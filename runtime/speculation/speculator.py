"""Speculation as the engine's loop sees it: drafts before a step, lessons after it.

Owns the drafters, what each round was and what it brought, for each sequence.  Does not know rows of logits, text or
threads: what is kept of a draft is decided by the one that chooses tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from runtime.errors import EngineError
from runtime.sequence import TokenSequence
from runtime.speculation.controller import Controller, Limits, Round
from runtime.speculation.drafter import Choose, Drafter, Guess, Run, Wish
from runtime.speculation.options import SpeculationOptions, SpeculationReport
from runtime.speculation.pass_costs import Pace, PassCosts
from runtime.speculation.reading import Need, Prospect, Reading, choose
from runtime.speculation.track import HOPE, Track

_ALL = Reading(window=None)


class Contender(Protocol):
    """What is asked of an answer that may get a draft."""

    @property
    def sequence(self) -> TokenSequence: ...

    @property
    def tokens_wanted(self) -> int:
        """How many more it will have at most."""
        ...

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end it."""
        ...

    @property
    def guess(self) -> Choose: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """What a step brought a sequence.  num_checked: tokens of its draft that were in it; token_ids: what it got.

    speculates: whether guesses may be made for it.
    """

    sequence: TokenSequence
    speculates: bool
    num_checked: int
    token_ids: tuple[int, ...]


@dataclass(eq=False, kw_only=True, slots=True)
class _Tally:
    """Counts for one answer; see SpeculationReport.  need: of guesses that take time."""

    need: Need
    num_given: int = 0
    drafted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    rounds: int = 0
    plain_tokens: int = 0
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    wait_ms: float = 0.0
    used: set[Track] = field(default_factory=set)


@dataclass(eq=False, kw_only=True, slots=True)
class _Draft:
    track: Track
    guess: Guess


class Speculator:
    """Gives sequences drafts.  The engine's thread calls everything.

    drafters: those that need no time first; each is asked where those before it promise less.  pace: the one by which
    the drafters measure their passes.  notes: why something that was asked for is not there, for every report.
    clock: seconds; how long the model waits for guesses is measured with it.
    """

    def __init__(
        self,
        drafters: Sequence[Drafter],
        options: SpeculationOptions,
        *,
        pace: Pace,
        notes: Sequence[str] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._pairs = [(drafter, Track(drafter.name, drafter.prior, drafter.costs)) for drafter in drafters]
        self._draft_max = options.draft_max
        self._controller = Controller(pace, draft_min=options.draft_min)
        self._notes = tuple(notes)
        self._clock = clock
        self._drafts: dict[TokenSequence, _Draft] = {}
        self._tallies: dict[TokenSequence, _Tally] = {}
        self._need = Need()  # of all answers
        self._has_text = any(drafter.costs is None for drafter in drafters)

    def propose(self, contenders: Sequence[Contender], run: Run, *, num_sequences: int, context_size: int) -> None:
        """Gives drafts to sequences that decode.  num_sequences: those that share the next step.

        May find nothing, or be stopped: then they have none.
        """
        started_s = self._clock()
        self._propose(contenders, run, num_sequences, context_size)
        self.waited(contenders, (self._clock() - started_s) * 1e3)

    def _propose(self, contenders: Sequence[Contender], run: Run, num_sequences: int, context_size: int) -> None:
        for contender in contenders:
            contender.sequence.draft.clear()
            self._drafts.pop(contender.sequence, None)
        round = self._controller.begin(num_sequences)
        if round is None:
            return
        drafted: dict[TokenSequence, _Draft] = {}
        for drafter, track in self._pairs:
            if not track.is_on(self._controller.tokens_out):
                continue
            try:
                self._ask(drafter, track, contenders, drafted, run, round, context_size)
            except (EngineError, OSError, RuntimeError) as error:
                track.fail(f"{track.name} failed: {error}")
        for sequence, draft in drafted.items():
            if len(draft.guess.token_ids) >= self._controller.draft_min:
                sequence.draft[:] = draft.guess.token_ids
                self._drafts[sequence] = draft
            else:
                self._tally(sequence).draft_ms += draft.guess.draft_ms

    def guess_ahead(
        self, contenders: Sequence[Contender], run: Run, *, is_wanted: Callable[[], bool], context_size: int
    ) -> None:
        """While a step is computed elsewhere: guesses what may follow the drafts in it, as long as is_wanted().

        What holds of these guesses is there at once when the next drafts are proposed.
        """
        costs = self._controller.costs
        if not costs.is_known:
            return
        num_tokens = sum(1 + len(contender.sequence.draft) for contender in contenders)
        ends_s = self._clock() + costs.ms(num_tokens) / 1e3
        for drafter, track in self._pairs:
            if drafter.costs is None or not track.is_on(self._controller.tokens_out):
                continue
            own = drafter.costs
            pass_s = (own.ms(len(contenders)) if own.is_known else own.usual_share * costs.ms(len(contenders))) / 1e3
            reading_s = own.reading_ms(pass_s * 1e3) / 1e3

            def has_time(guess: Guess, pass_s: float = pass_s) -> bool:
                """Whether another pass of the draft model is done before the step is."""
                return is_wanted() and self._clock() + pass_s <= ends_s

            wishes: list[Wish] = []
            for contender in contenders:
                sequence = contender.sequence
                num_taken = len(sequence.draft)
                room = min(context_size, drafter.context_size or context_size) - len(sequence.ids) - num_taken
                most = min(self._draft_max + 1, contender.tokens_wanted - num_taken, room)
                if self._clock() + drafter.num_unread(sequence, None) * reading_s > ends_s:
                    continue
                if most > 0 and not contender.end_ids.intersection(sequence.draft):
                    wishes.append(
                        Wish(
                            sequence=sequence,
                            most=most,
                            choose=contender.guess,
                            end_ids=contender.end_ids,
                            wants_more=has_time,
                        )
                    )
            try:
                for wish, guess in zip(wishes, drafter.guess_ahead(wishes, run), strict=True):
                    self._tally(wish.sequence).draft_ms += guess.draft_ms
            except (EngineError, OSError, RuntimeError) as error:
                track.fail(f"{track.name} failed: {error}")

    def waited(self, contenders: Sequence[Contender], elapsed_ms: float) -> None:
        """The model waited so long for guesses that were not finished in time."""
        for contender in contenders:
            self._tally(contender.sequence).wait_ms += elapsed_ms / len(contenders)

    def learn(self, results: Sequence[Verified], *, elapsed_ms: float, is_plain_decoding: bool) -> None:
        """A step was run.  is_plain_decoding: every token of it was a sequence's last one or of its draft."""
        controller = self._controller
        num_checked = sum(result.num_checked for result in results)
        num_sequences = len(results)
        if is_plain_decoding and num_checked:
            controller.costs.record(num_sequences + num_checked, elapsed_ms)
        elif is_plain_decoding:
            controller.costs.record_plain(num_sequences, elapsed_ms)
        drafting_ms = sum(
            self._drafts[result.sequence].guess.usual_ms for result in results if result.sequence in self._drafts
        )
        speculating = [result for result in results if result.speculates]
        if speculating:
            tokens = sum(len(result.token_ids) for result in speculating)
            controller.count(tokens=tokens, elapsed_ms=elapsed_ms + drafting_ms)
        for result in results:
            tally = self._tally(result.sequence)
            tally.num_given += len(result.token_ids)
            draft = self._drafts.pop(result.sequence, None)
            is_wanted = draft is None or draft.track.costs is not None
            if result.speculates:
                tally.need.count(len(result.token_ids), is_wanted=is_wanted)
            if draft is not None:
                tally.draft_ms += draft.guess.draft_ms
            if draft is None or not result.num_checked or not result.token_ids:
                tally.plain_tokens += len(result.token_ids)
                continue
            tally.used.add(draft.track)
            _count(tally, draft.guess, result)
            tally.verify_ms += elapsed_ms
            if is_plain_decoding:
                self._judge(draft, result, num_sequences, num_sequences + num_checked)

    def report(self, sequence: TokenSequence) -> SpeculationReport:
        """What guessing did for a sequence."""
        tally = self._tally(sequence)
        tracks = [track for _, track in self._pairs]
        # One that is not stopped, but finds nothing to guess, does not make up for one that is.
        is_any_stopped = any(track.is_paused for track in tracks)
        is_on = any(not track.is_paused and (track in tally.used or not is_any_stopped) for track in tracks)
        reasons = [*self._notes, *(track.reason for track in tracks if track.is_paused and track.reason)]
        accepted = sum(tally.accepted)
        return SpeculationReport(
            drafted=sum(tally.drafted),
            accepted=accepted,
            drafted_by_position=tuple(tally.drafted),
            accepted_by_position=tuple(tally.accepted),
            acceptance_by_position=tuple(
                kept / tried for kept, tried in zip(tally.accepted, tally.drafted, strict=True)
            ),
            rounds=tally.rounds,
            plain_tokens=tally.plain_tokens,
            tokens_per_round=(accepted + tally.rounds) / tally.rounds if tally.rounds else None,
            draft_ms=tally.draft_ms,
            verify_ms=tally.verify_ms,
            wait_ms=tally.wait_ms,
            state="on" if is_on else "off",
            reason="; ".join(reasons) or None,
        )

    def forget(self, sequence: TokenSequence) -> None:
        """The sequence has ended."""
        self._drafts.pop(sequence, None)
        self._tallies.pop(sequence, None)
        for drafter, _ in self._pairs:
            drafter.forget(sequence)

    def close(self) -> None:
        """Gives the drafters' devices back."""
        for drafter, _ in self._pairs:
            drafter.close()

    def _tally(self, sequence: TokenSequence) -> _Tally:
        tally = self._tallies.get(sequence)
        if tally is None:
            tally = self._tallies[sequence] = _Tally(need=Need(self._need))
        return tally

    def _ask(
        self,
        drafter: Drafter,
        track: Track,
        contenders: Sequence[Contender],
        drafted: dict[TokenSequence, _Draft],
        run: Run,
        round: Round,
        context_size: int,
    ) -> None:
        wishes: list[Wish] = []
        limits: list[Limits] = []
        for contender in contenders:
            sequence = contender.sequence
            room = min(context_size, drafter.context_size or context_size) - len(sequence.ids)
            most = min(self._draft_max, contender.tokens_wanted - 1, room)
            if most < self._controller.draft_min:
                continue
            most = min(most, max(round.room(), self._controller.draft_min))
            reading: Reading | None = _ALL
            if drafter.costs is not None:
                promised = self._promise(track, drafted.get(sequence), round, most)
                reading = self._reading(drafter, drafter.costs, track, contender, round, promised)
            if reading is None:
                continue
            if sequence in drafted:
                round.num_tokens -= len(drafted[sequence].guess.token_ids)
            limits.append(round.limits(track, most))
            wishes.append(
                Wish(
                    sequence=sequence,
                    most=most,
                    choose=contender.guess,
                    end_ids=contender.end_ids,
                    wants_more=limits[-1].wants_more,
                    window=reading.window,
                )
            )
        if not wishes:
            return
        for wish, limit, guess in zip(wishes, limits, drafter.propose(wishes, run), strict=True):
            sequence = wish.sequence
            limit.trim(guess)
            if guess.token_ids:
                drafted[sequence] = _Draft(track=track, guess=guess)
                continue
            if sequence in drafted:
                round.num_tokens += len(drafted[sequence].guess.token_ids)
            self._tally(sequence).draft_ms += guess.draft_ms
            if guess.usual_ms:
                self._charge(track, round, guess)

    def _charge(self, track: Track, round: Round, guess: Guess) -> None:
        """Guessing took time and brought nothing worth checking."""
        track.judge(
            tokens=1,
            round_ms=round.time_ms(0, guess.usual_ms),
            plain_ms=round.plain_ms,
            tokens_out=self._controller.tokens_out,
        )

    def _promise(self, track: Track, rival: _Draft | None, round: Round, most: int) -> float:
        """Tokens a millisecond with a model that takes time to guess; 0: no more than with what is there."""
        promised = round.promise(track, most)
        if rival is not None and promised <= round.promise_of(rival.guess, rival.track):
            return 0.0
        is_worth_it = track.is_on_trial or promised > track.least_promise / round.plain_ms
        track.expect(is_gain=is_worth_it, plain_ms=round.plain_ms, tokens_out=self._controller.tokens_out)
        return promised if is_worth_it else 0.0

    def _reading(
        self, drafter: Drafter, costs: PassCosts, track: Track, contender: Contender, round: Round, promised: float
    ) -> Reading | None:
        """What such a model should read before it guesses; None: it is not worth it."""
        if not promised:
            return None
        sequence, tally = contender.sequence, self._tally(contender.sequence)
        if track.is_on_trial:
            promised = max(promised, HOPE / round.plain_ms)
        prospect = Prospect(
            share=tally.need.share if self._has_text else 1.0,
            saved_ms=round.plain_ms - 1 / promised,
            read_ms=costs.reading_ms(round.guess_ms(track)) * round.num_sequences,
            num_given=tally.num_given,
            num_wanted=contender.tokens_wanted,
            is_open=track.is_on_trial and self._has_text,
        )
        return choose(len(sequence.ids), lambda window: drafter.num_unread(sequence, window), prospect)

    def _judge(self, draft: _Draft, result: Verified, num_sequences: int, num_tokens: int) -> None:
        """Tells the drafter's track how many tokens were right and what they took, by the usual times."""
        guess = draft.guess
        draft.track.note_ready(min(guess.num_ready, len(guess.token_ids)), len(guess.token_ids))
        num_right = _num_right(guess, result)
        for index in range(min(num_right + 1, result.num_checked, len(result.token_ids))):
            draft.track.acceptance.record(guess.grades[index], is_right=index < num_right)
        costs = self._controller.costs
        plain_ms = costs.ms(num_sequences)
        # What the drafts of all sequences add to the pass is shared out by their lengths.
        share = result.num_checked / (num_tokens - num_sequences)
        added_ms = costs.added_ms(num_sequences, num_tokens - num_sequences) * share
        draft.track.judge(
            tokens=len(result.token_ids),
            round_ms=plain_ms + (guess.usual_ms + added_ms) * num_sequences,
            plain_ms=plain_ms,
            tokens_out=self._controller.tokens_out,
        )


def _num_right(guess: Guess, result: Verified) -> int:
    """How many tokens of a draft are those that were chosen."""
    num_right = 0
    for guessed, chosen in zip(guess.token_ids[: result.num_checked], result.token_ids, strict=False):
        if guessed != chosen:
            break
        num_right += 1
    return num_right


def _count(tally: _Tally, guess: Guess, result: Verified) -> None:
    """All but the last token of a round were guessed; the last one is the model's own, guessed or not."""
    num_kept = len(result.token_ids) - 1
    tally.rounds += 1
    tally.drafted.extend([0] * (result.num_checked - len(tally.drafted)))
    tally.accepted.extend([0] * (result.num_checked - len(tally.accepted)))
    for index in range(result.num_checked):
        tally.drafted[index] += 1
        tally.accepted[index] += index < num_kept
