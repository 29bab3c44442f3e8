"""LoRA adapters: low-rank matrices that are trained to be added to those of one model.

Owns what such a GGUF file holds, and every check of it alone and against its model.  Does not know programs or devices:
low_rank.py and gguf_file.py take what `stacked` makes.

For a weight W [rows, columns] the file holds A `W.lora_a` [rank, columns] and B `W.lora_b` [rows, rank]; the product
with W becomes W x + strength * B (A x), where strength = scale * alpha / rank (Hu et al., "LoRA", 2021, section 4.1).
Source of names and keys: llama.cpp's convert_lora_to_gguf.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from models.errors import AdapterError, quoted
from models.file_reader import FileReader
from models.gguf_parser import Header, TensorInfo, parse_header
from models.gguf_values import Metadata
from models.plain_values import plain_values

A_SUFFIX, B_SUFFIX = ".lora_a", ".lora_b"
MAX_RANK = 4096
RANK_STEP = 8
_READ_BYTES = 8 << 20
_Q8_BLOCK = 32


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """An adapter that was read.  matrices: weight's name -> (A, B), float32.  alpha: as in the file."""

    path: Path
    architecture: str
    alpha: float
    matrices: Mapping[str, tuple[np.ndarray, np.ndarray]]
    fingerprint: str

    @property
    def ranks(self) -> tuple[int, ...]:
        """Every rank that occurs, ascending."""
        return tuple(sorted({a.shape[0] for a, _ in self.matrices.values()}))


@dataclass(frozen=True, kw_only=True)
class Use:
    """An adapter, and how strongly it is used."""

    adapter: Adapter
    scale: float

    @property
    def note(self) -> str:
        """What a person should know."""
        adapter = self.adapter
        ranks = " and ".join(map(str, adapter.ranks)) if len(adapter.ranks) < 3 else f"up to {adapter.ranks[-1]}"
        number = len(adapter.matrices)
        return (
            f"The adapter {adapter.path.name} changes {number} {'matrix' if number == 1 else 'matrices'} "
            f"(rank {ranks}, scale {self.scale:g})."
        )


def read_adapter(path: Path | str) -> Adapter:
    """Reads a whole adapter file.  FileError when it can't be read or is damaged; AdapterError when it is no adapter,
    or one of a kind that can't be applied.
    """
    file = FileReader(Path(path))
    try:
        header = parse_header(file)
        architecture, alpha = _kind(file.label, header.metadata)
        matrices = _matrices(file, header)
        digest = hashlib.blake2b(digest_size=16)
        for start in range(0, file.size_bytes, _READ_BYTES):
            digest.update(file.bytes_at(start, min(_READ_BYTES, file.size_bytes - start)).data)
        file.check_unchanged()
        return Adapter(
            path=file.path,
            architecture=architecture,
            alpha=alpha,
            matrices=matrices,
            fingerprint=digest.hexdigest(),
        )
    finally:
        file.close()


def _kind(label: str, metadata: Metadata) -> tuple[str, float]:
    """(architecture, alpha)."""
    if metadata.get("general.type") != "adapter":
        raise AdapterError(f"{label} is no adapter but a model of its own: give it as the model, with -m.")
    kind = metadata.get("adapter.type")
    if kind != "lora":
        raise AdapterError(f"{label} is an adapter of the type {_shown(kind)}; only lora can be applied.")
    if "adapter.alora.invocation_tokens" in metadata:
        raise AdapterError(
            f"{label} is an adapter that acts only behind certain tokens (aLoRA), which Tandem can't do."
        )
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise AdapterError(
            f"{label} does not say which architecture it is for (general.architecture): convert it anew."
        )
    alpha = metadata.get("adapter.lora.alpha")
    if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not np.isfinite(alpha) or alpha == 0:
        raise AdapterError(
            f"{label}: adapter.lora.alpha is {_shown(alpha)}, where a number other than 0 was expected: without it "
            "nobody knows how strong the adapter is; convert it anew."
        )
    return architecture, float(alpha)


def _shown(value: object) -> str:
    return "missing" if value is None else quoted(str(value))


def _matrices(file: FileReader, header: Header) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    halves: dict[str, dict[str, TensorInfo]] = {}
    for tensor in header.tensors:
        weight, suffix = tensor.name[: -len(A_SUFFIX)], tensor.name[-len(A_SUFFIX) :]
        if suffix not in (A_SUFFIX, B_SUFFIX):
            raise AdapterError(
                f"{file.label}: the tensor {quoted(tensor.name)} is neither a .lora_a nor a .lora_b: Tandem applies "
                "low-rank matrices alone."
            )
        halves.setdefault(weight, {})[suffix] = tensor
    if not halves:
        raise AdapterError(f"{file.label} holds no matrices: it would change nothing.")
    return {weight: _pair(file, weight, found) for weight, found in halves.items()}


