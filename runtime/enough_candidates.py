"""How many of the best tokens are enough to choose the next one, so that a device need not hand over whole rows.

Owns that decision.  Does not know where rows come from, nor the masks and logprobs that always need whole ones (those
are runtime/answer.py's business).  Whatever it says, the choice is the same as with the whole row.

Whole rows are needed

- where no top-k bounds the chain: the sums of top-p, typical-p, mirostat and a plain draw run over all tokens, and as
  many as there are may pass min-p;
- where something before top-k looks at all tokens (top-n-sigma, XTC, the other cuts, a temperature, whose division
  may make equal what was not) or may raise any (a positive bias, penalties that reward repetition);
- where it isn't known before how many tokens lose something (DRY).

What lowers n tokens before top-k and raises none needs n more: a token of the k best after it has fewer than k before
it, and before it was lowered at most n more.
"""

from __future__ import annotations

from runtime.sampler_stages import stages_in_force
from runtime.sampling_options import SamplingOptions


def enough_candidates(options: SamplingOptions) -> int | None:
    """So many, the best first and among equals the smaller id first; None: the whole row."""
    if any(bias > 0 for _, bias in options.logit_bias):
        return None
    num_lowered = len(options.logit_bias)
    for name in stages_in_force(options):
        if name == "penalties" and _only_lowers(options):
            num_lowered += options.repeat_window
        elif name == "top_k":
            return options.top_k + num_lowered
        else:
            return None
    return 1 + num_lowered if options.is_greedy else None


def _only_lowers(options: SamplingOptions) -> bool:
    return options.repeat_penalty >= 1 and options.presence_penalty >= 0 and options.frequency_penalty >= 0
