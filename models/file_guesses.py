"""Guesses about files that are not what they should be: what they are instead, and what to do.

Owns the telltale first bytes and file names.  Does not open anything and does not decide whether a file is accepted.
"""

from __future__ import annotations

import re

FETCH_AGAIN = "The download was probably cut off, or the file is damaged: fetch it again."

_PIECE_PATTERNS = (
    re.compile(r"(?P<whole>.+\.gguf)\.part(?P<piece>\d+)of(?P<count>\d+)", re.IGNORECASE),
    re.compile(r"(?P<whole>.+\.gguf)\.(?P<piece>\d{3})", re.IGNORECASE),
    re.compile(r"(?P<whole>.+\.gguf)[-.](?:split-?|part-?)(?P<piece>\d+|[a-z])", re.IGNORECASE),
)
"""Names of pieces that were cut at any byte: each alone is useless, put together they are the file."""

_UNFINISHED_ENDINGS = (".part", ".partial", ".incomplete", ".crdownload", ".download", ".tmp", ".aria2")

_BEFORE_GGUF = "a GGML file from before GGUF: convert the original model again with a current converter"
_FIRST_BYTES = (
    (b"PK\x03\x04", "a ZIP archive or a PyTorch checkpoint"),
    (b"\x1f\x8b", "a gzip archive: unpack it first"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive: unpack it first"),
    (b"\xfd7zXZ\x00", "an xz archive: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive: unpack it first"),
    (b"\x80\x02", "a Python pickle, probably an old PyTorch checkpoint"),
    (b"\x89HDF\r\n", "an HDF5 file"),
    (b"version https://git-lfs", "a Git LFS pointer, not the model: run `git lfs pull`, or download the file itself"),
    (b"tjgg", _BEFORE_GGUF),
    (b"fmgg", _BEFORE_GGUF),
    (b"lmgg", _BEFORE_GGUF),
    (b"\x00" * 16, "a download that reserved its space and then never finished: fetch it again"),
)


def guess_from_content(first_bytes: bytes) -> str:
    """What a file that is not GGUF seems to be, by its first 64 bytes or more; one sentence, or "" without an idea."""
    for beginning, description in _FIRST_BYTES:
        if first_bytes.startswith(beginning):
            return f"It looks like {description}."
    text = first_bytes.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype", b"<html", b"<head", b"<?xml")):
        return "It looks like a web page: the address was not that of the file itself, or needs a login."
    if len(first_bytes) > 8 and first_bytes[8:9] == b"{" and int.from_bytes(first_bytes[:8], "little") < 1 << 32:
        return "It looks like a safetensors file: convert it to GGUF first, or download a GGUF version."
    if text.startswith((b"{", b"[")):
        return "It looks like JSON, perhaps an error message of the server it came from."
    return ""


def guess_from_name(name: str) -> str:
    """Why a file of that name may be incomplete and how to complete it; one sentence, or "" without an idea."""
    for pattern in _PIECE_PATTERNS:
        match = pattern.fullmatch(name)
        if match:
            return (
                f"By its name it is piece {match['piece']} of a file that was cut up: put all pieces together again, "
                f"in order, with `cat PIECES... > {match['whole']}`."
            )
    if name.lower().endswith(_UNFINISHED_ENDINGS):
        return "By its name it is a download that has not finished."
    return ""
