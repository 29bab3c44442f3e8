"""What a caller may choose about speculation, and what it is told afterwards.

Owns names, defaults and ranges.  Does not know how guesses are made or judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from runtime.errors import OptionError
from runtime.validation import check_choice, check_integer

SpeculationMode = Literal["off", "auto", "draft", "ngram"]
MODES = get_args(SpeculationMode)
DraftWeights = Literal["q4_0", "stored"]
DRAFT_WEIGHTS = get_args(DraftWeights)
MAX_DRAFT_TOKENS = 64


@dataclass(frozen=True, kw_only=True)
class SpeculationOptions:
    """How an engine guesses ahead.  Refuses values that make no sense with OptionError.

    mode: "draft" guesses with a small model, "ngram" from the text so far, "auto" with whatever is there; None: "auto"
    when there is a draft model, "off" otherwise.  draft_model: the small model's file.  draft_max: tokens guessed at
    most before they are checked; how many they are is measured.  draft_min: fewer are not worth checking.
    draft_weights: "q4_0" packs the small model's weights in 4.5 bits where they would take more, which is faster and
    changes guesses, never answers; "stored" keeps them as they are in the file.
    """

    mode: SpeculationMode | None = None
    draft_model: Path | None = None
    draft_max: int = 16
    draft_min: int = 0
    draft_weights: DraftWeights = "q4_0"

    def __post_init__(self) -> None:
        if self.mode is not None:
            check_choice("mode", self.mode, MODES, flag="--spec")
        check_choice("draft_weights", self.draft_weights, DRAFT_WEIGHTS, flag="--draft-weights")
        check_integer("draft_max", self.draft_max, low=1, high=MAX_DRAFT_TOKENS, flag="--draft-max")
        check_integer("draft_min", self.draft_min, low=0, high=self.draft_max, flag="--draft-min")

    def require_model(self) -> None:
        """Raises OptionError where a draft model is wanted and none was named."""
        if self.mode == "draft" and self.draft_model is None:
            expected = "a draft model beside it (--draft-model)"
            raise OptionError(option="mode", flag="--spec", value=self.mode, expected=expected)

    @property
    def uses_text(self) -> bool:
        """Whether guesses are made from the text so far."""
        return self._mode in ("auto", "ngram")

    @property
    def uses_draft_model(self) -> bool:
        """Whether a small model guesses."""
        return self._mode in ("auto", "draft") and self.draft_model is not None

    @property
    def is_off(self) -> bool:
        """Whether nothing is guessed."""
        return self._mode == "off"

    @property
    def _mode(self) -> SpeculationMode:
        if self.mode is not None:
            return self.mode
        return "auto" if self.draft_model is not None else "off"


@dataclass(frozen=True, kw_only=True)
class SpeculationReport:
    """What guessing did for one answer.

    Every round gives the drafted tokens that were kept and one token more, the model's own: tokens out = accepted +
    rounds + plain_tokens.  Index i of the tuples: the i-th token of a draft; acceptance_by_position: the share of
    those drafted there that was kept.  draft_ms: time of the draft model's passes; verify_ms: time of the model's
    passes that checked drafts; wait_ms: time in which the model waited for guesses.  state: whether it is guessing
    still; reason: why not, or what held it up.
    """

    drafted: int
    accepted: int
    drafted_by_position: tuple[int, ...]
    accepted_by_position: tuple[int, ...]
    acceptance_by_position: tuple[float, ...]
    rounds: int
    plain_tokens: int
    tokens_per_round: float | None
    draft_ms: float
    verify_ms: float
    wait_ms: float
    state: Literal["on", "off"]
    reason: str | None
