"""Headers that lie, and files cut short: each is refused, with the key or tensor and the field named."""

from __future__ import annotations

import re
import struct
import unicodedata
from pathlib import Path

import pytest
from tiny_models import Typed, gguf_bytes, write_tiny_model

from models.errors import ModelError
from models.gguf_file import open_model_file

UINT32_MAX, UINT64_MAX = 2**32 - 1, 2**64 - 1


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def text(value: str) -> bytes:
    return u64(len(value.encode())) + value.encode()


def header(*body: bytes, tensors: int = 0, keys: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + u32(version) + u64(tensors) + u64(keys) + b"".join(body) + bytes(64)


def tensor(name: str = "t", *, dimensions: tuple[int, ...] = (32,), ggml_id: int = 0, offset: int = 0) -> bytes:
    sizes = b"".join(map(u64, dimensions))
    return text(name) + u32(len(dimensions)) + sizes + u32(ggml_id) + u64(offset)


def nested_arrays(depth: int) -> bytes:
    return u32(9) + (u32(9) + u64(1)) * depth + u32(4) + u64(1) + u32(7)


F32, Q4_0, Q4_K = 0, 2, 12
KEY = text("k")

LIES = {
    "a million dimensions": (header(text("t"), u32(10**6), tensors=1), r"tensor 't' claims 1,000,000 dimensions, exp"),
    "2^32-1 dimensions": (header(text("t"), u32(UINT32_MAX), tensors=1), r"tensor 't' claims 4,294,967,295 dimensions"),
    "no dimensions": (header(tensor(dimensions=()), tensors=1), r"tensor 't' claims 0 dimensions, expected 1 to 4"),
    "five dimensions": (header(tensor(dimensions=(1,) * 5), tensors=1), r"tensor 't' claims 5 dimensions, expected 1"),
    "an empty dimension": (header(tensor(dimensions=(32, 0)), tensors=1), r"tensor 't' has the shape \[0 x 32\]"),
    "a byte count that wraps 64 bits": (
        header(tensor(dimensions=(2**42, 2**20)), tensors=1),
        r"but needs 18,446,744,073,709,551,\d+: 1 of 1 tensors are not complete, the first is 't' \(F32 \[1,048,576 x",
    ),
    "a product that wraps to a small one": (
        header(tensor(dimensions=(2**32, 2**32, 2**32, 2**32)), tensors=1),
        r"1 of 1 tensors are not complete, the first is 't'",
    ),
    "a dimension near 2^42 in blocks": (
        header(tensor(dimensions=(2**42,), ggml_id=Q4_K), tensors=1),
        r"but needs 2,473,901,162,\d+: .* the first is 't' \(Q4_K \[4,398,046,511,104\]",
    ),
    "an offset near 2^64": (
        header(tensor(offset=2**64 - 32), tensors=1),
        r"the first is 't' \(F32 \[32\], bytes 18,446,744,073,709,551,\d+ to 18,446",
    ),
    "an offset between alignments": (
        header(tensor(offset=8), tensors=1),
        r"'t' has the offset 8, expected a multiple of",
    ),
    "a row of half a block": (
        header(tensor(dimensions=(48,), ggml_id=Q4_0), tensors=1),
        r"'t' cannot be used. A row of 48",
    ),
    "a type from elsewhere": (
        header(tensor(ggml_id=9), tensors=1),
        r"tensor 't' cannot be used. Expected one of F32, F16, .* Q6_K, .*, BF16, found type Q8_1 \(number 9\)",
    ),
    "an unknown type": (
        header(tensor(ggml_id=UINT32_MAX), tensors=1),
        r"'t' cannot be used.* unknown type number 4294967295",
    ),
    "two tensors of one name": (header(tensor(), tensor(), bytes(256), tensors=2), r"tensor 't' occurs twice"),
    "overlapping tensors": (
        header(tensor("a", dimensions=(64,)), tensor("b", offset=32), bytes(512), tensors=2),
        r"tensors 'a' \(up to byte [\d,]+\) and 'b' \(from byte [\d,]+\) overlap",
    ),
    "2^64-1 tensors": (
        header(tensors=UINT64_MAX),
        r"header claims 18,446,744,073,709,551,615 tensors, expected at most",
    ),
    "more tensors than bytes": (
        header(tensors=60_000),
        r"list of 60,000 tensors begins at byte 24 and needs 1,980,000 bytes",
    ),
    "2^64-1 keys": (header(keys=UINT64_MAX), r"header claims 18,446,744,073,709,551,615 keys, expected at most 65,536"),
    "more keys than bytes": (
        header(keys=65_536),
        r"list of 65,536 keys begins at byte 24 and needs 917,504 bytes, but",
    ),
    "a key twice": (header(KEY + u32(4) + u32(1), KEY + u32(4) + u32(1), keys=2), r"key 'k' occurs twice"),
    "an empty key": (header(text("") + u32(4) + u32(1), keys=1), r"key 1 of 1 has an empty name"),
    "an endless key": (
        header(u64(2**30), keys=1),
        r"the name of key 1 of 1 claims to have 1,073,741,824 bytes, expected at",
    ),
    "a key of 2^64-1 bytes": (
        header(u64(UINT64_MAX), keys=1),
        r"the name of key 1 of 1 claims to have 18,446,744,073,709",
    ),
    "a key past the end": (
        header(u64(65_000), keys=1),
        r"name of key 1 of 1 begins at byte 32 and needs 65,000 bytes, but",
    ),
    "a text of 1 GiB": (
        header(KEY + u32(8) + u64(2**30), bytes(90), keys=1),
        r"the text of key 'k' claims to have 1,073,741",
    ),
    "a text past the end": (
        header(KEY + u32(8) + u64(10**6), keys=1),
        r"the text of key 'k' begins at .*needs 1,000,000 b",
    ),
    "an endless tensor name": (
        header(u64(2**30), bytes(9), tensors=1),
        r"the name of tensor 1 claims to have 1,073,741,824",
    ),
    "an unknown value type": (
        header(KEY + u32(13), keys=1),
        r"key 'k' has the unknown value type 13, expected 0 to 12",
    ),
    "value type 2^32-1": (
        header(KEY + u32(UINT32_MAX), keys=1),
        r"key 'k' has the unknown value type 4,294,967,295, exp",
    ),
    "an array of an unknown type": (
        header(KEY + u32(9) + u32(99) + u64(1), keys=1),
        r"key 'k' has the unknown value type 99",
    ),
    "an array of 2^63 numbers": (
        header(KEY + u32(9) + u32(10) + u64(2**63), keys=1),
        r"key 'k', an array of 9,223,372,036,854,775,808 x uint64, begins at byte \d+ and needs 73,786,976,294",
    ),
    "an array whose bytes wrap": (
        header(KEY + u32(9) + u32(4) + u64(2**62), keys=1),
        r"an array of 4,611,686,018,427,387,904",
    ),
    "an array of 2^60 strings": (
        header(KEY + u32(9) + u32(8) + u64(2**60), keys=1),
        r"key 'k' claims to hold 1,152,921,504",
    ),
    "more strings than bytes": (
        header(KEY + u32(9) + u32(8) + u64(2**20), keys=1),
        r"key 'k', an array of 1,048,576 strings,",
    ),
    "a string of 1 GiB in an array": (
        header(KEY + u32(9) + u32(8) + u64(2) + text("fine") + u64(2**30), keys=1),
        r"string 1 of key 'k' claims to have 1,073,741,824 bytes, expected at most",
    ),
    "a string past the end in an array": (
        header(KEY + u32(9) + u32(8) + u64(3) + text("fine") + u64(10**6), keys=1),
        r"string 1 of key 'k' begins at byte \d+ and needs 1,000,000 bytes, but the file ends",
    ),
    "arrays of arrays without end": (
        header(KEY + nested_arrays(1000), keys=1),
        r"key 'k' is an array of arrays more than 4",
    ),
    "2^40 arrays": (
        header(KEY + u32(9) + u32(9) + u64(2**40), keys=1),
        r"key 'k' claims to hold 1,099,511,627,776 arrays",
    ),
    "many arrays that are not there": (
        header(KEY + u32(9) + u32(9) + u64(60_000), keys=1),
        r"key 'k'.* the file ends at",
    ),
    "a boolean of 2": (header(KEY + u32(7) + b"\x02", keys=1), r"key 'k' is a boolean of value 2, expected 0 or 1"),
    "version 0": (header(version=0), r"has GGUF version 0, expected 2 or 3: it is damaged, or newer"),
    "version 1": (header(version=1), r"has GGUF version 1, expected 2 or 3: convert the original model again"),
    "version 4": (header(version=4), r"has GGUF version 4, expected 2 or 3"),
    "the other byte order": (header(version=3 << 24), r"is a big-endian GGUF file, expected a little-endian one"),
    "magic and nothing else": (b"GGUF", r"ends inside its header: it has 4 bytes and needs at least 24"),
    "23 bytes": (header()[:23], r"ends inside its header: it has 23 bytes"),
}
for alignment in (0, 1, 4, 48, 2**21, 2**30, UINT32_MAX):
    LIES[f"alignment {alignment}"] = (
        gguf_bytes({"general.alignment": alignment}, []),
        rf"key 'general\.alignment' is {alignment}, expected a power of two from 8 to 1,048,576",
    )
for shown, alignment in (("'32'", "32"), ("32.0", 32.0), ("an array of 1", [32]), ("True", True)):
    LIES[f"alignment {shown}"] = (
        gguf_bytes({"general.alignment": alignment}, []),
        rf"key 'general\.alignment' is {shown}, expected a power",
    )
for shown, count in (
    ("'3'", "3"),
    ("-1", Typed(type=5, value=-1)),
    ("70000", 70_000),
    ("an array of 2,000", [3] * 2000),
):
    LIES[f"{shown} parts"] = (
        gguf_bytes({"split.count": count}, []),
        rf"key 'split\.count' is {shown}, expected the num",
    )


@pytest.mark.parametrize("name", LIES)
def test_a_lying_header_is_refused_by_name(name: str, tmp_path: Path) -> None:
    data, message = LIES[name]
    path = tmp_path / "lie.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=message) as caught:
        open_model_file(path)
    assert str(caught.value).startswith(f"'{path}'")
    assert len(str(caught.value)) < len(str(path)) + 500


def test_text_beyond_all_measure_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_bytes({f"k{idx}": "x" * (4 << 20) for idx in range(5)}, []))
    with pytest.raises(ModelError, match=r"text of key 'k3' is text beyond the 16,777,216 bytes a header may have"):
        open_model_file(path)


