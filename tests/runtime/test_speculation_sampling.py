"""Sampling with guesses keeps the model's distribution: chi-square over 20,000 draws, against what the chain gives."""

from __future__ import annotations

import numpy as np
import pytest
from drafts import ChangedBinding, Pair

from runtime.devices.binding import Batch
from runtime.sampling import Sampler, SamplingOptions
from runtime.speculation import track

NUM_DRAWS = 20_000
NUM_TOKENS = 24
# Chi-square, one in a thousand, for 1 to 23 degrees of freedom.
CRITICAL = (10.8, 13.8, 16.3, 18.5, 20.5, 22.5, 24.3, 26.1, 27.9, 29.6, 31.3, 32.9, 34.5, 36.1, 37.7, 39.3, 40.8, 42.3,
            43.8, 45.3, 46.8, 48.3, 49.7)  # fmt: skip

_RANDOM = np.random.default_rng(5)
MODEL_ROW = (_RANDOM.standard_normal(NUM_TOKENS)).astype(np.float32)
DRAFT_ROW = (MODEL_ROW + _RANDOM.standard_normal(NUM_TOKENS) * 0.7).astype(np.float32)


class Steady(ChangedBinding):
    """Gives the same row after every text."""

    row = MODEL_ROW

    def run(self, batch: Batch) -> np.ndarray:
        self.num_runs += 1
        self.clock.now_s += self.cost(len(batch.token_ids)) / 1e3
        rows = self._logits[: len(batch.outputs)]
        rows[:] = -np.inf
        rows[:, :NUM_TOKENS] = self.row
        return rows


class SteadyDraft(Steady):
    """Gives another one."""

    row = DRAFT_ROW


def chances(row: np.ndarray, sampling: SamplingOptions) -> np.ndarray:
    """float64 [NUM_TOKENS]: what the whole chain makes of a row."""
    distribution = Sampler(sampling, seed=0).distribution(row.copy(), ())
    shares = np.zeros(NUM_TOKENS)
    shares[distribution.candidates.ids] = distribution.weights / distribution.weights.sum()
    return shares


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5])
def test_draws_with_guesses_follow_the_models_distribution(temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(track, "TRIAL_ROUNDS", 10**9)
    monkeypatch.setattr(track, "LOSS_TOKENS", 1e9)
    sampling = SamplingOptions(temperature=temperature, top_k=16, top_p=0.92, min_p=0.01, seed=11)
    expected, guessed = chances(MODEL_ROW, sampling), chances(DRAFT_ROW, sampling)
    with Pair(
        target=Steady, draft=SteadyDraft, draft_max=2, draft_min=2, context_size=NUM_DRAWS + 64, max_batch_tokens=64
    ) as pair:
        result = pair.ask([1], max_tokens=NUM_DRAWS, sampling=sampling).result
    counts = np.bincount(result.ids, minlength=NUM_TOKENS)
    possible = expected > 0
    assert counts[~possible].sum() == 0
    wanted = NUM_DRAWS * expected[possible]
    statistic = float(((counts[possible] - wanted) ** 2 / wanted).sum())
    assert statistic < CRITICAL[int(possible.sum()) - 2]
    # The two distributions differ, and guesses are right nearly as often as they can be at all.
    overlap = float(np.minimum(expected, guessed).sum())
    assert 0.3 < overlap < 0.95
    report = result.speculation
    assert report is not None and report.rounds > NUM_DRAWS / 5
    assert overlap / (2 - overlap) - 0.02 < report.acceptance_by_position[0] < overlap + 0.02
