"""The synthetic models that other tests stand on, read by the `gguf` package."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import gguf
import numpy as np
import pytest
from gguf import quants
from tiny_models import byte_pair_vocabulary, sentence_piece_vocabulary, write_tiny_model

from models.description import load_description
from models.formats import FORMATS
from models.gguf_file import open_model_file


@pytest.mark.parametrize("format_name", FORMATS)
def test_the_weights_are_valid_and_tame_in_every_format(format_name: str, tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", format=format_name)
    assert 100_000 < path.stat().st_size < 2_000_000
    matrices = [tensor for tensor in gguf.GGUFReader(path).tensors if len(tensor.shape) == 2]
    assert {tensor.tensor_type.name for tensor in matrices} == {format_name}
    for tensor in matrices:
        weights = quants.dequantize(tensor.data, tensor.tensor_type)
        assert weights.shape == tuple(tensor.shape)[::-1]
        assert np.isfinite(weights).all()
        assert 0.8 < weights.std() * weights.shape[1] ** 0.5 < 1.2
        assert abs(weights.mean()) < 0.2 * weights.std()


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3"])
@pytest.mark.parametrize("is_tied", [True, False])
def test_every_architecture_is_whole(
    architecture: Literal["llama", "qwen2", "gemma3"], is_tied: bool, tmp_path: Path
) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", architecture=architecture, is_tied=is_tied)
    with open_model_file(path) as file:
        description = load_description(file)
        assert description.architecture.name == architecture
        assert ("output.weight" in file.tensors) is not is_tied


def test_equal_arguments_give_equal_bytes_and_seeds_differ(tmp_path: Path) -> None:
    first = write_tiny_model(tmp_path / "a.gguf", format="Q4_K", seed=3).read_bytes()
    assert write_tiny_model(tmp_path / "b.gguf", format="Q4_K", seed=3).read_bytes() == first
    assert write_tiny_model(tmp_path / "c.gguf", format="Q4_K", seed=4).read_bytes() != first


def test_formats_can_be_mixed_and_metadata_changed(tmp_path: Path) -> None:
    path = write_tiny_model(
        tmp_path / "tiny.gguf",
        format="Q8_0",
        formats={"token_embd": "Q6_K", "attn_v": "Q5_0"},
        metadata={"tokenizer.chat_template": None, "general.name": "Mixed"},
        vocabulary="sentence_pieces",
    )
    with open_model_file(path) as file:
        assert file.tensors["token_embd.weight"].format.name == "Q6_K"
        assert file.tensors["blk.1.attn_v.weight"].format.name == "Q5_0"
        assert file.tensors["blk.1.attn_q.weight"].format.name == "Q8_0"
        assert "tokenizer.chat_template" not in file.metadata
        assert file.metadata["general.name"] == "Mixed"
        assert file.metadata["tokenizer.ggml.model"] == "llama"


def test_the_byte_pair_vocabulary_covers_every_byte_and_its_merges() -> None:
    vocabulary = byte_pair_vocabulary()
    tokens = vocabulary["tokenizer.ggml.tokens"]
    assert len(set(tokens)) == len(tokens) == len(vocabulary["tokenizer.ggml.token_type"])
    assert sum(len(token) == 1 for token in tokens) == 256
    known = set(tokens)
    for merge in vocabulary["tokenizer.ggml.merges"]:
        left, right = merge.split(" ")
        assert {left, right, left + right} <= known
    assert "Ġthe" in known


def test_the_sentence_piece_vocabulary_has_distinct_pieces_and_scores_by_rank() -> None:
    vocabulary = sentence_piece_vocabulary()
    tokens, scores = vocabulary["tokenizer.ggml.tokens"], vocabulary["tokenizer.ggml.scores"]
    assert len(set(tokens)) == len(tokens) == len(scores) == len(vocabulary["tokenizer.ggml.token_type"])
    assert "▁the" in tokens
    assert scores[262:] == sorted(scores[262:], reverse=True)
