"""Models whose experts are in float formats, in several formats, or have rows that fill no vector."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_models import bound, limits_of
from kernels import LEVELS, same_bits
from model_shapes import small_metadata, small_shapes
from oracle import FileWeights, Oracle
from references import relative_error
from tiny_models import Tensor, gguf_bytes, random_rows

from kernels_cpu.bill import weights_bytes
from kernels_cpu.costs import count_costs
from kernels_cpu.isa import choose
from kernels_cpu.kv_layout import CacheTypes
from kernels_cpu.planning import make_plan
from models.description import load_description
from models.formats import FORMATS
from models.gguf_file import open_model_file
from models.segments import whole

IDS = [5 + index * 7 % 90 for index in range(70)]
# Rows of gate and up, and the formats of gate, up and down.
CASES: Mapping[str, tuple[int, tuple[str, str, str]]] = {
    "F16": (24, ("F16", "F16", "F16")),
    "BF16 and F32": (20, ("BF16", "BF16", "F32")),
    "Q8_0 beside floats": (20, ("Q8_0", "F16", "F32")),
    "Q4_0 and F16": (32, ("F16", "F16", "Q4_0")),
}


def write_model(path: Path, architecture: str, rows: int, formats: tuple[str, str, str]) -> Path:
    """A tiny model with experts of so many rows; those of gpt-oss have biases."""
    overrides: dict[str, Any] = {"embedding_length": 64, "block_count": 2, "expert_feed_forward_length": rows}
    if architecture == "gpt-oss":
        overrides["attention__sliding_window"] = 24
    metadata = small_metadata(architecture, **overrides)
    shapes = small_shapes(metadata)
    if architecture == "gpt-oss":
        for layer in range(2):
            for name, count in (("gate", rows), ("up", rows), ("down", 64)):
                shapes[f"blk.{layer}.ffn_{name}_exps.bias"] = (6, count)
    rng, tensors = np.random.default_rng(5), []
    for name, shape in shapes.items():
        kind = next((form for part, form in zip(("gate", "up", "down"), formats, strict=True)
                     if f"ffn_{part}_exps.weight" in name), "F32")  # fmt: skip
        if len(shape) == 1 or name.endswith("bias"):
            data = (float("norm" in name) + 0.2 * rng.standard_normal(shape)).astype("<f4").tobytes()
        else:
            data = random_rows(kind, shape, rng, std=shape[-1] ** -0.5).tobytes()
        tensors.append(Tensor(name=name, ggml_id=FORMATS[kind].ggml_id, shape=shape, data=data))
    path.write_bytes(gguf_bytes(metadata, tensors))
    return path


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("architecture", ["qwen3moe", "gpt-oss"])
def test_experts_of_any_format_give_what_the_oracle_gives(architecture: str, case: str, tmp_path: Path) -> None:
    rows, formats = CASES[case]
    path = write_model(tmp_path / "experts.gguf", architecture, rows, formats)
    with open_model_file(path) as file:
        expected = Oracle(load_description(file).program, FileWeights(file)).logits(IDS)
    with bound(path, threads=2, limits=limits_of(context=128)) as model:
        whole = model.logits(IDS, size=64)
    assert relative_error(whole, expected) < 2e-3  # the cache's float16
    for level, size in ((LEVELS[-1], 1), (LEVELS[0], 7)):
        with bound(path, isa=level, limits=limits_of(context=128), seed=size) as model:
            assert same_bits(model.logits(IDS, size=size), whole)


@pytest.mark.parametrize("level", LEVELS)
def test_rows_that_fill_no_vector_are_counted_as_they_are_packed(level: str, tmp_path: Path) -> None:
    rows, formats = CASES["BF16 and F32"]
    path = write_model(tmp_path / "experts.gguf", "qwen3moe", rows, formats)
    isa = choose(level)
    with open_model_file(path) as file:
        segment = whole(load_description(file).program)
        plan = make_plan(segment, file.tensors, limits_of(context=128), isa, "exact")
        costs = count_costs(segment, file.tensors, level, "exact", CacheTypes.named("f16", "f16"))
    padded = -(-rows // isa.lanes) * isa.lanes
    assert plan.matrix_of("blk.0.ffn_gate_exps.weight").size_bytes == 6 * padded * 64 * 2
    assert plan.matrix_of("blk.0.ffn_down_exps.weight").size_bytes == 6 * 64 * rows * 4
    used = 2 * 2 * (2 * padded * 64 * 2 + 64 * rows * 4)  # of two layers, two experts a token
    assert used < costs.tokens.weight_bytes + costs.outputs.weight_bytes < weights_bytes(plan)
