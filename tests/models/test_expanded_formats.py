"""Formats that become float16 when they are read: what comes out is what `gguf` reads, and a person is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import quants
from tiny_models import SUPER_BLOCKS, Tensor, gguf_bytes, tiny_metadata, tiny_tensors

from models.description import load_description
from models.expanded_formats import EXPANDED_FORMATS, expand
from models.formats import BlockFormat
from models.gguf_file import open_model_file

FORMATS = list(EXPANDED_FORMATS.values())


def random_blocks(block_format: BlockFormat, num_rows: int, columns: int = 512) -> np.ndarray:
    """Any bytes at all, uint8 [rows, row_bytes]."""
    size = block_format.row_bytes(columns)
    return np.random.default_rng(block_format.ggml_id).integers(0, 256, (num_rows, size), np.uint8)


@pytest.mark.parametrize("block_format", FORMATS, ids=lambda block_format: block_format.name)
def test_numbers_and_sizes_are_those_of_ggml(block_format: BlockFormat) -> None:
    kind = gguf.GGMLQuantizationType[block_format.name]
    assert block_format.ggml_id == kind.value
    assert (block_format.block_elements, block_format.block_bytes) == gguf.GGML_QUANT_SIZES[kind]


@pytest.mark.parametrize("block_format", FORMATS, ids=lambda block_format: block_format.name)
def test_rows_are_the_float16_nearest_to_what_gguf_reads(block_format: BlockFormat) -> None:
    raw = random_blocks(block_format, 20)
    found = expand(raw, block_format).view("<f2")
    with np.errstate(over="ignore", invalid="ignore"):
        expected = quants.dequantize(raw, gguf.GGMLQuantizationType[block_format.name]).astype(np.float16)
    assert found.shape == (20, 512)
    np.testing.assert_array_equal(found, expected)
    assert np.isfinite(found).any() and len(np.unique(found)) > 3


def test_many_rows_are_done_in_pieces() -> None:
    block_format = FORMATS[-2]
    raw = np.tile(random_blocks(block_format, 1000), (9, 1))
    whole = expand(raw, block_format)
    assert raw.nbytes > 1 << 20
    assert np.array_equal(whole[:1000], expand(raw[:1000], block_format))
    assert np.array_equal(whole[-1000:], whole[:1000])


def ternary(tensor: Tensor) -> Tensor:
    """A float16 matrix as TQ2_0."""
    values = np.frombuffer(tensor.data, "<f2").astype(np.float32).reshape(tensor.shape)
    kind = gguf.GGMLQuantizationType.TQ2_0
    return replace(tensor, ggml_id=kind.value, data=quants.quantize(values, kind).tobytes())


def test_a_file_reads_as_float16_and_says_what_that_costs(tmp_path: Path) -> None:
    path = tmp_path / "ternary.gguf"
    tensors = tiny_tensors("llama", "F16", SUPER_BLOCKS, 96, is_tied=True, seed=0)
    tensors = [ternary(tensor) if "ffn_down" in tensor.name else tensor for tensor in tensors]
    path.write_bytes(gguf_bytes(tiny_metadata("llama", SUPER_BLOCKS), tensors))
    name = "blk.0.ffn_down.weight"
    with open_model_file(path) as file:
        assert (file.stored[name].format.name, file.tensors[name].format.name) == ("TQ2_0", "F16")
        assert file.tensors[name].size_bytes == 256 * 512 * 2 == file.raw(name).nbytes
        assert file.tensors[name].row_bytes == file.raw(name).shape[1]
        assert len(np.unique(file.floats(name)[0])) <= 5
        some = np.empty((5, 1024), np.uint8)
        file.read_rows(name, 7, some)
        assert np.array_equal(some, file.raw(name)[7:12])
        description = load_description(file)
    assert {use.name for use in description.formats} == {"F16", "TQ2_0", "F32"}
    assert description.size_bytes == sum(len(tensor.data) for tensor in tensors)
    assert any("no kernels for TQ2_0" in note and "memory instead of" in note for note in description.notes)
