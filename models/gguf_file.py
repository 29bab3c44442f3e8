"""A GGUF model file, or all parts of a split one, open for reading.

Owns the map from tensor names to bytes.  Does not know architectures, vocabularies or what a block means.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType, TracebackType

import numpy as np

from models.errors import FileError, TensorError, quoted
from models.expanded_formats import EXPANDED_FORMATS, expand
from models.file_reader import FileReader
from models.formats import FORMATS
from models.fused_tensors import split_fused
from models.gguf_parser import Header, TensorInfo, parse_header
from models.gguf_split import check_part, check_total, part_count, part_paths
from models.gguf_values import Metadata, MetadataValue
from models.plain_values import plain_values

__all__ = ["MetadataValue", "ModelFile", "TensorInfo", "open_model_file"]

_NOT_MODELS = MappingProxyType(
    {
        "adapter": "a LoRA adapter, which only changes another model: name the model it was made for, and the adapter "
        "with --lora",
        "mmproj": "the image or audio half of a model: name the text model beside it",
        "imatrix": "an importance matrix, a by-product of quantizing: name the model itself",
    }
)
_SAMPLES = 16
_SAMPLE_BYTES = 4096


def open_model_file(path: Path | str) -> ModelFile:
    """Opens a GGUF file; for one part of a split model, all of them.

    Everything the header says has been checked against the file when this returns.  FileError or TensorError: it cannot
    be read, is not GGUF, is cut or damaged, is not a model, or a part is missing.
    """
    path = Path(path)
    with ExitStack() as cleanup:
        opened = _Part(path)
        cleanup.callback(opened.file.close)
        count = part_count(opened.header.metadata, opened.file.label)
        if count == 1:
            parts = [opened]
        else:
            parts = []
            for part_path in part_paths(path, count, opened.file.label):
                part = opened if part_path == path else _Part(part_path)
                cleanup.callback(part.file.close)
                check_part(part.header.metadata, len(parts), count, part.file.label)
                parts.append(part)
        file = ModelFile(path, parts)
        cleanup.pop_all()
        return file


def is_expanded(tensor: TensorInfo) -> bool:
    """Whether a stored tensor's format is one that nothing computes with."""
    return tensor.format.ggml_id in EXPANDED_FORMATS


def _as_read(tensor: TensorInfo) -> TensorInfo:
    if not is_expanded(tensor):
        return tensor
    half = FORMATS["F16"]
    return dataclasses.replace(tensor, format=half, size_bytes=tensor.num_rows * half.row_bytes(tensor.num_columns))


def _read_runs(owner: FileReader, tensor: TensorInfo, first: int, rows: np.ndarray) -> None:
    """Fills rows (uint8 [n, row_bytes], contiguous) with a stored tensor's from row `first` on."""
    at = 0
    for offset, count in tensor.runs(first, len(rows)):
        owner.read_into(rows[at : at + count].reshape(-1), offset)
        at += count


class _Part:
    """One open file and its header."""

    def __init__(self, path: Path) -> None:
        self.file = FileReader(path)
        try:
            self.header: Header = parse_header(self.file)
        except BaseException:
            self.file.close()
            raise


@dataclass(frozen=True, kw_only=True)
class Overlay:
    """Matrices that a file does not hold but is used with, float16 or float32 [rows, columns], by name.

    notes: sentences for the person who loads the file with them.
    """

    matrices: Mapping[str, np.ndarray]
    fingerprint: str
    notes: tuple[str, ...]


