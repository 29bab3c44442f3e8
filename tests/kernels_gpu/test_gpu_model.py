"""Whole tiny models on the emulated card: against the oracle, at every cut, in every batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from adapters import ALPHA, MergedWeights, low_rank_pairs
from emulated_device import EmulatedDevice
from gpu_bench import PLACES, Array, Place, device_at
from oracle import FileWeights, Oracle
from tiny_models import write_tiny_model

from kernels_gpu.binding import GpuModel, GpuOptions, bill, bind
from kernels_gpu.device import Device, GpuLostError, GpuMemoryError
from kernels_gpu.launches import Best
from kernels_gpu.plan import GpuLimits, UnsupportedError, attention_tokens
from kernels_gpu.precision import Precision
from models.description import load_description
from models.gguf_file import ModelFile, Overlay, open_model_file
from models.program import Program
from models.segments import Segment, cut, whole

LIMITS = GpuLimits(max_batch_tokens=24, max_outputs=24, max_sequences=2, context_size=192, num_pages=6)
TABLES = np.array([[4, 0, 2], [1, 5, 3]], np.int32)
IDS = np.array([(7 * i * i + 3 * i) % 380 for i in range(24)], np.int32)
Family = Literal["llama", "qwen2", "gemma3"]


@dataclass(frozen=True)
class Tiny:
    """An open tiny model."""

    file: ModelFile
    program: Program

    def oracle(self, ids: Array) -> Array:
        return Oracle(program=self.program, weights=FileWeights(self.file)).logits(ids.tolist())

    def bind(self, device: Device, segment: Segment | None = None, activations: Precision = "balanced") -> GpuModel:
        return bind(segment or whole(self.program), self.file, LIMITS, GpuOptions(activations=activations), device)


@contextmanager
def tiny(path: Path, family: Family = "llama", format_name: str = "Q4_0", **formats: str) -> Iterator[Tiny]:
    made = write_tiny_model(path / "tiny.gguf", architecture=family, format=format_name, formats=formats)
    with open_model_file(made) as file:
        yield Tiny(file, load_description(file).program)


def run(
    model: GpuModel,
    ids: Array,
    first: int = 0,
    *,
    slot: int = 0,
    hidden: Array | None = None,
    outputs: Array | None = None,
    is_prefill: bool = False,
) -> Array:
    """Logits (or hidden states) of every token, or of some."""
    count = len(ids)
    positions = np.arange(first, first + count, dtype=np.int32)
    chosen = np.arange(count, dtype=np.int32) if outputs is None else outputs
    result = model.run(ids, positions, np.full(count, slot, np.int32), TABLES, chosen, hidden, is_prefill=is_prefill)
    assert result is not None
    return result.copy()


def near(found: Array, expected: Array, *, root_mean_square: float = 0.01) -> None:
    """Logits differ as much as rounded activations let them, no more; in standard deviations of the logits."""
    differences = (found - expected) / expected.std()
    assert np.abs(differences).max() < 6 * root_mean_square
    assert np.sqrt(np.mean(differences**2)) < root_mean_square


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3"])
def test_a_model_s_logits_are_the_oracle_s(family: Family, place: Place, tmp_path: Path) -> None:
    with tiny(tmp_path, family) as model:
        bound = model.bind(device_at(place))
        near(run(bound, IDS[:12]), model.oracle(IDS[:12]))


@pytest.mark.parametrize("activations", ["fast", "exact"])
def test_mixed_formats_and_precisions(activations: Precision, tmp_path: Path) -> None:
    formats = {"attn_v": "Q6_K", "ffn_up": "F16", "token_embd": "BF16"}
    with tiny(tmp_path, "llama", "Q4_K", **formats) as model:
        found = run(model.bind(EmulatedDevice(), activations=activations), IDS[:4])
        expected = model.oracle(IDS[:4])
        if activations == "fast":
            near(found, expected, root_mean_square=0.02)
        else:
            np.testing.assert_allclose(found, expected, atol=2e-3 * expected.std())


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_low_rank_pairs_beside_the_weights(family: Family, tmp_path: Path) -> None:
    with tiny(tmp_path, family) as model:
        parts = ("attn_q", "attn_v", "attn_output", "ffn_gate", "ffn_down")
        pairs = low_rank_pairs(model.file, [f"blk.1.{part}.weight" for part in parts], rank=8, seed=1)
        merged = MergedWeights(model.file, [(pairs, 8 / ALPHA)])
        expected = Oracle(program=model.program, weights=merged).logits(IDS[:6].tolist())
        halves = {f"{name}.lora_{half}": pair[half == "b"] for name, pair in pairs.items() for half in "ab"}
        matrices = {name: matrix.astype(np.float16) for name, matrix in halves.items()}
        model.file.lay_over(Overlay(matrices=matrices, fingerprint="1", notes=()))
        changed = Tiny(model.file, load_description(model.file).program)
        bound = changed.bind(EmulatedDevice(), activations="exact")
        found = run(bound, IDS[:6])
        np.testing.assert_allclose(found, expected, atol=4e-3 * expected.std())
        np.testing.assert_array_equal(run(bound, IDS[:1], slot=1), found[:1])


def test_the_batch_changes_no_bit(tmp_path: Path) -> None:
    with tiny(tmp_path, "gemma3") as model:
        bound = model.bind(EmulatedDevice())
        together = run(bound, IDS)
        pieces = [
            run(bound, IDS[first:last], first, slot=1) for first, last in ((0, 1), (1, 4), (4, 12), (12, 23), (23, 24))
        ]
        np.testing.assert_array_equal(np.concatenate(pieces), together)
        some = run(bound, IDS, outputs=np.array([3, 20], np.int32))
        np.testing.assert_array_equal(some, together[[3, 20]])
        assert run(bound, IDS, outputs=np.array([], np.int32)).shape == (0, model.program.vocab_size)


@pytest.mark.parametrize(("family", "format_name"), [("gemma3", "Q8_0"), ("llama", "Q6_K")])
def test_a_prompt_on_tensor_cores(family: Family, format_name: str, tmp_path: Path) -> None:
    with tiny(tmp_path, family, format_name, ffn_up="Q5_0") as model:
        bound = model.bind(EmulatedDevice())
        together = run(bound, IDS[:20], is_prefill=True)
        near(together, model.oracle(IDS[:20]))
        cuts = ((0, 7), (7, 8), (8, 20))
        pieces = [run(bound, IDS[first:last], first, slot=1, is_prefill=True) for first, last in cuts]
        np.testing.assert_array_equal(np.concatenate(pieces), together)
        near(run(bound, IDS[20:22], 20), model.oracle(IDS[:22])[20:])


@pytest.mark.parametrize("kept", [1, 5])
def test_the_best_candidates_are_those_of_the_logits(kept: int, tmp_path: Path) -> None:
    with tiny(tmp_path) as model:
        options = GpuOptions(activations="fast", kept_candidates=5)
        device = EmulatedDevice()
        bound = bind(whole(model.program), model.file, LIMITS, options, device)
        taken = device.total_bytes - device.memory().free_bytes
        expected = bill(whole(model.program), model.file, LIMITS, options)
        assert taken == expected.weights_bytes + expected.kv_bytes + expected.workspace_bytes
        columns = model.program.vocab_size - 9  # what lies beyond is no token
        logits = run(bound, IDS[:4])[:, :columns]
        order = np.argsort(-logits, axis=1, kind="stable")[:, :kept]
        best = Best(kept=kept, columns=columns)
        for _ in range(3):  # the third time from a graph
            for first, count in ((0, 3), (3, 1)):
                positions = np.arange(first, first + count, dtype=np.int32)
                arguments = (0 * positions, TABLES, np.arange(count, dtype=np.int32))
                assert bound.begin(IDS[first : first + count], positions, *arguments, first_row=first, best=best)
            found = bound.finish_best(4, best)
            assert found is not None
            np.testing.assert_array_equal(found.ids, order)
            np.testing.assert_array_equal(found.logits, np.take_along_axis(logits, order, axis=1))


def test_two_sequences_share_a_batch(tmp_path: Path) -> None:
    with tiny(tmp_path, "qwen2") as model:
        bound = model.bind(EmulatedDevice())
        alone = [run(bound, IDS[:5], slot=1), run(bound, IDS[5:8], slot=1)]
        ids = np.concatenate([IDS[:5], IDS[5:8]])
        positions = np.concatenate([np.arange(5), np.arange(3)]).astype(np.int32)
        slots = np.repeat([0, 1], [5, 3]).astype(np.int32)
        found = bound.run(ids, positions, slots, TABLES, np.arange(8, dtype=np.int32))
        np.testing.assert_array_equal(found, np.concatenate(alone))


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_every_cut_gives_the_same_bits(family: Family, tmp_path: Path) -> None:
    with tiny(tmp_path, family) as model:
        expected = run(model.bind(EmulatedDevice()), IDS[:10])
        for layer_idx in range(len(model.program.layers) + 1):
            lower, upper = (model.bind(EmulatedDevice(), part) for part in cut(model.program, layer_idx))
            first = run(lower, IDS[:9])
            second = run(lower, IDS[9:10], 9)
            found = [run(upper, IDS[:9], hidden=first), run(upper, IDS[9:10], 9, hidden=second)]
            np.testing.assert_array_equal(np.concatenate(found), expected)


def test_a_graph_is_captured_when_a_shape_comes_again(tmp_path: Path) -> None:
    with tiny(tmp_path) as model:
        device = EmulatedDevice()
        bound = model.bind(device)
        captured: list[int] = []
        begin = bound._stream.begin_capture
        bound._stream.begin_capture = lambda: (captured.append(1), begin())[1]  # type: ignore[method-assign]
        found = [run(bound, IDS[position : position + 1], position) for position in range(5)]
        assert len(captured) == 1
        np.testing.assert_array_equal(np.concatenate(found), run(model.bind(device), IDS[:5]))
        for first in (5, 7, 9):
            run(bound, IDS[first : first + 2], first)
        assert len(captured) == 2


@pytest.mark.parametrize(("value_format", "of_layer"), [("Q4_0", 10), ("Q8_0", 11)])
def test_a_layer_is_few_launches(value_format: str, of_layer: int, tmp_path: Path) -> None:
    """Norm, Q K V (apart where V differs), rotation, attention, its sum, output, norm, gate and up, rounding, down."""
    formats = {f"blk.{idx}.attn_v.weight": value_format for idx in range(2)}
    made = write_tiny_model(tmp_path / "tiny.gguf", architecture="llama", format="Q4_0", formats=formats)
    with open_model_file(made) as file:
        program = load_description(file).program
        counts = []
        for layers in (0, 1, 2):
            device = EmulatedDevice()
            bound = bind(cut(program, layers)[1], file, LIMITS, GpuOptions(activations="balanced"), device)
            run(bound, IDS[:1], hidden=np.ones((1, program.hidden.width), np.float32))
            counts.append(device.num_launches)
    assert [more - less for more, less in zip(counts, counts[1:], strict=False)] == [of_layer] * 2


@pytest.mark.parametrize("place", [PLACES[0], PLACES[-1]])
@pytest.mark.parametrize("is_prefill", [False, True])
def test_a_graph_s_replay_is_the_same_as_single_launches(is_prefill: bool, place: Place, tmp_path: Path) -> None:
    with tiny(tmp_path, "gemma3", "Q4_K") as model:
        bound = model.bind(device_at(place))
        run(bound, IDS[:20], is_prefill=True)
        rounds = [run(bound, IDS[20:23], 20, is_prefill=is_prefill) for _ in range(4)]
        for again in rounds[1:]:
            np.testing.assert_array_equal(again, rounds[0])
        bound.close()


def test_what_is_allocated_is_the_bill_and_comes_back(tmp_path: Path) -> None:
    with tiny(tmp_path, "gemma3", "Q8_0") as model:
        device = EmulatedDevice()
        expected = bill(whole(model.program), model.file, LIMITS, GpuOptions(activations="balanced"))
        bound = model.bind(device)
        taken = device.total_bytes - device.memory().free_bytes
        assert taken == expected.weights_bytes + expected.kv_bytes + expected.workspace_bytes
        assert bound.bill == expected
        before = device.num_allocations
        run(bound, IDS)
        assert device.num_allocations == before
        bound.close()
        bound.close()
        assert device.memory().free_bytes == device.total_bytes


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_failed_allocation_gives_the_others_back(number: int, tmp_path: Path) -> None:
    with tiny(tmp_path) as model:
        device = EmulatedDevice(fails_at=number)
        with pytest.raises(GpuMemoryError, match="no room for the"):
            model.bind(device)
        assert device.memory().free_bytes == device.total_bytes


def test_a_lost_card_is_said_and_can_be_closed(tmp_path: Path) -> None:
    with tiny(tmp_path) as model:
        bound = model.bind(EmulatedDevice(launch_fails_at=20))
        with pytest.raises(GpuLostError, match="stopped answering"):
            run(bound, IDS)
        bound.close()


def test_a_copied_page_continues_a_sequence(tmp_path: Path) -> None:
    with tiny(tmp_path) as model:
        bound = model.bind(EmulatedDevice())
        expected = run(bound, IDS[:10])[-1:]
        run(bound, IDS[:9])
        bound.copy_page(4, 1)
        np.testing.assert_array_equal(run(bound, IDS[9:10], 9, slot=1), expected)


def test_a_cancel_stops_one_run(tmp_path: Path) -> None:
    with tiny(tmp_path) as model:
        bound = model.bind(EmulatedDevice())
        expected = run(bound, IDS[:3])
        bound.cancel()
        arguments = (np.arange(3, dtype=np.int32), np.zeros(3, np.int32), TABLES, np.arange(3, dtype=np.int32))
        assert bound.run(IDS[:3], *arguments) is None
        np.testing.assert_array_equal(run(bound, IDS[:3]), expected)


def test_an_odd_width_is_refused(tmp_path: Path) -> None:
    from tiny_models import TinyShape

    made = write_tiny_model(tmp_path / "odd.gguf", format="F16", shape=TinyShape(width=48, feed_forward_width=80))
    with open_model_file(made) as file:
        segment = whole(load_description(file).program)
        with pytest.raises(UnsupportedError, match=r"token_embd\.weight has 48 columns"):
            bill(segment, file, LIMITS, GpuOptions(activations="fast"))


def test_the_room_for_partial_results_is_bounded(tmp_path: Path) -> None:
    with tiny(tmp_path) as model:
        segment = whole(model.program)
        narrow, wide = (replace(LIMITS, context_size=size, max_batch_tokens=512) for size in (1 << 10, 1 << 23))
        assert attention_tokens(segment, narrow) == 64
        assert attention_tokens(segment, wide) == 8
        assert attention_tokens(segment, replace(narrow, max_batch_tokens=16)) == 16


def test_a_failure_while_recording_leaves_the_stream_usable(tmp_path: Path) -> None:
    with tiny(tmp_path) as model:
        device = EmulatedDevice()
        bound = model.bind(device)
        expected = run(bound, IDS[:1])
        launch = device.launch

        def fail(*_: object, **__: object) -> None:
            raise GpuLostError("The card stopped answering.")

        device.launch = fail  # type: ignore[method-assign]
        with pytest.raises(GpuLostError):
            run(bound, IDS[:1])
        device.launch = launch  # type: ignore[method-assign]
        np.testing.assert_array_equal(run(bound, IDS[:1]), expected)
