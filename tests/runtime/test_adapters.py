"""Models with LoRA adapters against float64 merging, what is refused, and what the engine promises with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from adapters import ALPHA, MergedWeights, low_rank_pairs, write_adapter
from cpu_models import BoundModel, limits_of
from kernels import KERNEL_FOLDER
from oracle import FileWeights, Oracle
from tiny_models import write_tiny_model

from kernels_cpu.binding import CpuOptions, bind
from models.adapters import read_adapter
from models.description import load_description
from models.errors import AdapterError, FileError
from models.gguf_file import open_model_file
from models.program_text import describe
from models.segments import whole
from runtime.adapters import AdapterChoice, open_adapted
from runtime.before_loading import fingerprint_of
from runtime.engine import Engine
from runtime.errors import OptionError
from runtime.options import EngineOptions, GenerateOptions
from runtime.sampling import SamplingOptions

IDS = [5 + index * 7 % 300 for index in range(40)]
ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_output")
ALL = (*ATTENTION, "ffn_gate", "ffn_up", "ffn_down")
Architecture = Literal["llama", "qwen2", "gemma3"]


def names(parts: tuple[str, ...], layers: tuple[int, ...] = (0, 1)) -> list[str]:
    return [f"blk.{layer}.{part}.weight" for layer in layers for part in parts]


def make(folder: Path, architecture: Architecture, format: str, **keywords: Any) -> Path:
    return write_tiny_model(
        folder / f"{architecture}-{format}.gguf", architecture=architecture, format=format, **keywords
    )


def adapter(
    base: Path, name: str, weights: list[str], *, rank: int, seed: int = 1, is_half: bool = True, **keywords: Any
) -> tuple[Path, Mapping[str, Any]]:
    """An adapter's file beside its model, and its pairs."""
    with open_model_file(base) as file:
        architecture = str(file.metadata["general.architecture"])
        pairs = low_rank_pairs(file, weights, rank=rank, seed=seed)
    return write_adapter(base.with_name(name), architecture, pairs, is_half=is_half, **keywords), pairs


def logits_of(path: Path, choices: list[AdapterChoice], *, size: int = 40, threads: int = 1) -> np.ndarray:
    """At every position of IDS, on the CPU's kernels with exact activations."""
    limits = limits_of(sequences=1)
    options = CpuOptions(threads=threads, activations="exact", isa="auto", kernel_folder=KERNEL_FOLDER)
    with open_adapted(path, choices) as file:
        model = bind(whole(load_description(file).program), file, limits, options)
    try:
        tables = np.arange(8, dtype=np.int32).reshape(1, 8)
        return BoundModel(model=model, tables=tables).logits(IDS, size=size)
    finally:
        model.close()


@pytest.mark.parametrize(
    ("architecture", "format", "parts", "rank"),
    [
        ("llama", "Q4_0", ATTENTION, 4),
        ("qwen2", "Q8_0", ALL, 8),
        ("gemma3", "Q8_0", ALL, 3),
        ("llama", "Q4_K", ("ffn_up", "ffn_down", "attn_q"), 16),
    ],
)
def test_two_adapters_give_what_merged_weights_give(
    tmp_path: Path, architecture: Architecture, format: str, parts: tuple[str, ...], rank: int
) -> None:
    base = make(tmp_path, architecture, format)
    first, first_pairs = adapter(base, "first.gguf", names(parts), rank=rank)
    second, second_pairs = adapter(base, "second.gguf", names(parts[:2], (1,)), rank=5, seed=2, is_half=False)
    choices = [AdapterChoice(path=first), AdapterChoice(path=second, scale=-0.7)]
    with open_model_file(base) as file:
        program = load_description(file).program
        merged = MergedWeights(file, [(first_pairs, 1.0), (second_pairs, -0.7)])
        expected = Oracle(program, merged).logits(IDS)
        plain = Oracle(program, FileWeights(file)).logits(IDS)
    found = logits_of(base, choices)
    scale = np.abs(expected).max()
    assert np.abs(found - expected).max() < 4e-3 * scale
    assert np.abs(plain - expected).max() > 0.1 * scale, "the adapters matter"
    assert (logits_of(base, choices, size=7, threads=2) == found).all(), "whatever the batch and the threads"


