"""Programs whose runs are bound apart on the CPU: the same bits as in one."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from cpu_models import limits_of
from kernels import KERNEL_FOLDER, same_bits
from references import path_of, references_of
from tiny_models import write_tiny_model

from kernels_cpu.activations import Precision
from kernels_cpu.binding import CpuModel, CpuOptions, bill, bind
from models.description import load_description
from models.gguf_file import open_model_file
from models.segments import Chain, divide, feeds_experts, whole


def owners_by_experts(path: Path) -> list[str]:
    """Mixtures of experts apart from the rest."""
    with open_model_file(path) as file:
        program = load_description(file).program
        return ["experts" if feeds_experts(program, idx) else "rest" for idx in range(len(program.operations))]


def owners_by_layers(path: Path) -> list[str]:
    """Layers in turn; the head with the first."""
    with open_model_file(path) as file:
        operations = load_description(file).program.operations
        return ["odd" if (operation.layer_idx or 0) % 2 else "even" for operation in operations]


def logits(path: Path, chain: Chain, ids: np.ndarray, size: int, activations: Precision) -> np.ndarray:
    """At every position, fed `size` tokens at a time; each owner has a binding of its own."""
    limits, options = limits_of(sequences=1), CpuOptions(
        threads=2, activations=activations, isa="auto", kernel_folder=KERNEL_FOLDER
    )  # fmt: skip
    tables = np.arange(-(-limits.context_size // 64), dtype=np.int32)[::-1][None]
    rows = []
    with ExitStack() as stack, open_model_file(path) as file:
        models: dict[str, CpuModel] = {}
        for owner, segment in chain.segments.items():
            models[owner] = bind(segment, file, limits, options)
            stack.callback(models[owner].close)
            assert models[owner].bill == bill(segment, file, limits, options)
        for first in range(0, len(ids), size):
            part = ids[first : first + size]
            indexes = np.arange(len(part), dtype=np.int32)
            hidden: np.ndarray | None = None
            for link in chain.links:
                takes_tokens = chain.segments[link.owner].takes_tokens(link.run_idx)
                given = (part if takes_tokens else None, first + indexes, 0 * indexes, tables, indexes)
                hidden = models[link.owner].run(*given, hidden=hidden, run_idx=link.run_idx)
                assert hidden is not None
                hidden = hidden.copy()
            assert hidden is not None
            rows.append(hidden)
    return np.concatenate(rows)


@pytest.mark.parametrize("name", ["gpt-oss", "qwen3moe", "olmo2"])
def test_runs_bound_apart_give_the_same_bits(name: str) -> None:
    path, ids = path_of(name), references_of(name)[0].ids.astype(np.int32)
    with open_model_file(path) as file:
        program = load_description(file).program
    together = Chain(segments={"all": whole(program)}, links=divide(program, ["all"] * len(program.operations)).links)
    expected = logits(path, together, ids, 48, "balanced")
    owners = owners_by_layers(path) if name == "olmo2" else owners_by_experts(path)
    apart = divide(program, owners)
    assert len(apart.links) > 2
    for size in (48, 1, 7):
        assert same_bits(logits(path, apart, ids, size, "balanced"), expected)


def test_an_odd_chain_of_layers_gives_the_same_bits(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", architecture="gemma3", format="Q4_0")
    with open_model_file(path) as file:
        program = load_description(file).program
    ids = np.arange(3, 40, dtype=np.int32)
    expected = logits(path, divide(program, ["all"] * len(program.operations)), ids, 20, "fast")
    assert same_bits(logits(path, divide(program, owners_by_layers(path)), ids, 20, "fast"), expected)
