"""The parser on anything: what is written is read, and changed bytes are read or refused, never more."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import Tensor, gguf_bytes

from models.errors import ModelError
from models.gguf_file import open_model_file


@given(st.binary(max_size=300), st.integers(0, 40), st.integers(0, 40))
def test_any_bytes_after_the_magic_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, body: bytes, num_tensors: int, num_keys: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "any-bytes.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, num_tensors, num_keys) + body)
    read_whole(path)


TEMPTING_NUMBERS = [struct.pack("<Q", 2**64 - 1), struct.pack("<Q", 2**31), struct.pack("<I", 9)]
VALUES = st.one_of(
    st.text(max_size=20),
    st.booleans(),
    st.integers(0, 2**32 - 1),
    st.floats(width=32, allow_nan=False),
    st.lists(st.text(st.characters(exclude_categories=()), max_size=8), min_size=1, max_size=20),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=20),
    st.lists(st.booleans(), min_size=1, max_size=20),
)
METADATA = st.dictionaries(st.text(min_size=1, max_size=12).map("x.".__add__), VALUES, max_size=8)
SIZES = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), max_size=6)


def small_model(metadata: dict[str, object], sizes: list[tuple[int, int]]) -> bytes:
    tensors = [
        Tensor(name=f"t{idx}", ggml_id=2, shape=(rows, 32 * blocks), data=bytes(rows * blocks * 18))
        for idx, (rows, blocks) in enumerate(sizes)
    ]
    return gguf_bytes(metadata, tensors)


def encodable(metadata: dict[str, object]) -> dict[str, object]:
    """Lone surrogates only where they stand for bytes, as surrogateescape has them; others cannot be written."""
    return {
        key: [item.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape") for item in value]
        if isinstance(value, list) and value and isinstance(value[0], str)
        else value
        for key, value in metadata.items()
    }


@given(METADATA, SIZES)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, metadata: dict[str, object], sizes: list[tuple[int, int]]
) -> None:
    metadata = encodable(metadata)
    path = tmp_path_factory.getbasetemp() / "round-trip.gguf"
    path.write_bytes(small_model(metadata, sizes))
    with open_model_file(path) as file:
        assert dict(file.metadata) == metadata
        assert [tensor.shape for tensor in file.tensors.values()] == [(rows, 32 * blocks) for rows, blocks in sizes]


@given(METADATA, SIZES, st.data())
def test_a_small_model_with_any_bytes_changed_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory,
    metadata: dict[str, object],
    sizes: list[tuple[int, int]],
    data: st.DataObject,
) -> None:
    model = bytearray(small_model(encodable(metadata), sizes))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(4, len(model) - 1))
        change = data.draw(st.one_of(st.binary(min_size=1, max_size=8), st.sampled_from(TEMPTING_NUMBERS)))
        model[start : start + data.draw(st.integers(0, len(change)))] = change
    path = tmp_path_factory.getbasetemp() / "changed.gguf"
    path.write_bytes(model)
    read_whole(path)


def read_whole(path: Path) -> None:
    """Every value and every byte of every tensor, or a ModelError."""
    try:
        with open_model_file(path) as file:
            dict(file.metadata)
            for name, info in file.tensors.items():
                assert info.end_bytes <= path.stat().st_size
                assert file.raw(name).size == info.size_bytes
    except ModelError:
        pass
