"""The stages of a sampler: each looks at the candidates that the one before it left.

Owns what each stage does, and which are in force.  Does not know sequences, masks or where random numbers come from.
No stage leaves nothing: the best candidate, or in XTC's case another, always stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from runtime import candidates as select
from runtime import repetition
from runtime.candidates import Candidates, RowPart
from runtime.sampling_options import DEFAULT_CHAIN, GREEDY_TEMPERATURE, SamplingOptions

_CHANGES = ("penalties", "dry", "temperature")
"""Stages that change logits and drop nothing: mirostat keeps these."""


@dataclass(kw_only=True, slots=True)
class Draft:
    """A choice in the making.

    row: float32, one a token; part: of the tokens that it holds, None: all of them.  kept: None while it is the whole
    row that is meant.  chance(n): the n-th random number of this position, in [0, 1).
    """

    row: np.ndarray
    part: RowPart | None
    kept: Candidates | None
    history: Sequence[int]
    options: SamplingOptions
    chance: Callable[[int], float]
    token_bytes: repetition.TokenBytes

    def candidates(self) -> Candidates:
        """What is left, best first."""
        if self.kept is None:
            self.keep(select.above(self.row, math.inf))
        assert self.kept is not None
        return self.kept

    def keep(self, found: Candidates) -> None:
        """Leaves those that were found in the row, and are possible."""
        if self.part is not None:
            found = Candidates(ids=self.part.ids[found.ids], logits=found.logits, is_sorted=found.is_sorted)
        self.kept = _possible(found)


def run_stages(names: Sequence[str], draft: Draft) -> Candidates:
    """What the stages leave, best first; logits as they changed them."""
    for name in names:
        run_stage(name, draft)
    if draft.kept is None:  # nothing was dropped: no need to sort
        draft.keep(select.all_of(draft.row))
    assert draft.kept is not None
    return draft.kept


def run_stage(name: str, draft: Draft) -> None:
    """One of them."""
    _STAGES[name](draft)


def stages_in_force(options: SamplingOptions) -> tuple[str, ...]:
    """The names of the stages that do something, in order."""
    if options.is_greedy:
        return tuple(name for name in options.samplers if name in ("penalties", "dry") and _is_active(name, options))
    names = [name for name in options.samplers if _is_active(name, options)]
    if options.mirostat:
        names = [name for name in names if name in _CHANGES]
    return tuple(names)


def describe_chain(options: SamplingOptions) -> str:
    """The chain in force, for people: `top_k 40, top_p 0.95, temperature 0.8, draw`."""
    words = []
    if options.logit_bias:
        words.append(f"logit_bias of {len(options.logit_bias)} tokens")
    if options.banned_strings:
        words.append(f"banned_strings {', '.join(map(ascii, options.banned_strings))}")
    words += [_described(name, options) for name in stages_in_force(options)]
    if options.is_greedy:
        words.append("best token")
    elif options.mirostat:
        words.append(f"mirostat 2 (entropy {options.mirostat_tau:g}, rate {options.mirostat_eta:g})")
    else:
        words.append("draw")
    return ", ".join(words)


def keep_typical(candidates: Candidates, typical_p: float) -> Candidates:
    """The candidates whose surprise is nearest to the expected one, until they reach typical_p.

    Meister, Pimentel, Wiher, Cotterell, "Locally typical sampling", 2022.
    """
    probabilities, surprises = _probabilities(candidates)
    entropy = float((probabilities * surprises).sum())
    order = np.argsort(np.abs(surprises - entropy), kind="stable")
    sums = np.cumsum(probabilities[order])
    count = min(int(np.searchsorted(sums, typical_p * sums[-1], side="left")) + 1, len(order))
    return _chosen(candidates, np.sort(order[:count]))


def keep_top_n_sigma(candidates: Candidates, num_sigmas: float, spread: float) -> Candidates:
    """The candidates at most num_sigmas standard deviations of the logits below the best.

    Tang et al., "Top-n-sigma: not all logits are you need", 2024.
    """
    return _chosen(candidates, np.flatnonzero(candidates.logits >= candidates.logits[0] - num_sigmas * spread))


def exclude_top(candidates: Candidates, threshold: float) -> Candidates:
    """Without the candidates of at least that probability, but for the least probable of them.

    "Exclude top choices" (p-e-w, text-generation-webui, 2024).
    """
    probabilities, _ = _probabilities(candidates)
    num_likely = int(np.count_nonzero(probabilities >= threshold))
    return candidates if num_likely < 2 else _chosen(candidates, np.arange(num_likely - 1, len(candidates.ids)))


def dynamic_temperature(candidates: Candidates, options: SamplingOptions) -> float:
    """The temperature for these candidates: low where the model is sure, high where it is not.

    "Dynamic temperature" (kalomaze, 2023): (entropy / its maximum) ** exponent, between temperature - range and
    temperature + range.
    """
    low = max(0.0, options.temperature - options.dynamic_range)
    high = options.temperature + options.dynamic_range
    most = math.log(len(candidates.ids))
    if most == 0:
        return max(low, GREEDY_TEMPERATURE)
    probabilities, surprises = _probabilities(candidates)
    share = min(1.0, float((probabilities * surprises).sum()) / most)
    return max(low + (high - low) * share**options.dynamic_exponent, GREEDY_TEMPERATURE)


def keep_surprising(candidates: Candidates, most_bits: float) -> Candidates:
    """The candidates whose surprise is at most that many bits, or the best alone: the truncation of mirostat 2.

    Basu, Ramachandran, Keskar, Varshney, "Mirostat", 2021.
    """
    peak = candidates.logits[0] if candidates.is_sorted else candidates.logits.max()
    shifted = candidates.logits - peak
    least = -most_bits * math.log(2) + math.log(float(np.exp(shifted).sum()))
    # Nothing needs to be sorted for it: that would take longer than all the rest.
    return _chosen(candidates, np.flatnonzero(shifted >= min(least, 0.0)))


def _penalties(draft: Draft) -> None:
    ids, counts = repetition.seen(draft.history, draft.options.repeat_window)
    _change(draft, ids, lambda values, places: repetition.penalized(values, counts[places], draft.options))


def _dry(draft: Draft) -> None:
    ids, amounts = repetition.phrase_penalties(draft.history, draft.options, draft.token_bytes)
    _change(draft, ids, lambda values, places: values - amounts[places])


def _change(draft: Draft, ids: np.ndarray, changed: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> None:
    """Gives tokens new logits: changed(their logits, their places in ids).  ids: ascending."""
    if not len(ids):
        return
    if draft.kept is None:
        places, known = (ids, np.arange(len(ids))) if draft.part is None else draft.part.places(ids)
        draft.row[places] = changed(draft.row[places], known)
        return
    kept = draft.kept
    places = np.minimum(np.searchsorted(ids, kept.ids), len(ids) - 1)
    concerned = np.flatnonzero(ids[places] == kept.ids)
    logits = kept.logits.copy()
    logits[concerned] = changed(logits[concerned], places[concerned])
    order = np.lexsort((kept.ids, -logits))
    draft.kept = Candidates(ids=kept.ids[order], logits=logits[order], is_sorted=True)


def _top_n_sigma(draft: Draft) -> None:
    sigmas = draft.options.top_n_sigma
    if draft.kept is None:
        values = draft.row[np.isfinite(draft.row)].astype(np.float64)
        spread = float(values.std()) if len(values) else 0.0
        draft.keep(select.above(draft.row, sigmas * spread))
    else:
        draft.kept = keep_top_n_sigma(draft.kept, sigmas, float(draft.kept.logits.std()))


def _top_k(draft: Draft) -> None:
    count = draft.options.top_k
    if draft.kept is not None:
        draft.kept = draft.kept.first(count)
    elif draft.part is not None or count < draft.row.shape[0]:
        draft.keep(select.largest(draft.row, count))


def _typical_p(draft: Draft) -> None:
    draft.kept = keep_typical(draft.candidates(), draft.options.typical_p)


def _top_p(draft: Draft) -> None:
    top_p = draft.options.top_p
    if draft.kept is None:
        draft.keep(select.nucleus(draft.row, top_p))
    else:
        draft.kept = select.keep_top_p(draft.kept, top_p)


def _min_p(draft: Draft) -> None:
    min_p = draft.options.min_p
    if draft.kept is None:
        draft.keep(select.above(draft.row, -math.log(min_p)))
    else:
        draft.kept = select.keep_min_p(draft.kept, min_p)


def _xtc(draft: Draft) -> None:
    if draft.chance(1) < draft.options.xtc_probability:
        draft.kept = exclude_top(draft.candidates(), draft.options.xtc_threshold)


def _temperature(draft: Draft) -> None:
    options = draft.options
    if draft.kept is None and not options.dynamic_range:
        draft.keep(select.all_of(draft.row))  # unsorted, and so it may stay
    kept = draft.candidates()
    temperature = dynamic_temperature(kept, options) if options.dynamic_range else options.temperature
    peak = kept.logits[0] if kept.is_sorted else kept.logits.max()
    draft.kept = Candidates(ids=kept.ids, logits=(kept.logits - peak) / temperature, is_sorted=kept.is_sorted)
    if not kept.is_sorted and options.samplers[-1] != "temperature":
        order = np.argsort(-draft.kept.logits, kind="stable")
        draft.kept = Candidates(ids=kept.ids[order], logits=draft.kept.logits[order], is_sorted=True)


_STAGES: Mapping[str, Callable[[Draft], None]] = {
    "penalties": _penalties,
    "dry": _dry,
    "top_n_sigma": _top_n_sigma,
    "top_k": _top_k,
    "typical_p": _typical_p,
    "top_p": _top_p,
    "min_p": _min_p,
    "xtc": _xtc,
    "temperature": _temperature,
}
assert tuple(_STAGES) == DEFAULT_CHAIN


def _is_active(name: str, options: SamplingOptions) -> bool:
    match name:
        case "penalties":
            return options.has_penalties
        case "dry":
            return options.dry_multiplier > 0 and options.dry_window != 0
        case "top_n_sigma":
            return options.top_n_sigma > 0
        case "top_k":
            return options.top_k > 0
        case "typical_p":
            return options.typical_p < 1
        case "top_p":
            return options.top_p < 1
        case "min_p":
            return options.min_p > 0
        case "xtc":
            # Of more than one half there are never two.
            return options.xtc_probability > 0 and options.xtc_threshold <= 0.5
        case _:
            return options.temperature != 1 or options.dynamic_range > 0


def _described(name: str, options: SamplingOptions) -> str:
    match name:
        case "penalties":
            return (
                f"penalties (repeat {options.repeat_penalty:g}, presence {options.presence_penalty:g}, "
                f"frequency {options.frequency_penalty:g}, last {options.repeat_window} tokens)"
            )
        case "dry":
            return f"dry {options.dry_multiplier:g} (base {options.dry_base:g}, from {options.dry_allowed_length} on)"
        case "xtc":
            return f"xtc {options.xtc_probability:g} (threshold {options.xtc_threshold:g})"
        case "temperature" if options.dynamic_range:
            low, high = options.temperature - options.dynamic_range, options.temperature + options.dynamic_range
            return f"temperature {max(0, low):g} to {high:g} (exponent {options.dynamic_exponent:g})"
        case _:
            return f"{name} {getattr(options, name):g}"


def _possible(candidates: Candidates) -> Candidates:
    """Without the tokens whose logit is -inf: a mask or a bias forbade them."""
    if candidates.is_sorted and candidates.logits[-1] > -math.inf:
        return candidates
    possible = np.flatnonzero(candidates.logits > -math.inf)
    return candidates if len(possible) == len(candidates.ids) else _chosen(candidates, possible)


def _chosen(candidates: Candidates, places: np.ndarray) -> Candidates:
    return Candidates(ids=candidates.ids[places], logits=candidates.logits[places], is_sorted=candidates.is_sorted)


def _probabilities(candidates: Candidates) -> tuple[np.ndarray, np.ndarray]:
    """(probabilities, surprises in nats) of candidates, best first; both float64 [n]."""
    shifted = candidates.logits - candidates.logits[0]
    surprises = math.log(float(np.exp(shifted).sum())) - shifted
    return np.exp(-surprises), surprises
