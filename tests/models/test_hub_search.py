"""Searching the hub: what is asked, what is read of the answer, and how it fails."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_hub import FakeHub, serve_hub

from models.errors import DownloadError
from models.hub import HubAccess
from models.hub_search import HubRepository, models_of_repository, search_repositories


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with serve_hub(FakeHub()) as hub:
        yield hub


def access_to(hub: FakeHub) -> HubAccess:
    return HubAccess(endpoint=hub.address)


def test_what_is_found_is_told_with_its_licence_and_size(hub: FakeHub) -> None:
    hub.add("someone/Tiny-GGUF", "Tiny-Q8_0.gguf", b"x")
    hub.add("someone/Other-GGUF", "Other-Q8_0.gguf", b"x")
    hub.add("else/tiny", "tiny.gguf", b"x")
    hub.extras["someone/Tiny-GGUF"] = {
        "tags": ["gguf", "license:apache-2.0", 5],
        "gguf": {"architecture": "llama", "total": 135_000_000},
        "downloads": 1234,
        "gated": "auto",
    }
    hub.extras["else/tiny"] = {"tags": None, "gguf": "x", "downloads": None}
    found = search_repositories("tiny", access_to(hub), limit=7)
    assert found == (
        HubRepository(
            name="someone/Tiny-GGUF",
            licence="apache-2.0",
            architecture="llama",
            num_parameters=135_000_000,
            num_downloads=1234,
            is_gated=True,
        ),
        HubRepository(name="else/tiny", licence="", architecture="", num_parameters=0, num_downloads=0, is_gated=False),
    )
    (asked,) = hub.searches
    assert (asked["search"], asked["filter"], asked["limit"]) == (["tiny"], ["gguf"], ["7"])


def test_a_repository_offers_its_models_with_their_sizes(hub: FakeHub) -> None:
    for name, size in (
        ("Tiny-Q8_0.gguf", 90),
        ("Tiny-Q4_K_M.gguf", 50),
        ("mmproj-F16.gguf", 5),
        ("Tiny-F16-00001-of-00002.gguf", 100),
        ("Tiny-F16-00002-of-00002.gguf", 60),
        ("odd.gguf", 7),
        ("README.md", 1),
    ):
        hub.add("someone/Tiny-GGUF", name, bytes(size))
    found = models_of_repository("someone/Tiny-GGUF", access_to(hub))
    assert [(model.reference, model.quantisation, model.size_bytes, model.file_names) for model in found] == [
        ("someone/Tiny-GGUF:odd.gguf", "", 7, ("odd.gguf",)),
        ("someone/Tiny-GGUF:Q4_K_M", "Q4_K_M", 50, ("Tiny-Q4_K_M.gguf",)),
        ("someone/Tiny-GGUF:Q8_0", "Q8_0", 90, ("Tiny-Q8_0.gguf",)),
        ("someone/Tiny-GGUF:F16", "F16", 160, ("Tiny-F16-00001-of-00002.gguf", "Tiny-F16-00002-of-00002.gguf")),
    ]


def test_models_of_one_quantisation_are_told_apart_by_their_files(hub: FakeHub) -> None:
    hub.add("someone/Two", "small-Q8_0.gguf", b"x")
    hub.add("someone/Two", "large-Q8_0.gguf", b"xx")
    found = models_of_repository("someone/Two", access_to(hub))
    assert [model.reference for model in found] == ["someone/Two:small-Q8_0.gguf", "someone/Two:large-Q8_0.gguf"]


def test_no_network_is_one_sentence_at_once() -> None:
    with pytest.raises(DownloadError, match="can't be reached for a search for 'tiny'"):
        search_repositories("tiny", HubAccess(endpoint="http://127.0.0.1:9"))
    with pytest.raises(DownloadError, match="Downloads are off"):
        search_repositories("tiny", HubAccess(is_offline=True))


def test_a_hub_in_trouble_is_one_sentence(hub: FakeHub) -> None:
    hub.search_status = 503
    with pytest.raises(DownloadError, match="answered 503"):
        search_repositories("tiny", access_to(hub))
