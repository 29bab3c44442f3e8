"""What a program costs, against sums over the file's own tensors."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Literal

import pytest
from tiny_models import SUPER_BLOCKS, write_tiny_model

from kernels_cpu.activations import Precision
from kernels_cpu.costs import CpuCosts, count_costs
from kernels_cpu.isa import choose
from kernels_cpu.kv_layout import CacheTypes
from kernels_cpu.packed_formats import packed_bytes
from models.description import load_description
from models.gguf_file import open_model_file
from models.segments import whole

F16 = CacheTypes.named("f16", "f16")


def costs_of(path: Path, precision: Precision = "fast", cache_types: CacheTypes = F16) -> CpuCosts:
    with open_model_file(path) as file:
        return count_costs(whole(load_description(file).program), file.tensors, "auto", precision, cache_types)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3"])
@pytest.mark.parametrize("is_tied", [True, False])
def test_every_weight_is_read_once(
    tmp_path: Path, architecture: Literal["llama", "qwen2", "gemma3"], is_tied: bool
) -> None:
    path = write_tiny_model(tmp_path / "m.gguf", architecture=architecture, is_tied=is_tied)
    costs, lanes = costs_of(path), choose().lanes
    with open_model_file(path) as file:
        tensors = dict(file.tensors)
    head = tensors["token_embd.weight"] if is_tied else tensors["output.weight"]
    matrices = [t for name, t in tensors.items() if len(t.shape) == 2 and name.startswith("blk.")]
    vectors = [t for t in tensors.values() if len(t.shape) == 1]
    norms_of_heads = [t for name, t in tensors.items() if "_q_norm" in name or "_k_norm" in name]
    packed = {id(t): packed_bytes(t.format.name, t.shape[0], t.shape[1], lanes) for t in (*matrices, head)}
    floats = 4 * (sum(prod(t.shape) for t in vectors) - sum(prod(t.shape) for t in norms_of_heads))
    read = costs.tokens.weight_bytes + costs.outputs.weight_bytes
    assert read == sum(packed[id(t)] for t in (*matrices, head)) + floats
    assert costs.tokens.byte_multiply_adds == sum(prod(t.shape) for t in matrices)
    assert costs.outputs.byte_multiply_adds == prod(head.shape)
    assert costs.tokens.float_multiply_adds == costs.outputs.float_multiply_adds == 0


def test_two_terms_multiply_twice(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "m.gguf")
    fast, balanced, exact = (costs_of(path, precision) for precision in ("fast", "balanced", "exact"))
    assert exact.tokens.byte_multiply_adds == 2 * fast.tokens.byte_multiply_adds
    assert fast.tokens.byte_multiply_adds < balanced.tokens.byte_multiply_adds < exact.tokens.byte_multiply_adds
    assert fast.tokens.weight_bytes == balanced.tokens.weight_bytes == exact.tokens.weight_bytes


def test_float_weights_are_multiplied_as_floats(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "m.gguf", format="F16")
    costs = costs_of(path, "exact")
    assert costs.tokens.byte_multiply_adds == 0
    assert costs.tokens.float_multiply_adds == costs_of(write_tiny_model(tmp_path / "q.gguf")).tokens.byte_multiply_adds


def test_layers_say_what_a_position_costs(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "m.gguf", architecture="gemma3", format="Q4_K")
    shape, costs = SUPER_BLOCKS, costs_of(path)
    assert [layer.window for layer in costs.layers] == [shape.window, None]
    for layer in costs.layers:
        assert layer.position_bytes == 2 * 2 * shape.num_kv_heads * shape.head_dim
        assert layer.multiply_adds_per_position == 2 * shape.num_heads * shape.head_dim
    eight = costs_of(path, cache_types=CacheTypes.named("q8_0", "q8_0"))
    assert eight.layers[0].position_bytes == shape.num_kv_heads * 2 * (shape.head_dim + 2 * shape.head_dim // 32)


def test_a_token_gathers_one_row_of_the_embedding(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "m.gguf", format="F32")
    with open_model_file(path) as file:
        assert costs_of(path).embedding_bytes == 4 * file.tensors["token_embd.weight"].shape[1]