def test_booleans_in_an_array_are_checked_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(header(KEY + u32(9) + u32(7) + u64(3) + b"\x00\x01\x02", keys=1))
    with open_model_file(path) as file, pytest.raises(ModelError, match="key 'k' holds booleans other than 0 and 1"):
        file.metadata["k"]


LAST_VALUES = {
    "a number": 255,
    "a text": "the end",
    "short strings": ["some", "words", "here"],
    "long strings": ["x" * 300, "y" * 300],
    "numbers": [1, 2, -1],
    "booleans": [True, True],
}


@pytest.mark.parametrize("name", LAST_VALUES)
def test_not_one_byte_of_a_header_may_be_missing(name: str, tmp_path: Path) -> None:
    whole = gguf_bytes({"a": [1, 2], "b": "text", "c": LAST_VALUES[name]}, []).rstrip(b"\0")
    whole += bytes(3) if name == "a number" else b""
    path = tmp_path / "x.gguf"
    path.write_bytes(whole)
    with open_model_file(path) as file:
        assert file.metadata["c"] == LAST_VALUES[name]
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelError, match=r"end|empty|not a GGUF file"):
            open_model_file(path)


def test_not_one_byte_of_the_last_tensor_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    start = -(-len(header(tensor(), tensors=1)[:-64]) // 32) * 32
    whole = header(tensor(), tensors=1)[:start].ljust(start, b"\0") + bytes(128)
    path.write_bytes(whole)
    with open_model_file(path) as file:
        assert file.tensors["t"].end_bytes == len(whole)
    path.write_bytes(whole[:-1])
    with pytest.raises(ModelError, match=rf"has {len(whole) - 1} bytes but needs {len(whole)}: 1 of 1 tensors"):
        open_model_file(path)


def test_tensors_may_touch_but_not_share_a_byte(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(header(tensor("b", offset=256), tensor("a", dimensions=(64,)), bytes(512), tensors=2))
    open_model_file(path).close()
    path.write_bytes(header(tensor("b", offset=224), tensor("a", dimensions=(64,)), bytes(512), tensors=2))
    with pytest.raises(ModelError, match=r"'a' \(up to byte [\d,]+\) and 'b' \(from byte [\d,]+\) overlap"):
        open_model_file(path)


def test_four_levels_of_arrays_are_read_and_five_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(header(KEY + nested_arrays(3), keys=1))
    with open_model_file(path) as file:
        assert file.metadata["k"] == [[[[7]]]]
    path.write_bytes(header(KEY + nested_arrays(4), keys=1))
    with pytest.raises(ModelError, match="key 'k' is an array of arrays more than 4 levels deep"):
        open_model_file(path)


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"


@pytest.mark.parametrize(
    "data",
    [
        header(text(HOSTILE) + u32(99), keys=1),
        header(text(HOSTILE) + u32(4) + u32(1), text(HOSTILE), keys=2),
        header(text(HOSTILE) + u32(9) + u32(8) + u64(2) + text("a") + u64(2**30), keys=1),
        header(tensor(HOSTILE, dimensions=()), tensors=1),
        header(tensor(HOSTILE, ggml_id=77), tensors=1),
        header(tensor(HOSTILE, offset=1), tensors=1),
        header(tensor(HOSTILE, offset=2**40), tensors=1),
        header(tensor(HOSTILE), tensor(HOSTILE), bytes(256), tensors=2),
        header(tensor(HOSTILE, dimensions=(64,)), tensor(HOSTILE + "2", offset=32), bytes(512), tensors=2),
        gguf_bytes({"general.alignment": HOSTILE}, []),
        gguf_bytes({"split.count": HOSTILE}, []),
        HOSTILE.encode(),
    ],
)
def test_names_are_shown_escaped(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"{HOSTILE.replace('/', '')}.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelError) as caught:
        open_model_file(path)
    message = str(caught.value)
    assert r"\x1b" in message
    assert not {unicodedata.category(character) for character in message} & {"Cc", "Cf"}


def test_a_cut_file_says_what_it_has_what_it_needs_and_what_is_missing(tmp_path: Path) -> None:
    whole = write_tiny_model(tmp_path / "whole.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError) as caught:
        open_model_file(path)
    found = re.search(
        r"has (?P<has>[\d,]+) bytes but needs (?P<needs>[\d,]+): \d+ of 20 tensors are not complete, the first is "
        r"'(?P<name>[\w.]+)' \(\S+ \[.*\], bytes (?P<start>[\d,]+) to (?P<end>[\d,]+)\)\. The download was probably",
        str(caught.value),
    )
    assert found
    number = {key: int(value.replace(",", "")) for key, value in found.groupdict().items() if key != "name"}
    assert number["has"] == len(whole) // 2
    assert len(whole) - 32 < number["needs"] <= len(whole)
    assert number["start"] <= number["has"] < number["end"]
    path.write_bytes(whole[: number["end"]])
    with pytest.raises(ModelError) as caught:
        open_model_file(path)
    assert f"'{found['name']}'" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("m.gguf.part1of2", r"By its name it is piece 1 of a file that was cut up: .* `cat PIECES\.\.\. > m\.gguf`"),
        ("m.gguf.002", r"it is piece 002 of a file"),
        ("m.gguf-split-a", r"it is piece a of a file"),
        ("m.gguf.part", r"it is a download that has not finished"),
        ("m.gguf.incomplete", r"it is a download that has not finished"),
        ("m.gguf", r"The download was probably cut off, or the file is damaged: fetch it again"),
    ],
)
def test_the_name_of_a_cut_file_is_a_hint(name: str, message: str, tmp_path: Path) -> None:
    whole = write_tiny_model(tmp_path / "whole.gguf").read_bytes()
    for size in (50, 3000, len(whole) // 2):
        (tmp_path / name).write_bytes(whole[:size])
        with pytest.raises(ModelError, match=message):
            open_model_file(tmp_path / name)
