"""The catalog's entries and what a typed model name means."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from models.catalog import CATALOG, DEFAULT_MODEL, HubSource, WheelSource
from models.downloads import fetch, resolve_model
from models.errors import ArchitectureError, DownloadError
from models.hub_names import HubReference, is_safe_name, parse_reference, pick_files, quantisation_of
from models.local_models import list_local, list_unfinished, models_folder, remove
from models.transfers import UNFINISHED_FOLDER, size_text

FILES = (
    "README.md",
    "Tiny-Q4_K_M.gguf",
    "Tiny-UD-Q4_K_XL.gguf",
    "Tiny-Q4_K_S.gguf",
    "Tiny-IQ4_NL.gguf",
    "Tiny-Q8_0.gguf",
    "mmproj-Tiny-F16.gguf",
    "big/Tiny-BF16-00002-of-00002.gguf",
    "big/Tiny-BF16-00001-of-00002.gguf",
)


def test_every_entry_is_complete() -> None:
    assert CATALOG[DEFAULT_MODEL].sha256 is not None
    for name, entry in CATALOG.items():
        assert name == entry.name == name.lower()
        assert parse_reference(name) is None, "a catalog name must not read as a repository"
        assert entry.size_bytes > 50e6 and entry.licence and entry.title
        assert is_safe_name(entry.local_name) and entry.local_name.endswith(".gguf")
        assert entry.sha256 is None or re.fullmatch("[0-9a-f]{64}", entry.sha256)
        for source in entry.sources:
            if isinstance(source, WheelSource):
                assert entry.sha256 is not None, "wheels publish no hash of the file inside"
                assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", text) for text in source.requirements)
            else:
                assert parse_reference(source.repository) is not None
                assert quantisation_of(source.file_name) is not None
    assert len({entry.local_name for entry in CATALOG.values()}) == len(CATALOG)


def test_the_verified_models_come_in_wheels_and_others_from_the_hub_alone() -> None:
    verified = {name for name, entry in CATALOG.items() if entry.sha256}
    assert verified == {"smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"}
    assert all(isinstance(CATALOG[name].sources[0], WheelSource) for name in verified)
    assert all(isinstance(source, HubSource) for name in set(CATALOG) - verified for source in CATALOG[name].sources)


@pytest.mark.parametrize(
    ("choice", "picked"),
    [
        (None, ("Tiny-Q4_K_M.gguf",)),
        ("Q4_K_M", ("Tiny-Q4_K_M.gguf",)),
        ("q4_k_s", ("Tiny-Q4_K_S.gguf",)),
        ("Q4_K_XL", ("Tiny-UD-Q4_K_XL.gguf",)),
        ("UD-Q4_K_XL", ("Tiny-UD-Q4_K_XL.gguf",)),
        ("IQ4_NL", ("Tiny-IQ4_NL.gguf",)),
        ("Q8_0", ("Tiny-Q8_0.gguf",)),
        ("tiny-q8_0.gguf", ("Tiny-Q8_0.gguf",)),
        ("bf16", ("big/Tiny-BF16-00001-of-00002.gguf", "big/Tiny-BF16-00002-of-00002.gguf")),
        (
            "big/Tiny-BF16-00001-of-00002.gguf",
            ("big/Tiny-BF16-00001-of-00002.gguf", "big/Tiny-BF16-00002-of-00002.gguf"),
        ),
    ],
)
def test_the_quantisation_picks_its_files(choice: str | None, picked: tuple[str, ...]) -> None:
    assert pick_files(FILES, choice, where="someone/Tiny-GGUF") == picked


@pytest.mark.parametrize("choice", ["Q4_K", "Q4", "F16", "NL", "mmproj-Tiny-F16.gguf"])
def test_part_of_a_quantisation_is_none(choice: str) -> None:
    with pytest.raises(DownloadError, match="has no .*; it has BF16, IQ4_NL, Q4_K_M, Q4_K_S, Q4_K_XL, Q8_0"):
        pick_files(FILES, choice, where="someone/Tiny-GGUF")


def test_without_a_usual_quantisation_one_must_be_chosen() -> None:
    assert pick_files(["only-IQ2_M.gguf"], None, where="a/b") == ("only-IQ2_M.gguf",)
    with pytest.raises(DownloadError, match="choose one of IQ2_M, IQ3_M as a/b:NAME"):
        pick_files(["x-IQ2_M.gguf", "x-IQ3_M.gguf"], None, where="a/b")


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("owner/repo", HubReference(repository="owner/repo")),
        ("owner/repo.v1-GGUF:Q4_K_M", HubReference(repository="owner/repo.v1-GGUF", choice="Q4_K_M")),
        ("smollm2-135m", None),
        ("owner/../repo", None),
        ("../owner", None),
        ("owner/repo:../x", None),
        ("a/b/c", None),
        ("/owner/repo", None),
        ("owner/", None),
    ],
)
def test_what_reads_as_a_repository(text: str, reference: HubReference | None) -> None:
    assert parse_reference(text) == reference


@pytest.mark.parametrize("name", ["", "..", "../x", "/x", "a/../x", "a//x", "./x", "a\\x", "C:x", "a\nx", "\x1bx"])
def test_names_that_leave_their_folder_are_unsafe(name: str) -> None:
    assert not is_safe_name(name)


def test_names_that_stay_are_safe() -> None:
    assert all(is_safe_name(name) for name in ("x.gguf", "a/b/x.gguf", "модель 模型.gguf", "..x"))


@pytest.mark.parametrize("folder_name", ["with spaces", "модели", "模型　全角"])
def test_paths_in_any_script_are_found(tmp_path: Path, folder_name: str) -> None:
    file = tmp_path / folder_name / "my model.gguf"
    file.parent.mkdir()
    file.write_bytes(b"GGUF")
    assert resolve_model(str(file), folder=tmp_path / "none", offline=True) == file
    assert resolve_model("my model.gguf", folder=file.parent, offline=True) == file


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("smolm2-135m", "did you mean smollm2-135m"),
        ("zzzz", "`tandem models list` shows the catalog"),
        ("there", "'there' is no catalog name"),
        ("", "'' is no catalog name"),
        ("missing.gguf", "There is no file missing.gguf"),
        ("./missing", "There is no file ./missing"),
        ("a/b/c", "There is no file a/b/c"),
        ("smollm2-135m", "run `tandem models pull smollm2-135m` where there is a network"),
        ("owner/repo:Q4_0", "run `tandem models pull owner/repo:Q4_0` where there is a network"),
    ],
)
def test_what_cannot_be_found_is_said_with_what_to_do(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(DownloadError, match=re.escape(sentence)):
        resolve_model(text, folder=tmp_path, offline=True)


def test_what_is_no_file_is_left_to_whoever_opens_it(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/null")):
        assert resolve_model(str(path), folder=tmp_path, offline=True) == path


@pytest.mark.parametrize(
    "text", ["~nobody-of-that-name/x.gguf", "./" + "x" * 300 + ".gguf", "x" * 5000, "a\0b", "./a\0b"]
)
def test_impossible_paths_are_no_crash(text: str, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"There is no file|is no catalog name"):
        resolve_model(text, folder=tmp_path, offline=True)


def test_a_model_that_could_not_be_run_is_refused_before_it_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.architectures.ARCHITECTURES", {"llama": None})
    monkeypatch.setattr("models.downloads.fetch", lambda *_: pytest.fail("nothing may be fetched"))
    with pytest.raises(ArchitectureError, match="has the architecture phi3, which this version can't run"):
        resolve_model("phi4-mini", folder=tmp_path)


def test_a_verified_model_of_the_wrong_size_counts_as_missing(tmp_path: Path) -> None:
    (tmp_path / CATALOG[DEFAULT_MODEL].file_name).write_bytes(b"cut")
    with pytest.raises(DownloadError, match="is not in the models folder"):
        resolve_model(DEFAULT_MODEL, folder=tmp_path, offline=True)


def test_a_present_catalog_model_is_kept_as_it_is(tmp_path: Path) -> None:
    entry = CATALOG["llama3.2-1b"]
    path = tmp_path / entry.local_name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF")
    assert fetch(entry, tmp_path) == path
    assert resolve_model("Llama3.2-1B", folder=tmp_path, offline=True) == path


def lay_out(folder: Path) -> None:
    for name in (
        CATALOG[DEFAULT_MODEL].file_name,
        "mine.gguf",
        "someone/Tiny-GGUF/Tiny-Q8_0.gguf",
        "someone/Tiny-GGUF/q2/Tiny-Q2_K-00001-of-00002.gguf",
        "someone/Tiny-GGUF/q2/Tiny-Q2_K-00002-of-00002.gguf",
        "notes.txt",
        f"{UNFINISHED_FOLDER}/someone--Tiny-GGUF--Tiny-Q4_0.gguf.0123456789ab.part",
        f"{UNFINISHED_FOLDER}/smollm2-135m-instruct-q4_1.gguf.0123456789ab.part",
        f"{UNFINISHED_FOLDER}/smollm2-135m-instruct-q4_1.gguf.0123456789ab.pieces.json",
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"four")


def test_the_folders_models_are_listed_under_the_names_that_open_them(tmp_path: Path) -> None:
    lay_out(tmp_path)
    found = {model.name: (len(model.paths), model.size_bytes) for model in list_local(tmp_path)}
    assert found == {
        DEFAULT_MODEL: (1, 4),
        "mine.gguf": (1, 4),
        "someone/Tiny-GGUF:Q2_K": (2, 8),
        "someone/Tiny-GGUF:Q8_0": (1, 4),
    }
    for model in list_local(tmp_path)[1:]:
        assert resolve_model(model.name, folder=tmp_path, offline=True) == model.paths[0]
    assert [left.file_name for left in list_unfinished(tmp_path)] == [
        "smollm2-135m-instruct-q4_1.gguf",
        "someone/Tiny-GGUF/Tiny-Q4_0.gguf",
    ]


def test_removing_takes_all_pieces_and_leftovers_and_nothing_else(tmp_path: Path) -> None:
    lay_out(tmp_path)
    assert len(remove("someone/tiny-gguf:q2_k", tmp_path)) == 2
    assert len(remove(DEFAULT_MODEL, tmp_path)) == 3
    assert len(remove("mine.gguf", tmp_path)) == 1
    assert [model.name for model in list_local(tmp_path)] == ["someone/Tiny-GGUF:Q8_0"]
    assert len(remove("someone/Tiny-GGUF", tmp_path)) == 2
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["notes.txt"]
    assert not (tmp_path / "someone").exists()


@pytest.mark.parametrize("name", ["nothing", "../outside.gguf", "notes.txt", "", "*"])
def test_removing_what_is_not_in_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "outside.gguf").write_bytes(b"GGUF")
    lay_out(tmp_path / "models")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DownloadError, match="is not in the models folder"):
        remove(name, tmp_path / "models")
    assert sorted(tmp_path.rglob("*")) == before


def test_an_absent_folder_is_empty(tmp_path: Path) -> None:
    assert list_local(tmp_path / "none") == []
    assert list_unfinished(tmp_path / "none") == []


def test_the_models_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TANDEM_MODELS_DIR", str(tmp_path))
    assert models_folder() == tmp_path
    monkeypatch.delenv("TANDEM_MODELS_DIR")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert models_folder().parts[-2:] == ("tandem", "models")
    assert tmp_path in models_folder().parents


def test_sizes_read_as_people_write_them() -> None:
    assert [size_text(size) for size in (0, 999, 1000, 98_362_432, 999_960_000, 5_027_783_488)] == [
        "0 bytes",
        "999 bytes",
        "1.0 kB",
        "98.4 MB",
        "1.0 GB",
        "5.0 GB",
    ]