class ModelFile:
    """An open model.  Use it as a context manager, or close it.

    path: what was opened.  metadata: of the (first) file; read what you need before closing.  tensors: by name, in file
    order, fused ones as their parts, as they are read: in float16 where no kernel multiplies with their format.
    own_tensors: without the overlays'; stored: these as they lie in the file.
    """

    def __init__(self, path: Path, parts: Sequence[_Part]) -> None:
        """Takes over the opened parts; use open_model_file."""
        self.path = path
        self._parts = tuple(parts)
        self._label = parts[0].file.label
        self.metadata: Metadata = parts[0].header.metadata
        self._owners: dict[str, FileReader] = {}
        self._laid_over: dict[str, np.ndarray] = {}
        self.overlays: tuple[Overlay, ...] = ()
        tensors: dict[str, TensorInfo] = {}
        for part in parts:
            names = {tensor.name: tensor for tensor in part.header.tensors}
            for tensor in split_fused(self.metadata, names).values():
                if tensor.name in tensors:
                    raise TensorError(
                        f"{part.file.label}: tensor {quoted(tensor.name)} is in another part too: the parts do not "
                        "belong together, download them again."
                    )
                tensors[tensor.name] = tensor
                self._owners[tensor.name] = part.file
        self.stored: Mapping[str, TensorInfo] = MappingProxyType(tensors)
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(
            {name: _as_read(tensor) for name, tensor in tensors.items()}
        )
        self.own_tensors = self.tensors
        if len(parts) > 1:
            check_total(self.metadata, sum(len(part.header.tensors) for part in parts), self._label)
        self._check_is_model()

    @property
    def size_bytes(self) -> int:
        """Size of all parts together."""
        return sum(part.file.size_bytes for part in self._parts)

    @property
    def paths(self) -> tuple[Path, ...]:
        """All parts, in order."""
        return tuple(part.file.path for part in self._parts)

    @property
    def version(self) -> int:
        """GGUF version."""
        return self._parts[0].header.version

    @cached_property
    def fingerprint(self) -> str:
        """A short name for the contents: equal for copies of a file, different for different weights.

        Hashes sizes, headers and 64 KB of samples of every part; ask for it before closing.
        """
        digest = hashlib.blake2b(digest_size=16)
        for part in self._parts:
            size, data = part.file.size_bytes, part.header.data_offset_bytes
            digest.update(f"{size} {data}\n".encode())
            digest.update(part.file.bytes_at(0, min(data, size)).data)
            for sample_idx in range(_SAMPLES):
                start = min(data, size) + max(size - data - _SAMPLE_BYTES, 0) * sample_idx // (_SAMPLES - 1)
                digest.update(part.file.bytes_at(start, min(_SAMPLE_BYTES, size - start)).data)
        digest.update("".join(overlay.fingerprint for overlay in self.overlays).encode())
        return digest.hexdigest()

    def lay_over(self, overlay: Overlay) -> None:
        """Adds its matrices as further tensors; its fingerprint becomes a part of this one's."""
        added = dict(self.tensors)
        for name, matrix in overlay.matrices.items():
            assert name not in added and matrix.dtype in (np.float16, np.float32)
            block_format = FORMATS["F16" if matrix.dtype == np.float16 else "F32"]
            added[name] = TensorInfo(
                name=name, format=block_format, shape=matrix.shape, offset_bytes=0, size_bytes=matrix.nbytes
            )
            self._laid_over[name] = np.ascontiguousarray(matrix).view(np.uint8)
        self.tensors = MappingProxyType(added)
        self.overlays += (overlay,)
        self.__dict__.pop("fingerprint", None)

    def raw(self, name: str) -> np.ndarray:
        """A copy of the tensor's bytes: read-only uint8 [rows, row_bytes].

        TensorError: no tensor of that name.  FileError: it can't be read, or is no longer there.
        """
        if name in self._laid_over:
            return self._laid_over[name]
        tensor, owner = self._find(name)
        stored = np.empty((tensor.num_rows, tensor.row_bytes), np.uint8)
        _read_runs(owner, tensor, 0, stored)
        data = expand(stored, tensor.format) if is_expanded(tensor) else stored
        data.flags.writeable = False
        return data

    def read_rows(self, name: str, first: int, rows: np.ndarray) -> None:
        """Fills rows (uint8 [n, row_bytes], contiguous) with the tensor's from row `first` on.  Errors as in raw."""
        if name in self._laid_over:
            rows[:] = self._laid_over[name][first : first + len(rows)]
            return
        tensor, owner = self._find(name)
        assert rows.shape[1] == self.tensors[name].row_bytes and 0 <= first <= tensor.num_rows - len(rows)
        if not is_expanded(tensor):
            _read_runs(owner, tensor, first, rows)
            return
        stored = np.empty((len(rows), tensor.row_bytes), np.uint8)
        _read_runs(owner, tensor, first, stored)
        rows[:] = expand(stored, tensor.format)

    def floats(self, name: str) -> np.ndarray:
        """A copy of an F32, F16 or BF16 tensor as float32, in its shape.  TensorError for other formats."""
        raw = self.raw(name).reshape(-1)
        tensor = self.tensors[name]
        values = plain_values(raw, tensor.format)
        if values is None:
            raise TensorError(
                f"{self._label}: tensor {quoted(name)} is {tensor.format.name}, expected F32, F16 or BF16."
            )
        return values.reshape(tensor.shape)

    def check_unchanged(self) -> None:
        """FileError when a part has been written to or truncated since it was opened: call it after reading it."""
        for part in self._parts:
            part.file.check_unchanged()

    def close(self) -> None:
        """Closes all parts.  May be called again."""
        for part in self._parts:
            part.file.close()

    def __enter__(self) -> ModelFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _find(self, name: str) -> tuple[TensorInfo, FileReader]:
        tensor = self.stored.get(name)
        if tensor is None:
            raise TensorError(f"{self._label} has no tensor {quoted(name)}: the file is not complete, choose another.")
        return tensor, self._owners[name]

    def _check_is_model(self) -> None:
        kind, architecture = self.metadata.get("general.type"), self.metadata.get("general.architecture")
        if isinstance(architecture, str) and architecture == "clip":
            kind = "mmproj"
        if kind is None and any(name.endswith(".lora_a") for name in self.tensors):
            kind = "adapter"
        if isinstance(kind, str) and kind in _NOT_MODELS:
            raise FileError(f"{self._label} is not a language model but {_NOT_MODELS[kind]}.")
