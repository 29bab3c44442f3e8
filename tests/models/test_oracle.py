"""The oracle itself: the exact answers of a real model, and the laws that its operations keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import golden
import numpy as np
import pytest
from gated_products import activate
from model_shapes import small_metadata, small_shapes
from oracle import ArrayWeights, FileWeights, Oracle, attend, normalize, rotate

from models.architectures import find_architecture
from models.description import load_description
from models.gguf_file import open_model_file
from models.hyperparameters import read_hyperparameters
from models.lowering import lower
from models.program import Operation, Rope
from models.rope import make_rope

IDS = [5, 9, 90, 3, 3, 41, 17, 60, 2, 77, 30]


def small_oracle(family: str, **overrides: object) -> Oracle:
    metadata = small_metadata(family, **overrides)
    shapes = small_shapes(metadata)
    random = np.random.default_rng(7)
    arrays = {name: random.normal(size=shape) / np.sqrt(shape[-1]) for name, shape in shapes.items()}
    numbers = read_hyperparameters(metadata)
    return Oracle(lower(find_architecture(family), numbers, shapes), ArrayWeights(arrays))


def test_it_reproduces_the_exact_function_on_a_real_model(model_path: Callable[[str], Path]) -> None:
    with open_model_file(model_path("smollm2-135m")) as file:
        oracle = Oracle(load_description(file).program, FileWeights(file), dtype=np.float32)
        chosen = [golden.load_exact("smollm2-135m")[index].ids for index in (0, 3)]
        logits = np.concatenate(list(oracle.logit_tiles(chosen)))
        rows = dict(zip(chosen, np.split(logits, [len(chosen[0])]), strict=True))
        report = golden.evaluate(lambda ids: [rows[tuple(ids)]], "smollm2-135m", prompts=[0, 3])
    assert report.mean_kl < 1e-7 and max(report.first_kls) < 1e-7
    assert report.top1_agreement == 1.0
    assert abs(report.perplexity_error) < 1e-4
    assert report.num_positions == 26


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3"])
def test_a_prompt_gives_the_same_whole_or_token_by_token(family: str) -> None:
    oracle = small_oracle(family, attention__sliding_window=4 if family == "gemma3" else None)
    whole = oracle.logits(IDS)
    oracle.reset()
    for position, token_id in enumerate(IDS):
        row = feed(oracle, [token_id], position)
        assert row == pytest.approx(whole[position : position + 1], abs=1e-12)


def feed(oracle: Oracle, ids: Sequence[int], position: int, slot: int = 0) -> np.ndarray:
    return oracle.run(
        token_ids=np.asarray(ids),
        positions=np.arange(position, position + len(ids)),
        slots=np.full(len(ids), slot),
        outputs=np.arange(len(ids)),
    )


def test_a_position_fed_again_replaces_what_came_after() -> None:
    oracle = small_oracle("llama")
    expected = oracle.logits([*IDS[:4], 8, 6])
    oracle.logits(IDS)
    assert feed(oracle, [8, 6], 4) == pytest.approx(expected[4:], abs=1e-12)


def test_sequences_in_one_batch_do_not_see_each_other() -> None:
    oracle = small_oracle("gemma3")
    first, second = oracle.logits(IDS), oracle.logits(IDS[::-1])
    oracle.reset()
    feed(oracle, IDS[:5], 0, slot=0)
    feed(oracle, IDS[::-1][:2], 0, slot=3)
    batch = oracle.run(
        token_ids=np.asarray([*IDS[::-1][2:], *IDS[5:]]),
        positions=np.asarray([*range(2, 11), *range(5, 11)]),
        slots=np.asarray([3] * 9 + [0] * 6),
        outputs=np.asarray([8, 14]),
    )
    assert batch == pytest.approx(np.stack([second[-1], first[-1]]), abs=1e-12)


def test_tiles_of_any_height_hold_the_same_rows() -> None:
    oracle = small_oracle("qwen2")
    whole = oracle.logits(IDS)
    tiles = list(oracle.logit_tiles([IDS], rows=4))
    assert [len(tile) for tile in tiles] == [4, 4, 3]
    assert np.concatenate(tiles) == pytest.approx(whole, abs=1e-12)


def test_a_watcher_sees_every_operation_once() -> None:
    oracle = small_oracle("llama")
    seen: list[Operation] = []

    def watch(operation: Operation, buffers: Mapping[str, np.ndarray]) -> None:
        seen.append(operation)
        assert all(np.isfinite(buffer).all() for buffer in buffers.values())

    oracle.watch = watch
    oracle.logits(IDS)
    assert seen == list(oracle.program.operations)


def test_a_norm_makes_the_root_mean_square_the_weight() -> None:
    x = np.array([[3.0, -4.0], [300.0, -400.0]])
    assert normalize(x, np.array([1.0, 2.0]), 0.0) == pytest.approx(
        np.array([[3.0, -8.0], [3.0, -8.0]]) / np.sqrt(12.5)
    )
    assert normalize(np.zeros((1, 2)), np.ones(2), 1e-6) == pytest.approx(np.zeros((1, 2)))


def test_activations_at_known_points() -> None:
    x = np.array([-1e4, -1.0, 0.0, 1.0, 1e4])
    assert activate(x, "silu") == pytest.approx([0.0, -0.2689414213699951, 0.0, 0.7310585786300049, 1e4])
    assert activate(x, "gelu_tanh") == pytest.approx([0.0, -0.15880800939172324, 0.0, 0.8411919906082768, 1e4])


@pytest.mark.parametrize("pairing", ["halves", "neighbours"])
def test_products_of_rotated_vectors_depend_on_the_distance_alone(pairing: str) -> None:
    rope = make_rope(dimensions=16, pairing="halves" if pairing == "halves" else "neighbours", base=100.0)
    q, k = np.random.default_rng(3).normal(size=(2, 1, 1, 16))

    def product(q_position: int, k_position: int) -> float:
        turned = (rotate(x, np.array([at]), rope) for x, at in ((q, q_position), (k, k_position)))
        return float(np.sum(np.prod(np.stack(list(turned)), axis=0)))

    assert product(7, 3) == pytest.approx(product(1007, 1003))
    assert product(7, 3) != pytest.approx(product(3, 7))
    assert product(9, 9) == pytest.approx(float((q * k).sum()))


def test_a_quarter_turn_by_either_pairing() -> None:
    x = np.array([[[1.0, 2.0, 3.0, 4.0, 9.0]]])
    quarter = (np.pi / 2, np.pi)
    halves = Rope(dimensions=4, pairing="halves", frequencies=quarter)
    neighbours = Rope(dimensions=4, pairing="neighbours", frequencies=quarter, magnitude=2.0)
    assert rotate(x, np.array([1]), halves)[0, 0] == pytest.approx([-3.0, -2.0, 1.0, -4.0, 9.0])
    assert rotate(x, np.array([1]), neighbours)[0, 0] == pytest.approx([-4.0, 2.0, -6.0, -8.0, 9.0])


def test_attention_sees_the_past_within_its_window() -> None:
    k = np.zeros((6, 1, 2))
    v = np.arange(6.0).repeat(2).reshape(6, 1, 2)
    q = np.ones((2, 4, 2))
    positions = np.array([2, 5])
    everything = attend(q, k, v, positions, scale=1.0, window=None)
    windowed = attend(q, k, v, positions, scale=1.0, window=3)
    assert everything[:, :, 0] == pytest.approx(np.array([[1.0] * 4, [2.5] * 4]))
    assert windowed[:, :, 0] == pytest.approx(np.array([[1.0] * 4, [4.0] * 4]))


def test_query_heads_share_kv_heads_in_order() -> None:
    k = np.zeros((1, 2, 2))
    v = np.array([[[1.0, 1.0], [5.0, 5.0]]])
    out = attend(np.ones((1, 4, 2)), k, v, np.array([0]), scale=1.0, window=None)
    assert out[0, :, 0].tolist() == [1.0, 1.0, 5.0, 5.0]


def test_attention_weighs_by_the_softmax_of_scaled_products() -> None:
    k = np.array([[[1000.0, 0.0]], [[1000.0 + np.log(3.0) / 0.5, 0.0]]])
    v = np.array([[[0.0, 4.0]], [[8.0, 4.0]]])
    out = attend(np.array([[[1.0, 0.0]]]), k, v, np.array([1]), scale=0.5, window=None)
    assert out[0, 0] == pytest.approx([6.0, 4.0])
