"""Small synthetic GGUF models: real headers and vocabularies, random weights in any block format.

Owns the writing of GGUF bytes (by hand, so that tests can write what no writer would), tiny vocabularies and random
blocks.  Equal arguments give equal bytes.  What such a model says is noise; its numbers are tame: every weight matrix
has mean 0 (nearly) and a standard deviation of 1 / sqrt(columns).
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np

from models.formats import FORMATS

VocabularyKind = Literal["byte_pair", "sentence_pieces", "none"]


@dataclass(frozen=True, kw_only=True)
class Typed:
    """A metadata value with the GGUF type it is written as."""

    type: int
    value: Any


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A tensor to write: shape in NumPy order, data already in its format."""

    name: str
    ggml_id: int
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True, kw_only=True)
class TinyShape:
    """The numbers of a tiny model; head_dim apart from width / num_heads works too."""

    num_layers: int = 2
    width: int = 96
    num_heads: int = 3
    num_kv_heads: int = 1
    head_dim: int = 32
    feed_forward_width: int = 160
    context_length: int = 512
    window: int = 8


SMALL_BLOCKS = TinyShape()
"""For formats with blocks of 32 or 1."""
SUPER_BLOCKS = TinyShape(width=256, num_heads=4, num_kv_heads=2, head_dim=64, feed_forward_width=512)
"""For formats with blocks of 256."""

