"""Models in several files: any part opens all, and parts that do not fit are named."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tiny_models import Tensor, gguf_bytes, write_tiny_model

from models.errors import FileError, ModelError
from models.gguf_file import open_model_file

SECOND = {"split.no": 1, "split.count": 2}
EMBEDDING = Tensor(name="token_embd.weight", ggml_id=0, shape=(8,), data=np.zeros(8, "<f4").tobytes())


def test_a_split_model_opens_as_one_from_any_part(tmp_path: Path) -> None:
    whole = write_tiny_model(tmp_path / "whole.gguf", seed=5)
    first = write_tiny_model(tmp_path / "split.gguf", num_parts=3, seed=5)
    assert first.name == "split-00001-of-00003.gguf"
    prints = set()
    for number in (1, 2, 3):
        with open_model_file(whole) as one, open_model_file(tmp_path / f"split-0000{number}-of-00003.gguf") as many:
            assert len(many.paths) == 3
            assert many.size_bytes == sum(path.stat().st_size for path in many.paths)
            assert list(many.tensors) == list(one.tensors)
            assert many.metadata["general.name"] == one.metadata["general.name"]
            for name in one.tensors:
                assert np.array_equal(many.raw(name), one.raw(name))
            many.check_unchanged()
            prints.add(many.fingerprint)
    assert len(prints) == 1


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "split.gguf", num_parts=3)
    (tmp_path / "split-00002-of-00003.gguf").unlink()
    with pytest.raises(FileError, match=r"is one of 3 parts of a model, and 'split-00002-of-00003\.gguf' is missing"):
        open_model_file(tmp_path / "split-00003-of-00003.gguf")
    (tmp_path / "split-00001-of-00003.gguf").unlink()
    with pytest.raises(FileError, match=r"'split-00001-of-00003\.gguf' and 1 more is missing beside it"):
        open_model_file(tmp_path / "split-00003-of-00003.gguf")


def test_a_part_under_another_name_says_what_it_should_be_called(tmp_path: Path) -> None:
    first = write_tiny_model(tmp_path / "split.gguf", num_parts=2)
    renamed = first.rename(tmp_path / "mymodel.gguf")
    with pytest.raises(FileError, match=r"is one of 2 parts .* expected a name like 'model-00001-of-00002\.gguf'"):
        open_model_file(renamed)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda a, b: b.write_bytes(a.read_bytes()), r"00002\.gguf': key 'split\.no' is 0, expected 1 by the file's"),
        (lambda a, b: write_tiny_model(b), r"key 'split\.no' is missing, expected 1"),
        (lambda a, b: b.write_bytes(gguf_bytes(SECOND | {"split.count": 5}, [])), r"'split\.count' is 5, expected 2"),
        (lambda a, b: b.write_bytes(gguf_bytes(SECOND, [])), r"hold 10 tensors, expected 20"),
        (lambda a, b: b.write_bytes(gguf_bytes(SECOND, [EMBEDDING])), r"'token_embd\.weight' is in another part too"),
        (lambda a, b: b.write_bytes(gguf_bytes(SECOND | {"split.no": [0] * 2000}, [])), r"is an array of 2,000"),
        (lambda a, b: os.truncate(b, 70), r"00002\.gguf'.*the file ends at byte 70"),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(
    spoil: Callable[[Path, Path], object], message: str, tmp_path: Path
) -> None:
    first = write_tiny_model(tmp_path / "split.gguf", num_parts=2)
    spoil(first, tmp_path / "split-00002-of-00002.gguf")
    with pytest.raises(ModelError, match=message):
        open_model_file(first)