def test_the_head_may_be_changed_where_it_is_a_matrix_of_its_own(tmp_path: Path) -> None:
    base = make(tmp_path, "llama", "Q8_0", is_tied=False)
    path, pairs = adapter(base, "head.gguf", ["output.weight"], rank=6)
    with open_model_file(base) as file:
        expected = Oracle(load_description(file).program, MergedWeights(file, [(pairs, 2.0)])).logits(IDS)
    found = logits_of(base, [AdapterChoice(path=path, scale=2.0)])
    assert np.abs(found - expected).max() < 2e-3 * np.abs(expected).max()


def test_the_program_with_adapters_says_what_it_does(tmp_path: Path) -> None:
    base = make(tmp_path, "llama", "Q4_0")
    path, _ = adapter(base, "a.gguf", ["blk.0.attn_q.weight", "blk.1.ffn_up.weight"], rank=4)
    with open_adapted(base, [AdapterChoice(path=path)]) as file:
        description = load_description(file)
        lines = describe(description.program).splitlines()
        assert file.tensors["blk.0.attn_q.weight.lora_a"].format.name == "F16"
    assert sum("lora" in line for line in lines) == 4 and sum(line.startswith("Gate layer 1") for line in lines) == 1
    assert any("changes 2 matrices (rank 4, scale 1)" in note for note in description.notes)


def test_half_precision_is_kept_only_where_it_loses_nothing(tmp_path: Path) -> None:
    base = make(tmp_path, "llama", "Q4_0")
    path, pairs = adapter(base, "a.gguf", ["blk.0.attn_q.weight"], rank=4)
    with open_adapted(base, [AdapterChoice(path=path, scale=0.1)]) as file:
        b = file.floats("blk.0.attn_q.weight.lora_b")
        assert file.tensors["blk.0.attn_q.weight.lora_b"].format.name == "F32"
    assert np.allclose(b[:, :4], pairs["blk.0.attn_q.weight"][1] * (0.1 * ALPHA / 4), rtol=1e-6)
    assert b.shape[1] == 8 and not b[:, 4:].any(), "filled up to what devices read at once"


def greedy(path: Path, adapters: tuple[AdapterChoice, ...]) -> tuple[int, ...]:
    with Engine.load(path, EngineOptions(threads=1, adapters=adapters)) as engine:
        options = GenerateOptions(sampling=SamplingOptions(temperature=0, seed=0), max_tokens=12, ignore_end=True)
        return engine.generate(IDS, options).result.ids


def test_the_engine_answers_with_the_adapter_and_its_fingerprint_tells(tmp_path: Path) -> None:
    base = make(tmp_path, "qwen2", "Q8_0")
    path, _ = adapter(base, "a.gguf", names(ALL), rank=4)
    choice = AdapterChoice(path=path)
    assert greedy(base, ()) != greedy(base, (choice,))
    assert greedy(base, (replace(choice, scale=0.0),)) == greedy(base, ())
    prints = {
        fingerprint_of(base),
        fingerprint_of(base, [choice]),
        fingerprint_of(base, [replace(choice, scale=0.5)]),
    }
    assert len(prints) == 3
    with Engine.load(base, EngineOptions(threads=1, adapters=(choice,))) as engine:
        assert engine.description.fingerprint == fingerprint_of(base, [choice])
        assert any("a.gguf" in note for note in engine.notes)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"general.type": "model"}, "no adapter but a model of its own"),
        ({"adapter.type": "loha"}, "of the type 'loha'; only lora"),
        ({"adapter.type": None}, "of the type missing"),
        ({"adapter.lora.alpha": None}, "adapter.lora.alpha is missing"),
        ({"adapter.lora.alpha": float("nan")}, "adapter.lora.alpha is 'nan'"),
        ({"adapter.lora.alpha": 0.0}, "adapter.lora.alpha is '0.0'"),
        ({"general.architecture": None}, "does not say which architecture"),
        ({"general.architecture": "gemma3"}, "made for a model of the architecture 'gemma3', and this one is 'llama'"),
        ({"adapter.alora.invocation_tokens": [1, 2]}, "aLoRA"),
    ],
)
def test_what_is_no_adapter_for_this_model_is_told(tmp_path: Path, change: dict[str, Any], expected: str) -> None:
    base = make(tmp_path, "llama", "Q4_0")
    path, _ = adapter(base, "a.gguf", ["blk.0.attn_q.weight"], rank=4, metadata=change)
    with pytest.raises(AdapterError, match=expected.replace("(", r"\(")) as caught:
        open_adapted(base, [AdapterChoice(path=path)])
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


