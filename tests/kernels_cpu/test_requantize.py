"""Requantised weights: what NumPy makes of the same rows, on every instruction-set level, and how far it is off."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from cpu_models import KINDS, Kind, bound
from gguf import GGMLQuantizationType, quants
from kernels import LEVELS, REQUANTIZED, Array, embed, pack, requantize
from oracle import FileWeights, Oracle
from tiny_models import random_rows

from kernels_cpu.isa import choose
from kernels_cpu.packed_formats import FLOAT_FORMATS, PACKED_FORMATS
from kernels_cpu.plan import Matrix
from models.description import load_description
from models.formats import FORMATS
from models.gguf_file import open_model_file
from models.program import multiplied_weights


def dequantised(format_name: str, raw: Array) -> Array:
    return quants.dequantize(raw, GGMLQuantizationType(FORMATS[format_name].ggml_id)).astype(np.float32)


def oracle(rows: Array) -> tuple[Array, Array]:
    """float32 rows as the codes and scales of blocks of 32: ([rows, blocks, 32], [rows, blocks, 1])."""
    blocks = rows.reshape(len(rows), -1, 32)
    largest, smallest = blocks.max(-1, keepdims=True), blocks.min(-1, keepdims=True)
    extreme = np.where(largest > -smallest, largest, smallest).astype(np.float32)
    inverse = np.divide(np.float32(-8), extreme, out=np.zeros_like(extreme), where=extreme != 0)
    codes = np.clip(np.rint(blocks * inverse), -8, 7)
    squares = np.maximum((codes.astype(np.float64) ** 2).sum(-1, keepdims=True), 1)
    return codes, (blocks * codes.astype(np.float64)).sum(-1, keepdims=True) / squares


@pytest.mark.parametrize("format_name", REQUANTIZED)
@pytest.mark.parametrize("level", LEVELS)
def test_codes_and_scales_are_those_of_least_squares(level: str, format_name: str) -> None:
    rng = np.random.default_rng(1)
    block = FORMATS[format_name].block_elements
    widths = (64, 192) if format_name in FLOAT_FORMATS else (block, 3 * block)
    for num_columns in widths:
        for num_rows in (1, 2 * choose(level).lanes + 3):
            raw = random_rows(format_name, (num_rows, num_columns), rng, std=0.05)
            matrix = pack(level, format_name, num_columns, raw)
            rows = embed(requantize(matrix, groups_per_chunk=2), np.arange(num_rows))
            codes, scales = oracle(dequantised(format_name, raw))
            expected = (codes * scales).reshape(num_rows, -1)
            np.testing.assert_allclose(rows, expected, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("level", LEVELS)
def test_no_weight_is_further_off_than_a_step(level: str) -> None:
    rng = np.random.default_rng(2)
    raw = random_rows("Q8_0", (40, 256), rng, std=1.0)
    exact = dequantised("Q8_0", raw)
    rows = embed(requantize(pack(level, "Q8_0", 256, raw)), np.arange(40))
    steps = np.abs(exact).reshape(40, -1, 32).max(-1).repeat(32, axis=1) / 8
    assert (np.abs(rows - exact) <= 1.1 * steps).all()
    assert np.abs(rows - exact).mean() < 0.5 * steps.mean()


@pytest.mark.parametrize("level", LEVELS)
def test_zeros_stay_zeros_and_damaged_scales_stop_nothing(level: str) -> None:
    raw = np.zeros((5, FORMATS["Q8_0"].row_bytes(128)), np.uint8)
    blocks = raw.reshape(5, 4, 34)
    blocks[1:, :, 2:] = 3
    blocks[1:, :, :2] = np.array([0x3C00, 0x7C00, 0x7E01, 0x0001], np.uint16)[:, None, None].view(np.uint8)
    rows = embed(requantize(pack(level, "Q8_0", 128, raw)), np.arange(5))
    assert (rows[0] == 0).all()
    np.testing.assert_allclose(rows[1], 3.0)
    assert np.isinf(rows[2]).all() and (rows[3] == 0).all()  # what is no number counts as nothing
    assert (np.abs(rows[4]) <= 3 * 2.0**-24).all()  # too small for a scale in half precision


def test_formats_that_would_hardly_take_less_stay_as_they_are() -> None:
    def becomes(name: str, num_columns: int = 256) -> str:
        matrix = Matrix(
            names=("w",), format_name=name, stored_format=name, num_rows=32, num_columns=num_columns, lanes=16
        )
        return matrix.requantized().format_name

    assert {name for name in (*PACKED_FORMATS, *FLOAT_FORMATS) if becomes(name) == "Q4_0"} == {*REQUANTIZED, "Q4_0"}
    assert becomes("F16", 96) == "F16" and becomes("F16", 40) == "F16" and becomes("Q5_0", 96) == "Q4_0"


@dataclass(frozen=True)
class RequantisedWeights(FileWeights):
    """A file's weights, those in `names` as NumPy requantises them where that takes less."""

    names: frozenset[str]

    def whole(self, name: str) -> Array:
        return self._narrowed(name, super().whole(name))

    def rows(self, name: str, indexes: Array) -> Array:
        return self._narrowed(name, super().rows(name, indexes))

    def _narrowed(self, name: str, values: Array) -> Array:
        format_name = self.file.tensors[name].format.name
        is_left = format_name not in REQUANTIZED or (format_name in FLOAT_FORMATS and values.shape[-1] % 64 != 0)
        if name not in self.names or is_left:
            return values
        codes, scales = oracle(values.astype(np.float32))
        return (codes * scales.astype(np.float16).astype(np.float64)).reshape(values.shape)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_model_with_requantised_weights(kind: Kind, tmp_path: Path) -> None:
    ids = [5 + index * 7 % 300 for index in range(40)]
    path = kind.write(tmp_path)
    with open_model_file(path) as file:
        program = load_description(file).program
        expected = Oracle(program, RequantisedWeights(file, multiplied_weights(program.operations))).logits(ids)
    with bound(path, threads=2, requantize=True) as model:
        logits = model.logits(ids)
    assert np.sqrt(((logits - expected) ** 2).mean()) < 5e-3
    with bound(path, threads=1, requantize=True) as model:
        assert (model.logits(ids, size=1) == logits).all()
