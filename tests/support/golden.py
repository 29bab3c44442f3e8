"""Reference answers of the real models, and how far a device is from them.

Owns tests/data/golden: next-token distributions of the exact function (float32 on the dequantised weights) and greedy
continuations with the gap of the best two tokens.  Does not know how logits are made: it is given a function.

A file's name is a catalog name.  NAME.exact.npz: `top_ids` [T, 64], `top_steps` [T, 64] (running sums are minus the log
probabilities in millionths), `nll` in millionths, of all prompts one after another.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
# Token ids of one prompt -> logits at each of its positions, in row tiles [any number, vocab_size], in order.
LogitsFunction = Callable[[Sequence[int]], Iterable[Array]]

FOLDER = Path(__file__).resolve().parents[1] / "data" / "golden"
# Rounding activations to 8 bits moves log probabilities by up to 0.2: a smaller gap can turn, and proves nothing.
CLEAR_GAP = 0.5


@dataclass(frozen=True, kw_only=True)
class ExactPrompt:
    """One text and what the exact function thinks of it.

    top_ids [T, 64] int32 and top_logprobs [T, 64] float64: the best next tokens at each position; nll [T - 1]: minus
    the log probability of the token that does follow.
    """

    text: str
    ids: tuple[int, ...]
    top_ids: Array
    top_logprobs: Array
    nll: Array


@dataclass(frozen=True, kw_only=True)
class GreedyPrompt:
    """One prompt, its greedy continuation, and at each output position the gap of the two best logits."""

    text: str
    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    gaps: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """How far a device is from the exact function.

    KL divergences in nats.  mean, 99th percentile, maximum and top-1 agreement are over all positions but each
    prompt's first, which first_kls holds; the perplexities are over all positions whose next token is known.
    """

    name: str
    num_positions: int
    mean_kl: float
    p99_kl: float
    max_kl: float
    first_kls: tuple[float, ...]
    top1_agreement: float
    perplexity: float
    exact_perplexity: float

    @property
    def mean_first_kl(self) -> float:
        return float(np.mean(self.first_kls))

    @property
    def perplexity_error(self) -> float:
        """Relative: 0.005 is half a percent too high."""
        return self.perplexity / self.exact_perplexity - 1.0

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.num_positions} positions, KL mean {self.mean_kl:.3g} p99 {self.p99_kl:.3g}"
            f" max {self.max_kl:.3g}, first positions mean {self.mean_first_kl:.3g} max {max(self.first_kls):.3g},"
            f" top-1 {self.top1_agreement:.4f}, perplexity {self.perplexity:.4f} for {self.exact_perplexity:.4f}"
            f" ({self.perplexity_error:+.3%})"
        )


@dataclass(frozen=True, kw_only=True)
class GreedyReport:
    """Teacher-forced agreement where the gap is clear.  misses: (prompt, output position, expected id, found id)."""

    name: str
    num_checked: int
    misses: tuple[tuple[int, int, int, int], ...]


def load_exact(name: str) -> tuple[ExactPrompt, ...]:
    """The prompts of NAME.exact.npz."""
    with np.load(FOLDER / f"{name}.exact.npz") as data:
        ends = np.cumsum(data["lengths"])
        ids, top_ids = data["ids"], data["top_ids"]
        logprobs = -np.cumsum(data["top_steps"].astype(np.int64), axis=1) / 1e6
        nll_ends = ends - np.arange(1, len(ends) + 1)
        nll = data["nll"] / 1e6
        return tuple(
            ExactPrompt(
                text=str(text),
                ids=tuple(ids[start:end].tolist()),
                top_ids=top_ids[start:end],
                top_logprobs=logprobs[start:end],
                nll=nll[nll_end - (end - start - 1) : nll_end],
            )
            for text, start, end, nll_end in zip(
                data["texts"], [0, *ends[:-1].tolist()], ends.tolist(), nll_ends.tolist(), strict=True
            )
        )


def load_greedy(name: str) -> tuple[GreedyPrompt, ...]:
    """The prompts of NAME.greedy.npz."""
    with np.load(FOLDER / f"{name}.greedy.npz") as data:
        outputs = np.cumsum(data["output_lengths"])[:-1]
        prompts = np.split(data["prompt_ids"], np.cumsum(data["prompt_lengths"])[:-1])
        return tuple(
            GreedyPrompt(
                text=str(text),
                prompt_ids=tuple(prompt.tolist()),
                output_ids=tuple(output.tolist()),
                gaps=tuple(gaps.tolist()),
            )
            for text, prompt, output, gaps in zip(
                data["texts"],
                prompts,
                np.split(data["output_ids"], outputs),
                np.split(data["gaps"], outputs),
                strict=True,
            )
        )


def load_text() -> str:
    """A public-domain English text of 7,000 characters; the last prompt of every exact file is its beginning."""
    return gzip.decompress((FOLDER / "text.txt.gz").read_bytes()).decode()


def log_softmax(logits: Array) -> Array:
    """In float64, over the last axis."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


