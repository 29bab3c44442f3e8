"""Reading sound GGUF files: every value type, every view, split models, and what closing means."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from tiny_models import Tensor, Typed, VocabularyKind, gguf_bytes, random_rows, write_tiny_model

from models.errors import FileError, ModelError, TensorError
from models.formats import FORMATS
from models.gguf_file import ModelFile, open_model_file
from models.gguf_values import LIST_ELEMENTS


def written(path: Path, metadata: dict[str, object], tensors: list[Tensor] | None = None, **options: int) -> Path:
    path.write_bytes(gguf_bytes(metadata, tensors or [], **options))
    return path


def plain_tensor(name: str, values: np.ndarray, ggml_id: int = 0) -> Tensor:
    return Tensor(name=name, ggml_id=ggml_id, shape=values.shape, data=values.tobytes())


@pytest.mark.parametrize(
    ("number", "value"),
    [
        (0, 255),
        (1, -128),
        (2, 65535),
        (3, -32768),
        (4, 2**32 - 1),
        (5, -(2**31)),
        (6, 0.15625),
        (7, True),
        (7, False),
        (8, "grüße 模型 \0 end"),
        (8, ""),
        (10, 2**64 - 1),
        (11, -(2**63)),
        (12, 0.1),
    ],
)
def test_every_scalar_comes_back_with_its_python_type(number: int, value: object, tmp_path: Path) -> None:
    with open_model_file(written(tmp_path / "x.gguf", {"a": Typed(type=number, value=value)})) as file:
        assert file.metadata["a"] == value
        assert type(file.metadata["a"]) is type(value)


@pytest.mark.parametrize("count", [0, 1, LIST_ELEMENTS, LIST_ELEMENTS + 1])
@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (0, "u1"),
        (1, "i1"),
        (2, "u2"),
        (3, "i2"),
        (4, "u4"),
        (5, "i4"),
        (6, "f4"),
        (7, "?"),
        (10, "u8"),
        (11, "i8"),
        (12, "f8"),
    ],
)
def test_short_arrays_are_lists_and_long_ones_numpy(number: int, dtype: str, count: int, tmp_path: Path) -> None:
    values = (np.arange(count) % 100).astype(dtype).tolist()
    array = Typed(type=9, value=[Typed(type=number, value=value) for value in values])
    with open_model_file(written(tmp_path / "x.gguf", {"a": array, "after": 7})) as file:
        found = file.metadata["a"]
        assert file.metadata["after"] == 7
    if count <= LIST_ELEMENTS:
        assert isinstance(found, list)
        assert found == values
        assert all(type(one) is type(other) for one, other in zip(found, values, strict=True))
    else:
        assert isinstance(found, np.ndarray)
        assert found.dtype == dtype
        assert found.tolist() == values


@pytest.mark.parametrize(
    "strings",
    [
        [],
        [""],
        ["", "", ""],
        ["plain", "grüße", "模型", "😀", "\n", " ", "▁the"],
        ["a NUL \0 inside", "\0", "", "\0\0"],
        ["half a character \udce2\udc96", "\udcff", "next"],
        ["x" * 70_000, "y"],
        ["a"] * 3000 + ["b" * 255] + ["c"] * 3000 + ["d" * 256] + ["e"] * 3000 + ["f" * 300, "g" * 70_000],
        ["h" * (5000 + idx) for idx in range(2000)],
    ],
)
def test_string_arrays_come_back_whole(strings: list[str], tmp_path: Path) -> None:
    array = Typed(type=9, value=[Typed(type=8, value=text) for text in strings])
    with open_model_file(written(tmp_path / "x.gguf", {"a": array, "after": "z"})) as file:
        assert file.metadata["a"] == strings
        assert file.metadata["after"] == "z"


def test_nested_arrays_are_read(tmp_path: Path) -> None:
    def array(*values: Typed) -> Typed:
        return Typed(type=9, value=list(values))

    one, two = array(Typed(type=5, value=1)), array(Typed(type=8, value="two"), Typed(type=8, value=""))
    with open_model_file(written(tmp_path / "x.gguf", {"a": array(array(one), array(two, one)), "z": 1})) as file:
        assert file.metadata["a"] == [[[1]], [["two", ""], [1]]]


def test_metadata_is_a_mapping_in_file_order(tmp_path: Path) -> None:
    metadata = {"b": 1, "a": "two", "c": [1, 2, 3]}
    with open_model_file(written(tmp_path / "x.gguf", metadata)) as file:
        assert dict(file.metadata) == metadata
        assert list(file.metadata) == ["b", "a", "c"]
        assert "d" not in file.metadata
        assert file.metadata.get("d") is None


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [8, 32, 4096])
def test_tensors_lie_where_the_alignment_puts_them(version: int, alignment: int, tmp_path: Path) -> None:
    tensors = [plain_tensor(f"t{size}", np.arange(size, dtype="<f4")) for size in (1, 7, 33, 2)]
    path = written(tmp_path / "x.gguf", {"general.alignment": alignment}, tensors, version=version, alignment=alignment)
    with open_model_file(path) as file:
        assert file.version == version
        for tensor in tensors:
            assert file.tensors[tensor.name].offset_bytes % alignment == 0
            assert file.floats(tensor.name).tolist() == list(range(tensor.shape[0]))


def test_shapes_are_in_numpy_order_and_rows_are_counted(tmp_path: Path) -> None:
    values = np.arange(2 * 3 * 5 * 4, dtype="<f4").reshape(2, 3, 5, 4)
    with open_model_file(written(tmp_path / "x.gguf", {}, [plain_tensor("t", values)])) as file:
        tensor = file.tensors["t"]
        assert (tensor.shape, tensor.num_rows, tensor.num_columns) == ((2, 3, 5, 4), 30, 4)
        assert (tensor.row_bytes, tensor.size_bytes) == (16, 480)
        assert file.raw("t").shape == (30, 16)
        assert np.array_equal(file.floats("t"), values)


@pytest.mark.parametrize("name", FORMATS)
def test_raw_bytes_are_those_written_and_read_only(name: str, tmp_path: Path) -> None:
    rows = random_rows(name, (3, 512), np.random.default_rng(1), std=1.0)
    tensor = Tensor(name="t", ggml_id=FORMATS[name].ggml_id, shape=(3, 512), data=rows.tobytes())
    with open_model_file(written(tmp_path / "x.gguf", {}, [tensor])) as file:
        raw = file.raw("t")
        assert np.array_equal(raw, rows)
        assert not raw.flags.writeable
        assert file.tensors["t"].format is FORMATS[name]


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_floats_convert_exactly(name: str, tmp_path: Path) -> None:
    values = np.array([[0.0, -1.5, 2.0**-14], [np.inf, -np.inf, 1024.0]], np.float32)
    data = {"F32": values, "F16": values.astype("<f2"), "BF16": (values.view("<u4") >> 16).astype("<u2")}[name]
    with open_model_file(written(tmp_path / "x.gguf", {}, [plain_tensor("t", data, FORMATS[name].ggml_id)])) as file:
        floats = file.floats("t")
    assert floats.dtype == np.float32
    assert np.array_equal(floats, values)


def test_floats_of_a_quantized_tensor_are_refused(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", format="Q4_1")
    with (
        open_model_file(path) as file,
        pytest.raises(TensorError, match=r"'blk\.0\.attn_q\.weight' is Q4_1, expected F32"),
    ):
        file.floats("blk.0.attn_q.weight")


def test_a_tensor_that_is_not_there_is_named(tmp_path: Path) -> None:
    with open_model_file(write_tiny_model(tmp_path / "tiny.gguf")) as file:
        for read in (file.raw, file.floats):
            with pytest.raises(TensorError, match=r"tiny\.gguf' has no tensor 'output\.weight'"):
                read("output.weight")


def test_rows_are_read_into_the_callers_memory(tmp_path: Path) -> None:
    values = np.arange(24, dtype="<f4").reshape(6, 4)
    path = written(tmp_path / "x.gguf", {}, [plain_tensor("before", values[:1]), plain_tensor("t", values)])
    rows = np.zeros((3, 16), np.uint8)
    with open_model_file(path) as file:
        file.read_rows("t", 2, rows)
        assert np.array_equal(rows.view("<f4"), values[2:5])
        with pytest.raises(AssertionError):
            file.read_rows("t", 4, rows)


def test_a_file_that_was_cut_while_open_is_an_error_and_no_signal(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf")
    with open_model_file(path) as file:
        first, last = list(file.tensors)[0], list(file.tensors)[-1]
        os.truncate(path, file.tensors[last].offset_bytes)
        assert file.raw(first).size
        rows = np.empty((1, file.tensors[last].row_bytes), np.uint8)
        for read in (lambda: file.raw(last), lambda: file.floats(last), lambda: file.read_rows(last, 0, rows)):
            with pytest.raises(FileError, match=r"changed while it was being read: it had [0-9,]+ bytes, now it has"):
                read()
        os.truncate(path, 100)
        with pytest.raises(FileError, match="now it has 100; wait until"):
            file.metadata["tokenizer.ggml.tokens"]
        with pytest.raises(FileError, match="changed while it was being read"):
            file.check_unchanged()


def test_a_file_that_was_replaced_while_open_is_read_as_it_was(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf")
    other = write_tiny_model(tmp_path / "other.gguf", seed=1)
    with open_model_file(path) as file, open_model_file(other) as same:
        before = {name: file.raw(name) for name in file.tensors}
        os.replace(other, path)
        assert all(np.array_equal(file.raw(name), raw) for name, raw in before.items())
        assert not all(np.array_equal(same.raw(name), raw) for name, raw in before.items())
        file.check_unchanged()


def test_what_was_read_outlives_the_file_and_more_is_refused(tmp_path: Path) -> None:
    file = open_model_file(write_tiny_model(tmp_path / "tiny.gguf"))
    view = file.raw("output_norm.weight")
    copy = view.copy()
    file.close()
    file.close()
    assert np.array_equal(view, copy)
    for use in (
        lambda: file.raw("output_norm.weight"),
        file.check_unchanged,
        lambda: file.metadata["tokenizer.ggml.tokens"],
    ):
        with pytest.raises(FileError, match=r"tiny\.gguf' has been closed"):
            use()


def test_what_was_read_of_the_metadata_stays_after_closing(tmp_path: Path) -> None:
    with open_model_file(write_tiny_model(tmp_path / "tiny.gguf")) as file:
        tokens = file.metadata["tokenizer.ggml.tokens"]
    assert file.metadata["tokenizer.ggml.tokens"] == tokens
    assert file.metadata["general.architecture"] == "llama"


def test_closing_frees_the_descriptor(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf")
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(path.read_bytes()[:-40_000])
    split = write_tiny_model(tmp_path / "split.gguf", num_parts=3)
    (tmp_path / "split-00002-of-00003.gguf").write_bytes(split.read_bytes())
    before = os.listdir("/dev/fd")
    for _ in range(3):
        open_model_file(path).close()
        for unfit in (damaged, split, tmp_path / "split-00003-of-00003.gguf"):
            with pytest.raises(ModelError):
                open_model_file(unfit)
    assert len(os.listdir("/dev/fd")) == len(before)


def test_a_file_that_changes_under_us_is_noticed(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf")
    with open_model_file(path) as file:
        file.check_unchanged()
        status = path.stat()
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000_000))
        with pytest.raises(FileError, match=r"tiny\.gguf' was written to while it was being read"):
            file.check_unchanged()
    with open_model_file(path) as file:
        os.truncate(path, 100)
        with pytest.raises(FileError, match=r"had [\d,]+ bytes, now it has 100; wait"):
            file.check_unchanged()


def test_the_fingerprint_knows_copies_and_sees_one_changed_weight_sample(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf")
    (tmp_path / "copy.gguf").write_bytes(path.read_bytes())
    changed = bytearray(path.read_bytes())
    changed[-1] ^= 1
    (tmp_path / "changed.gguf").write_bytes(changed)
    other = write_tiny_model(tmp_path / "other.gguf", metadata={"general.name": "Other"})
    prints = []
    for name in (path, tmp_path / "copy.gguf", tmp_path / "changed.gguf", other):
        with open_model_file(name) as file:
            prints.append(file.fingerprint)
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3


@pytest.mark.parametrize("folder", ["with blanks", "Модели", "模型", "full\u3000width", "emoji 😀", "not-utf8-\udcff"])
def test_paths_in_any_script_work(folder: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir()
    path = write_tiny_model(tmp_path / folder / f"{folder}.gguf")
    with open_model_file(path) as file:
        assert file.path == path
    with open_model_file(str(path)) as file:
        assert file.paths == (path,)
    path.write_bytes(b"not a model")
    with pytest.raises(FileError, match=r"is not a GGUF file") as caught:
        open_model_file(path)
    assert folder.replace("\udcff", r"\xff") in str(caught.value)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"general.type": "adapter"}, "is not a language model but a LoRA adapter, .* name the model it was made for"),
        ({"general.type": "mmproj"}, "the image or audio half of a model"),
        ({"general.architecture": "clip"}, "the image or audio half of a model"),
        ({"general.type": "imatrix"}, "an importance matrix"),
    ],
)
def test_gguf_files_that_are_no_models_are_refused(metadata: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=message):
        open_model_file(write_tiny_model(tmp_path / "x.gguf", metadata=metadata))


@pytest.mark.parametrize("key", ["general.type", "general.architecture"])
def test_a_kind_that_is_not_text_is_left_to_those_who_read_it(key: str, tmp_path: Path) -> None:
    with open_model_file(write_tiny_model(tmp_path / "x.gguf", metadata={key: [1] * 2000})) as file:
        assert key in file.metadata


def assert_equal_to_reference(path: Path, file: ModelFile) -> None:
    """Everything the `gguf` package's reader sees."""
    reader = gguf.GGUFReader(path)
    keys = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    found = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in file.metadata.items()}
    assert found == keys
    assert [tensor.name for tensor in reader.tensors] == list(file.tensors)
    for tensor in reader.tensors:
        mine = file.tensors[tensor.name]
        assert mine.offset_bytes == tensor.data_offset
        assert mine.size_bytes == tensor.n_bytes
        assert mine.shape == tuple(tensor.shape.tolist())[::-1]
        assert mine.format.name == tensor.tensor_type.name
        data = np.ascontiguousarray(tensor.data).view(np.uint8)
        assert np.array_equal(file.raw(tensor.name), data.reshape(mine.num_rows, mine.row_bytes))


def test_a_real_model_reads_as_the_reference_reads_it(model_path: Callable[[str], Path]) -> None:
    path = model_path("smollm2-135m")
    with open_model_file(path) as file:
        assert_equal_to_reference(path, file)


@pytest.mark.parametrize("vocabulary", ["byte_pair", "sentence_pieces"])
def test_a_tiny_model_reads_as_the_reference_reads_it(vocabulary: VocabularyKind, tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "x.gguf", vocabulary=vocabulary, architecture="gemma3", format="Q6_K")
    with open_model_file(path) as file:
        assert_equal_to_reference(path, file)