def _pair(file: FileReader, weight: str, found: Mapping[str, TensorInfo]) -> tuple[np.ndarray, np.ndarray]:
    for suffix in (A_SUFFIX, B_SUFFIX):
        if suffix not in found:
            raise AdapterError(f"{file.label} has no tensor {quoted(weight + suffix)}, the other half of its pair.")
    a, b = found[A_SUFFIX], found[B_SUFFIX]
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[0] != b.shape[1] or not 0 < a.shape[0] <= MAX_RANK:
        raise AdapterError(
            f"{file.label}: the pair of {quoted(weight)} is {_times(a.shape)} and {_times(b.shape)}; [rank, columns] "
            f"and [rows, rank] with one rank up to {MAX_RANK} were expected."
        )
    return _floats(file, a), _floats(file, b)


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _floats(file: FileReader, tensor: TensorInfo) -> np.ndarray:
    """A copy in float32."""
    raw = file.bytes_at(tensor.offset_bytes, tensor.size_bytes)
    values = plain_values(raw, tensor.format)
    if values is None and tensor.format.name == "Q8_0":
        blocks = raw.reshape(-1, 2 + _Q8_BLOCK)
        scales = np.ascontiguousarray(blocks[:, :2]).view("<f2").astype(np.float32)
        values = scales * blocks[:, 2:].view(np.int8)
    if values is None:
        raise AdapterError(
            f"{file.label}: the tensor {quoted(tensor.name)} is {tensor.format.name}; adapters in F32, F16, BF16 or "
            "Q8_0 can be applied."
        )
    values = values.reshape(tensor.shape)
    if not np.isfinite(values).all():
        raise AdapterError(f"{file.label}: the tensor {quoted(tensor.name)} holds what is no number: it is damaged.")
    return values


def check_fits(
    adapter: Adapter, architecture: str, shapes: Mapping[str, tuple[int, ...]], adaptable: Collection[str]
) -> None:
    """Raises AdapterError unless the adapter was made for such a model.  adaptable: matrices that can be changed."""
    name = adapter.path.name
    if adapter.architecture != architecture:
        raise AdapterError(
            f"The adapter {name} was made for a model of the architecture {quoted(adapter.architecture)}, and this one "
            f"is {quoted(architecture)}: take the adapter's own base model."
        )
    for weight, (a, b) in adapter.matrices.items():
        shape, expected = shapes.get(weight), (b.shape[0], a.shape[1])
        if shape is None:
            raise AdapterError(
                f"The adapter {name} changes {quoted(weight)}, which this model does not have: it was made for another "
                "model."
            )
        if shape != expected:
            raise AdapterError(
                f"The adapter {name} changes {quoted(weight)} as a matrix of {_times(expected)}, and in this model it "
                f"is {_times(shape)}: it was made for a model of another size."
            )
        if weight not in adaptable:
            raise AdapterError(
                f"The adapter {name} changes {quoted(weight)}, which is no matrix of a product (or serves as the "
                "embedding too): Tandem can't apply it."
            )


def stacked(uses: Sequence[Use]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For each weight (A, B) of all adapters together: ranks side by side, each one's strength multiplied into its B.

    In float16 where that loses nothing, in float32 otherwise.  Ranks are filled up with zeros to a multiple of 8, which
    devices read at once.
    """
    found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for use in uses:
        for weight, (a, b) in use.adapter.matrices.items():
            strength = np.float32(use.scale * use.adapter.alpha / a.shape[0])
            found.setdefault(weight, []).append((a, b * strength))
    return {weight: _joined(pairs) for weight, pairs in found.items()}


def _joined(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs], axis=1)
    missing = -len(a) % RANK_STEP
    return _compact(np.pad(a, ((0, missing), (0, 0)))), _compact(np.pad(b, ((0, 0), (0, missing))))


def _compact(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    return half if (half.astype(np.float32) == values).all() else np.ascontiguousarray(values, np.float32)


def fingerprint_of(uses: Sequence[Use]) -> str:
    """A short name for adapters in their order, with their scales."""
    text = "\n".join(f"{use.adapter.fingerprint} {use.scale!r}" for use in uses)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