def divergences(top_ids: Array, top_logprobs: Array, logprobs: Array) -> Array:
    """KL(exact || found) a row: the listed tokens, and all others as one more outcome.  logprobs [n, vocab_size]."""
    found = np.take_along_axis(logprobs, top_ids.astype(np.int64), axis=1)
    p = np.exp(top_logprobs)
    rest_p = np.clip(1.0 - p.sum(axis=1), 1e-12, None)
    rest_q = np.clip(1.0 - np.exp(found).sum(axis=1), 1e-12, None)
    return (p * (top_logprobs - found)).sum(axis=1) + rest_p * (np.log(rest_p) - np.log(rest_q))


def evaluate(logits_fn: LogitsFunction, name: str, *, prompts: Sequence[int] | None = None) -> Report:
    """Compares the logits of a device with the exact ones of a model, on all its prompts or on those numbered."""
    exact = load_exact(name)
    chosen = exact if prompts is None else [exact[index] for index in prompts]
    first_kls: list[float] = []
    kls: list[float] = []
    nll: list[float] = []
    num_agreeing = 0
    for prompt in chosen:
        ids = np.asarray(prompt.ids)
        for start, tile in _tiles(logits_fn(prompt.ids), len(ids)):
            positions = np.arange(start, start + len(tile))
            logprobs = log_softmax(tile)
            tile_kls = divergences(prompt.top_ids[positions], prompt.top_logprobs[positions], logprobs)
            agreeing = tile.argmax(axis=1) == prompt.top_ids[positions, 0]
            is_first = positions == 0
            first_kls += tile_kls[is_first].tolist()
            kls += tile_kls[~is_first].tolist()
            num_agreeing += int(agreeing[~is_first].sum())
            followed = positions[positions + 1 < len(ids)]
            nll += (-logprobs[followed - start, ids[followed + 1]]).tolist()
    return Report(
        name=name,
        num_positions=len(kls),
        mean_kl=float(np.mean(kls)),
        p99_kl=float(np.percentile(kls, 99)),
        max_kl=float(np.max(kls)),
        first_kls=tuple(first_kls),
        top1_agreement=num_agreeing / len(kls),
        perplexity=float(np.exp(np.mean(nll))),
        exact_perplexity=float(np.exp(np.mean(np.concatenate([prompt.nll for prompt in chosen])))),
    )


def evaluate_greedy(logits_fn: LogitsFunction, name: str, *, prompts: Sequence[int] | None = None) -> GreedyReport:
    """Feeds prompt and output ids; where the gap is clear, the best id must be the listed one."""
    greedy = load_greedy(name)
    misses: list[tuple[int, int, int, int]] = []
    num_checked = 0
    for index in range(len(greedy)) if prompts is None else prompts:
        prompt = greedy[index]
        fed = prompt.prompt_ids + prompt.output_ids[:-1]
        best = np.concatenate([tile.argmax(axis=1) for _, tile in _tiles(logits_fn(fed), len(fed))])
        found = best[len(prompt.prompt_ids) - 1 :]
        for position, (expected, gap) in enumerate(zip(prompt.output_ids, prompt.gaps, strict=True)):
            if gap >= CLEAR_GAP:
                num_checked += 1
                if found[position] != expected:
                    misses.append((index, position, expected, int(found[position])))
    return GreedyReport(name=name, num_checked=num_checked, misses=tuple(misses))


def _tiles(tiles: Iterable[Array], length: int) -> Iterator[tuple[int, Array]]:
    """Each tile with the position of its first row; there must be `length` rows in all."""
    start = 0
    for tile in tiles:
        yield start, tile
        start += len(tile)
    if start != length:
        raise ValueError(f"logits of {start} positions came for {length} tokens")
