"""Every architecture against llama.cpp, which shares no code with the other reference."""

from __future__ import annotations

import numpy as np
import pytest
import references
from peers import DIFFERENCES, FOLDER, peer_like_logits, peer_of
from references import references_of, relative_error

NAMES = [name for name in references.NAMES if peer_of(name) is not None]


@pytest.mark.parametrize("name", NAMES)
def test_a_declaration_gives_llama_cpps_logits_but_for_what_is_known_to_differ(name: str) -> None:
    peer = peer_of(name)
    assert peer is not None
    found = peer_like_logits(name, references_of(name)[0].ids)
    has_table = name in DIFFERENCES and "GELU" in DIFFERENCES[name].words
    assert relative_error(found, peer.plain) < (3e-4 if has_table else 1e-5)


@pytest.mark.parametrize("name", DIFFERENCES)
def test_what_is_known_to_differ_does_differ(name: str) -> None:
    """When llama.cpp is mended, its entry goes."""
    peer = peer_of(name)
    assert peer is not None
    assert relative_error(peer.plain, references_of(name)[0].logits) > 1e-4


def test_there_are_logits_of_llama_cpp_for_tiny_models_of_every_kind() -> None:
    assert len(NAMES) >= 14
    for name in NAMES:
        peer = peer_of(name)
        assert peer is not None and peer.plain.shape == peer.rounded.shape == references_of(name)[0].logits.shape
        assert np.isfinite(peer.plain).all() and np.isfinite(peer.rounded).all()
    assert {path.stem for path in FOLDER.glob("*.npz")} >= set(NAMES)
