"""Paths that lead to no GGUF file: each error says what is there instead and what to do."""

from __future__ import annotations

import errno
import gzip
import json
import os
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tiny_models import write_tiny_model

from models.errors import FileError
from models.file_reader import FileReader
from models.gguf_file import open_model_file


def refusal(path: Path | str) -> str:
    with pytest.raises(FileError) as caught:
        open_model_file(path)
    return str(caught.value)


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    assert refusal(tmp_path / "nothing.gguf") == f"'{tmp_path / 'nothing.gguf'}' does not exist."
    (tmp_path / "link.gguf").symlink_to("nowhere")
    assert refusal(tmp_path / "link.gguf").endswith("link.gguf' does not exist.")


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.gguf"
    path.touch()
    assert refusal(path) == f"'{path}' is empty (0 bytes): the download never began, fetch it again."


def test_a_folder_names_the_models_in_it(tmp_path: Path) -> None:
    assert refusal(tmp_path).endswith("is a folder: name the .gguf file in it (there is none at its top level).")
    for name in ("b.gguf", "a.gguf", "readme.txt"):
        (tmp_path / name).touch()
    assert refusal(tmp_path).endswith("(it holds 'a.gguf', 'b.gguf').")
    for name in ("c.gguf", "d.gguf"):
        (tmp_path / name).touch()
    assert refusal(tmp_path).endswith("(it holds 'a.gguf', 'b.gguf', 'c.gguf' and others).")


def test_a_file_without_permission(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "secret.gguf")
    path.chmod(0)
    # The administrator may read everything, so the child gives that up first.
    code = (
        "import os, sys\nfrom models.gguf_file import FileError, open_model_file\n"
        "if os.geteuid() == 0: os.setuid(65534)\n"
        "try: open_model_file(sys.argv[1])\n"
        "except FileError as error: print(error)"
    )
    root = Path(__file__).resolve().parents[2]
    run = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, cwd=root, check=True)
    assert run.stdout == f"'{path}' may not be read by this user: give it permission (`chmod +r`).\n"


def test_pipes_sockets_and_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    assert "is not a regular file but a device, pipe or socket" in refusal(tmp_path / "pipe.gguf")
    assert "is not a regular file but a device, pipe or socket" in refusal("/dev/null")
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s.gguf")
        assert "'s.gguf' cannot be opened:" in refusal("s.gguf")


def test_impossible_paths(tmp_path: Path) -> None:
    assert refusal("a\0b.gguf").startswith(r"'a\x00b.gguf' is not a possible path: ")
    assert "cannot be opened:" in refusal(tmp_path / ("x" * 5000))
    (tmp_path / "file").touch()
    assert "cannot be opened:" in refusal(tmp_path / "file" / "m.gguf")


def zip_bytes(path: Path) -> bytes:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", "x" * 100)
    return path.read_bytes()


def safetensors_bytes() -> bytes:
    head = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return len(head).to_bytes(8, "little") + head + bytes(4)


@pytest.mark.parametrize(
    ("data", "guess"),
    [
        (b"<!DOCTYPE html><html><body>Sign in</body></html>", "It looks like a web page: the address was not that"),
        (b"\xef\xbb\xbf\n <HTML lang='en'>", "It looks like a web page"),
        (b'{"error": "Repository not found"}', "It looks like JSON, perhaps an error message of the server"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "a Git LFS pointer, not the model"),
        (safetensors_bytes(), "It looks like a safetensors file: convert it to GGUF"),
        (gzip.compress(b"GGUF" * 100, mtime=0), "It looks like a gzip archive: unpack it first"),
        (b"tjgg\x03\x00\x00\x00" + bytes(64), "It looks like a GGML file from before GGUF"),
        (bytes(4096), "It looks like a download that reserved its space and then never finished"),
        (b"gguf\x03\x00\x00\x00", "Is it the right file?"),
        (b"G", "it begins with 'G', expected 'GGUF'"),
        (b"\x1b[31m\x1b]0;", r"it begins with '\x1b[31m\x1b]0', expected 'GGUF'. Is it the right file?"),
    ],
)
def test_what_is_there_instead_of_a_model_is_guessed(data: bytes, guess: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    message = refusal(path)
    assert message.startswith(f"'{path}' is not a GGUF file: it begins with ")
    assert guess in message
    assert "\x1b" not in message


def test_a_zip_archive_is_guessed(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(zip_bytes(tmp_path / "a.zip"))
    assert "It looks like a ZIP archive or a PyTorch checkpoint." in refusal(tmp_path / "m.gguf")


def test_a_later_piece_of_a_cut_up_file_is_known_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "m.gguf.part2of2").write_bytes(b"weights" * 100)
    message = refusal(tmp_path / "m.gguf.part2of2")
    assert "is not a GGUF file" in message
    assert "By its name it is piece 2 of a file that was cut up" in message


def test_ranges_and_windows(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    file = FileReader(tmp_path / "f")
    assert file.bytes_at(3, 0).size == 0
    assert bytes(file.bytes_at(1, 2)) == b"bc"
    data, start = file.window(1)
    assert data[1 - start :] == b"bc"
    with pytest.raises(FileError, match="changed while it was being read"):
        file.bytes_at(2, 2)
    file.close()


def test_a_disk_that_fails_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    path = write_tiny_model(tmp_path / "tiny.gguf")
    monkeypatch.setattr(os, "preadv", fail)
    assert refusal(path).endswith(
        "cannot be read at byte 0: Input/output error; look whether the disk or the network share it lies on is there."
    )