CHATML_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
TURNS_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}{{ '<start_of_turn>' + "
    "('model' if message['role'] == 'assistant' else message['role']) + '\\n' + message['content'] | trim + "
    "'<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
)

_NUMBER_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


def gguf_bytes(
    metadata: Mapping[str, Any], tensors: Sequence[Tensor], *, version: int = 3, alignment: int = 32
) -> bytes:
    """A whole file.  Values: str, bool, int (uint32), float (float32), lists of these (int32), or Typed."""
    out = bytearray(struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(metadata)))
    for key, value in metadata.items():
        typed = value if isinstance(value, Typed) else _typed(value)
        out += _string(key) + struct.pack("<I", typed.type) + _value(typed)
    offset, offsets = 0, []
    for tensor in tensors:
        offsets.append(offset)
        out += _string(tensor.name) + struct.pack("<I", len(tensor.shape))
        out += struct.pack(f"<{len(tensor.shape)}QIQ", *tensor.shape[::-1], tensor.ggml_id, offset)
        offset += -(-len(tensor.data) // alignment) * alignment
    out += bytes(-len(out) % alignment)
    start = len(out)
    for tensor, offset in zip(tensors, offsets, strict=True):
        out += bytes(start + offset - len(out)) + tensor.data
    return bytes(out + bytes(-len(out) % alignment))


def _string(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(data)) + data


def _typed(value: Any) -> Typed:
    match value:
        case str():
            return Typed(type=_STRING, value=value)
        case bool():
            return Typed(type=7, value=value)
        case int():
            return Typed(type=4, value=value)
        case float():
            return Typed(type=6, value=value)
        case list():
            first = value[0] if value else 0
            element_type = 5 if isinstance(first, int) and not isinstance(first, bool) else _typed(first).type
            return Typed(type=_ARRAY, value=[Typed(type=element_type, value=element) for element in value])
    raise TypeError(f"no GGUF type for {value!r}")


def _value(typed: Typed) -> bytes:
    if typed.type == _STRING:
        return _string(typed.value)
    if typed.type == _ARRAY:
        elements: list[Typed] = typed.value
        element_type = elements[0].type if elements else 5
        return struct.pack("<IQ", element_type, len(elements)) + b"".join(map(_value, elements))
    return struct.pack("<" + _NUMBER_CODES[typed.type], typed.value)


# Standard deviation of scale-free weights whose codes and sub-scales are uniform random bits, and what the minimum is
# in scales so that their mean is 0 (0.5 off for the symmetric codes).
_SPREAD: Mapping[str, tuple[float, float]] = {
    "Q4_0": (4.61, 0.0),
    "Q4_1": (4.61, -7.5),
    "Q5_0": (9.23, 0.0),
    "Q5_1": (9.23, -15.5),
    "Q8_0": (73.9, 0.0),
    "Q2_K": (14.0, 1.5),
    "Q3_K": (43.7, 0.0),
    "Q4_K": (259.0, 7.5),
    "Q5_K": (530.0, 15.5),
    "Q6_K": (1366.0, 0.0),
    "IQ4_NL": (73.0, 0.0),
    "IQ4_XS": (1350.0, 0.0),
    "MXFP4": (5.85, 0.0),
}


def random_rows(format_name: str, shape: tuple[int, ...], rng: np.random.Generator, *, std: float) -> np.ndarray:
    """Random valid weights: uint8 [rows, row_bytes], finite scales that differ from block to block."""
    block_format = FORMATS[format_name]
    num_rows = prod(shape[:-1])
    if block_format.is_plain:
        values = rng.standard_normal((num_rows, shape[-1]), np.float32) * np.float32(std)
        match format_name:
            case "F16":
                return values.astype(np.float16).view(np.uint8)
            case "BF16":
                return np.ascontiguousarray(values.view(np.uint16)[:, 1::2]).view(np.uint8)
            case _:
                return values.view(np.uint8)
    num_blocks = num_rows * (shape[-1] // block_format.block_elements)
    blocks = rng.integers(0, 256, (num_blocks, block_format.block_bytes), np.uint8)
    spread, minimum = _SPREAD[format_name]
    scales = (rng.uniform(0.8, 1.2, num_blocks) * std / spread).astype(np.float16)
    if block_format.scale_encoding == "exponent":
        blocks[:, block_format.field("scale").offset_bytes] = 128 + np.rint(np.log2(scales.astype(np.float32)))
        return blocks.reshape(num_rows, block_format.row_bytes(shape[-1]))
    _put(blocks, block_format.field("scale").offset_bytes, scales)
    if minimum:
        _put(blocks, block_format.field("minimum").offset_bytes, (scales * np.float16(minimum)).astype(np.float16))
    return blocks.reshape(num_rows, block_format.row_bytes(shape[-1]))


def _put(blocks: np.ndarray, offset_bytes: int, halves: np.ndarray) -> None:
    blocks[:, offset_bytes : offset_bytes + 2] = halves[:, None].view(np.uint8)


def tiny_tensors(
    architecture: str, format_name: str, shape: TinyShape, vocab_size: int, *, is_tied: bool, seed: int
) -> list[Tensor]:
    """All tensors of a tiny model, as llama.cpp's converter names them; vectors are F32."""
    rng = np.random.default_rng(seed)
    tensors: list[Tensor] = []

    def matrix(name: str, rows: int, columns: int) -> None:
        data = random_rows(format_name, (rows, columns), rng, std=columns**-0.5)
        ggml_id = FORMATS[format_name].ggml_id
        tensors.append(Tensor(name=f"{name}.weight", ggml_id=ggml_id, shape=(rows, columns), data=data.tobytes()))

    def vector(name: str, size: int, *, mean: float = 1.0) -> None:
        data = (mean + 0.1 * rng.standard_normal(size)).astype("<f4")
        tensors.append(Tensor(name=name, ggml_id=0, shape=(size,), data=data.tobytes()))

    q_width, kv_width = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    matrix("token_embd", vocab_size, shape.width)
    for layer_idx in range(shape.num_layers):
        block = f"blk.{layer_idx}"
        vector(f"{block}.attn_norm.weight", shape.width)
        for part, rows in (("attn_q", q_width), ("attn_k", kv_width), ("attn_v", kv_width)):
            matrix(f"{block}.{part}", rows, shape.width)
            if architecture == "qwen2":
                vector(f"{block}.{part}.bias", rows, mean=0.0)
        matrix(f"{block}.attn_output", shape.width, q_width)
        vector(f"{block}.ffn_norm.weight", shape.width)
        matrix(f"{block}.ffn_gate", shape.feed_forward_width, shape.width)
        matrix(f"{block}.ffn_up", shape.feed_forward_width, shape.width)
        matrix(f"{block}.ffn_down", shape.width, shape.feed_forward_width)
        if architecture == "gemma3":
            vector(f"{block}.attn_q_norm.weight", shape.head_dim)
            vector(f"{block}.attn_k_norm.weight", shape.head_dim)
            vector(f"{block}.post_attention_norm.weight", shape.width)
            vector(f"{block}.post_ffw_norm.weight", shape.width)
    vector("output_norm.weight", shape.width)
    if not is_tied:
        matrix("output", vocab_size, shape.width)
    return tensors


_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6
_SCHOOL = (
    "the quick brown fox jumps over the lazy dog and then the other fox looks at the river where the water is cold "
    "what do you think about that I think that there is something in the house of the old man who was here when the "
    "first day of the year began she said that they were not the same and he said yes they are all there because "
    "people like to read and write some words again and again until the computer can tell which word comes next"
)


@lru_cache
def _merges(count: int, blank: str) -> tuple[tuple[str, str], ...]:
    """The first merges of byte-pair encoding on a little text; `blank` begins every word but the first."""
    words = Counter(tuple(blank + word) for word in _SCHOOL.split())
    merges: list[tuple[str, str]] = []
    while len(merges) < count:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, uses in words.items():
            for pair in zip(word, word[1:], strict=False):
                pairs[pair] += uses
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        merged: Counter[tuple[str, ...]] = Counter()
        for word, uses in words.items():
            merged[_merge(word, best)] += uses
        words = merged
    return tuple(merges)


def _merge(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    out: list[str] = []
    for symbol in word:
        if out and (out[-1], symbol) == pair:
            out[-1] += symbol
        else:
            out.append(symbol)
    return tuple(out)


def byte_characters() -> list[str]:
    """The character that stands for each byte in byte-level vocabularies: printable ones for themselves."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def byte_pair_vocabulary(pre_tokenizer: str = "qwen2", *, num_merges: int = 120) -> dict[str, Any]:
    """Metadata of a byte-level BPE vocabulary with ChatML's and thinking's special tokens, about 380 tokens."""
    merges = _merges(num_merges, byte_characters()[ord(" ")])
    control, user_defined = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], ["<think>", "</think>"]
    normal = byte_characters() + list(dict.fromkeys(left + right for left, right in merges))
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre_tokenizer,
        "tokenizer.ggml.tokens": control + user_defined + normal,
        "tokenizer.ggml.token_type": [_CONTROL] * 3 + [_USER_DEFINED] * 2 + [_NORMAL] * len(normal),
        "tokenizer.ggml.merges": [f"{left} {right}" for left, right in merges],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
    }


def sentence_piece_vocabulary(*, num_merges: int = 120) -> dict[str, Any]:
    """Metadata of a SentencePiece vocabulary with byte fallback and Gemma's turn tokens, about 420 tokens."""
    pieces = list(dict.fromkeys(left + right for left, right in _merges(num_merges, "\u2581")))
    letters = sorted({"\u2581", *_SCHOOL.replace(" ", "")})
    control = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    types = [_CONTROL, _CONTROL, _CONTROL, _UNKNOWN, _CONTROL, _CONTROL]
    normal = pieces + letters
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": control + [f"<0x{byte:02X}>" for byte in range(256)] + normal,
        "tokenizer.ggml.scores": [0.0] * (len(control) + 256) + [-float(rank) for rank in range(len(normal))],
        "tokenizer.ggml.token_type": types + [_BYTE] * 256 + [_NORMAL] * len(normal),
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 3,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
    }


def vocabulary_metadata(kind: VocabularyKind, architecture: str) -> dict[str, Any]:
    """The vocabulary's keys, and a chat template that fits it."""
    match kind:
        case "byte_pair":
            pre_tokenizer = "smollm" if architecture == "llama" else "qwen2"
            return {**byte_pair_vocabulary(pre_tokenizer), "tokenizer.chat_template": CHATML_TEMPLATE}
        case "sentence_pieces":
            return {**sentence_piece_vocabulary(), "tokenizer.chat_template": TURNS_TEMPLATE}
        case "none":
            return {}


def write_tiny_model(
    path: Path,
    *,
    architecture: Literal["llama", "qwen2", "gemma3"] = "llama",
    format: str = "Q4_0",
    shape: TinyShape | None = None,
    vocabulary: VocabularyKind = "byte_pair",
    is_tied: bool = True,
    metadata: Mapping[str, Any] | None = None,
    formats: Mapping[str, str] | None = None,
    num_parts: int = 1,
    seed: int = 0,
) -> Path:
    """Writes a tiny model and returns its path (that of the first part where there are several).

    shape: SMALL_BLOCKS or SUPER_BLOCKS by the format's blocks unless given.  is_tied: no tensor `output.weight`.
    metadata: keys to add or change; None as a value takes one away.  formats: another format for all matrices whose
    name contains the key ("token_embd", "attn_v", "blk.0.").
    """
    used = {format, *(formats or {}).values()}
    if shape is None:
        is_super = any(FORMATS[name].block_elements > 32 for name in used)
        shape = SUPER_BLOCKS if is_super else SMALL_BLOCKS
    keys = tiny_metadata(architecture, shape) | vocabulary_metadata(vocabulary, architecture)
    vocab_size = len(keys.get("tokenizer.ggml.tokens", range(384)))
    tensors = tiny_tensors(architecture, format, shape, vocab_size, is_tied=is_tied, seed=seed)
    if formats:
        tensors = [_reformatted(tensor, formats, seed + idx) for idx, tensor in enumerate(tensors, 1)]
    keys |= metadata or {}
    keys = {key: value for key, value in keys.items() if value is not None}
    if num_parts == 1:
        path.write_bytes(gguf_bytes(keys, tensors))
        return path
    paths = [path.with_name(f"{path.stem}-{number:05}-of-{num_parts:05}.gguf") for number in range(1, num_parts + 1)]
    step = -(-len(tensors) // num_parts)
    for part_idx, part_path in enumerate(paths):
        split = {
            "split.no": Typed(type=2, value=part_idx),
            "split.count": Typed(type=2, value=num_parts),
            "split.tensors.count": Typed(type=5, value=len(tensors)),
        }
        part = tensors[part_idx * step : (part_idx + 1) * step]
        part_path.write_bytes(gguf_bytes(split if part_idx else {**keys, **split}, part))
    return paths[0]


def tiny_metadata(architecture: str, shape: TinyShape) -> dict[str, Any]:
    """general.* and the architecture's own keys."""
    keys: dict[str, Any] = {
        "general.architecture": architecture,
        "general.type": "model",
        "general.name": f"Tiny {architecture}",
        f"{architecture}.context_length": shape.context_length,
        f"{architecture}.embedding_length": shape.width,
        f"{architecture}.block_count": shape.num_layers,
        f"{architecture}.feed_forward_length": shape.feed_forward_width,
        f"{architecture}.attention.head_count": shape.num_heads,
        f"{architecture}.attention.head_count_kv": shape.num_kv_heads,
        f"{architecture}.attention.key_length": shape.head_dim,
        f"{architecture}.attention.value_length": shape.head_dim,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{architecture}.rope.freq_base": 10000.0,
        f"{architecture}.rope.dimension_count": shape.head_dim,
    }
    if architecture == "gemma3":
        keys["gemma3.attention.sliding_window"] = shape.window
        # So that a model of two layers has a local and a global one.
        keys["gemma3.attention.sliding_window_pattern"] = 2
    return keys


def _reformatted(tensor: Tensor, formats: Mapping[str, str], seed: int) -> Tensor:
    for part, name in formats.items():
        if part in tensor.name and len(tensor.shape) == 2:
            rng = np.random.default_rng(seed)
            data = random_rows(name, tensor.shape, rng, std=tensor.shape[-1] ** -0.5).tobytes()
            return Tensor(name=tensor.name, ggml_id=FORMATS[name].ggml_id, shape=tensor.shape, data=data)
    return tensor