def pair(rows: int = 64, columns: int = 64, rank: int = 4) -> tuple[np.ndarray, np.ndarray]:
    return np.ones((rank, columns), np.float32), np.ones((rows, rank), np.float32)


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ({}, "holds no matrices"),
        ({"blk.9.attn_q.weight": pair()}, "'blk.9.attn_q.weight', which this model does not have"),
        ({"blk.0.attn_q.weight": pair(rows=32)}, "a model of another size"),
        ({"blk.0.attn_q.weight": (pair(rank=3)[0], pair(rank=4)[1])}, "with one rank up to"),
        ({"blk.0.attn_q.weight": (pair()[0] * np.inf, pair()[1])}, "no number"),
    ],
)
def test_matrices_that_do_not_fit_are_told(tmp_path: Path, pairs: dict[str, Any], expected: str) -> None:
    base = make(tmp_path, "llama", "Q4_0")
    path = write_adapter(tmp_path / "a.gguf", "llama", pairs)
    with pytest.raises(AdapterError, match=expected):
        open_adapted(base, [AdapterChoice(path=path)])


def test_the_embedding_and_vectors_are_not_changed(tmp_path: Path) -> None:
    base = make(tmp_path, "llama", "Q4_0")
    with open_model_file(base) as file:
        rows, columns = file.tensors["token_embd.weight"].shape
    path = write_adapter(tmp_path / "a.gguf", "llama", {"token_embd.weight": pair(rows, columns)})
    with pytest.raises(AdapterError, match="serves as the embedding"):
        open_adapted(base, [AdapterChoice(path=path)])
    one_sided = write_adapter(tmp_path / "b.gguf", "llama", {"blk.0.attn_q.weight": pair()[:1]})
    with pytest.raises(AdapterError, match="no tensor 'blk.0.attn_q.weight.lora_b', the other half"):
        open_adapted(base, [AdapterChoice(path=one_sided)])


@pytest.mark.parametrize("format", ["F32", "F16", "BF16", "Q8_0", "Q4_0"])
def test_a_file_of_the_gguf_package_is_read_in_every_format(tmp_path: Path, format: str) -> None:
    import gguf

    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((32, 64), np.float32), rng.standard_normal((96, 32), np.float32)
    kind = gguf.GGMLQuantizationType[format]
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, 16.0)
    for name, matrix in (("blk.0.attn_q.weight.lora_a", a), ("blk.0.attn_q.weight.lora_b", b)):
        writer.add_tensor(name, gguf.quants.quantize(matrix, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if format == "Q4_0":
        with pytest.raises(AdapterError, match="is Q4_0; adapters in F32, F16, BF16 or Q8_0"):
            read_adapter(tmp_path / "a.gguf")
        return
    found = read_adapter(tmp_path / "a.gguf")
    assert found.alpha == 16.0 and found.ranks == (32,)
    for matrix, read in zip((a, b), found.matrices["blk.0.attn_q.weight"], strict=True):
        assert (read == gguf.quants.dequantize(gguf.quants.quantize(matrix, kind), kind)).all()


def test_an_adapter_is_no_model_and_is_given_once(tmp_path: Path) -> None:
    base = make(tmp_path, "llama", "Q4_0")
    path, _ = adapter(base, "a.gguf", ["blk.0.attn_q.weight"], rank=4)
    with pytest.raises(FileError, match="a LoRA adapter, .* with --lora"):
        open_model_file(path)
    with pytest.raises(AdapterError, match="given twice"):
        open_adapted(base, [AdapterChoice(path=path), AdapterChoice(path=path, scale=2.0)])
    with pytest.raises(FileError):
        open_adapted(base, [AdapterChoice(path=tmp_path / "missing.gguf")])


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), 1001.0, -5e9])
def test_a_scale_that_makes_no_sense_is_refused(scale: float) -> None:
    with pytest.raises(OptionError, match=r"the scale of a.gguf \(--lora\)"):
        AdapterChoice(path=Path("a.gguf"), scale=scale)
