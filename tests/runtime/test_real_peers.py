"""Real models against llama.cpp, plain and with a LoRA adapter: with nothing rounded, both compute the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from peer_models import own_distance, peer_model

from models.gguf_file import open_model_file
from models.vocabulary import load_vocabulary


@pytest.mark.parametrize("name", ["smollm2-135m", "gemma3-270m"])
def test_a_real_model_gives_what_llama_cpp_gives(name: str, model_path: Callable[[str], Path]) -> None:
    peer = peer_model(name)
    assert peer is not None
    found, theirs = own_distance(model_path(name), peer, "exact"), peer.own_rounding
    assert found.mean_kl < 1e-4 and found.same_best == 1.0, found
    assert found.mean_kl < theirs.mean_kl / 20, (found, theirs)


def test_a_real_model_with_an_adapter_gives_what_llama_cpp_gives(
    model_path: Callable[[str], Path], tmp_path: Path
) -> None:
    peer, without = peer_model("smollm2-135m", with_lora=True), peer_model("smollm2-135m")
    assert peer is not None and without is not None
    found = own_distance(model_path("smollm2-135m"), peer, "exact", tmp_path)
    assert found.mean_kl < 1e-4 and found.same_best == 1.0, found
    assert (peer.best_ids[:, 0] != without.best_ids[:, 0]).any(), "the adapter changes nothing"


@pytest.mark.parametrize("name", ["smollm2-135m", "gemma3-270m"])
def test_a_text_has_llama_cpps_ids(name: str, model_path: Callable[[str], Path]) -> None:
    peer = peer_model(name)
    assert peer is not None
    with open_model_file(model_path(name)) as file:
        vocabulary = load_vocabulary(file.metadata)
    assert vocabulary.encode(peer.text, add_special=True, parse_special=False) == peer.ids.tolist()
