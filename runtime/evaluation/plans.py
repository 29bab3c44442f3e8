"""What is to be compared: the text, its windows, the prompts, and every way in which the model is loaded.

Owns defaults, ranges and the reference's options.  Does not know how anything is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from models.chat_template import Message
from runtime.errors import OptionError
from runtime.options import EngineOptions
from runtime.validation import check_integer

DEFAULT_WINDOW = 1024
DEFAULT_ANSWER_TOKENS = 128
PROMPT_CONTEXT_SIZE = 2048
MAX_WINDOW = 2**24
ROWS_AT_ONCE = 128

AskedPrompt = str | Sequence[Message]


@dataclass(frozen=True, kw_only=True)
class EvaluationPlan:
    """What is measured.  Refuses values that make no sense with OptionError.

    text: None: only answers are compared.  window: tokens; None: 1024, or what the model was trained for if that is
    less.  stride: tokens from one window to the next; None: half a window.  most_tokens: of the text; None: all.
    cache_types_k, cache_types_v, activations: every combination is a row.  load: everything else about loading.
    prompts: for which greedy answers of answer_tokens tokens are compared; raw: without chat template.
    """

    text: str | None = None
    window: int | None = None
    stride: int | None = None
    most_tokens: int | None = None
    cache_types_k: tuple[str, ...] = ("f16",)
    cache_types_v: tuple[str, ...] = ("f16",)
    activations: tuple[str, ...] = ("balanced",)
    load: EngineOptions = EngineOptions()
    prompts: tuple[AskedPrompt, ...] = ()
    answer_tokens: int = DEFAULT_ANSWER_TOKENS
    raw: bool = False

    def __post_init__(self) -> None:
        if self.window is not None:
            check_integer("window", self.window, low=2, high=MAX_WINDOW, flag="--window")
        if self.stride is not None:
            check_integer("stride", self.stride, low=1, high=MAX_WINDOW, flag="--stride")
        if self.most_tokens is not None:
            check_integer("most_tokens", self.most_tokens, low=2, high=2**31 - 1, flag="--tokens")
        check_integer("answer_tokens", self.answer_tokens, low=1, high=MAX_WINDOW, flag="--predict")
        self.loads()  # refuses types that there aren't
        self.sizes(MAX_WINDOW)  # and a stride longer than any window that it may have

    @property
    def has_variants(self) -> bool:
        """Whether the model is loaded in several ways."""
        return len(self.loads()) > 1

    def loads(self) -> tuple[EngineOptions, ...]:
        """Every way in which the model is loaded, in the order of the lists."""
        return tuple(
            replace(self.load, activations=activations, cache_type_k=k, cache_type_v=v)  # type: ignore[arg-type]
            for activations, k, v in product(self.activations, self.cache_types_k, self.cache_types_v)
        )

    def exact_load(self, *, is_other: bool) -> EngineOptions:
        """How the reference is loaded: nothing is rounded that need not be.  is_other: it was named, so that the
        model's adapters are none of its.
        """
        adapters = () if is_other else self.load.adapters
        return replace(self.load, activations="exact", cache_type_k="f16", cache_type_v="f16", adapters=adapters)

    def sizes(self, trained_context_size: int) -> tuple[int, int]:
        """(window, stride) in tokens for a model.  Raises OptionError for a stride longer than the window."""
        window = self.window or max(2, min(DEFAULT_WINDOW, trained_context_size - 1))
        stride = self.stride or window // 2
        if stride > window:
            expected = f"at most the window, {window} tokens: what lies between two windows would count nowhere"
            raise OptionError(option="stride", flag="--stride", value=stride, expected=expected)
        return window, stride

    def sized(self, options: EngineOptions, window: int) -> EngineOptions:
        """Options with room for a window and a start token, and for prompts if there are any."""
        room = max(self.load.context_size or PROMPT_CONTEXT_SIZE, self.answer_tokens + 1) if self.prompts else 0
        context_size = max(window + 1 if self.text is not None else 0, room)
        return replace(options, context_size=context_size, max_outputs=ROWS_AT_ONCE, max_sequences=1)
