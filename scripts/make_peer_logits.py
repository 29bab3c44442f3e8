"""Makes tests/data/llama_cpp: what llama.cpp computes for the tiny models of tests/data/architectures and real ones.

    python -m venv /tmp/peer && /tmp/peer/bin/pip install llama-cpp-py-sync gguf numpy
    /tmp/peer/bin/python scripts/make_peer_logits.py [MODEL.gguf ...] [--lora]

Owns the calls of llama.cpp's C interface (by the package's declarations) and the way to a file of float32 weights.  It
is the independent side of the comparison: it imports nothing of Tandem.  Without files it takes the tiny models.

llama.cpp rounds to 8 bits what it multiplies quantised weights with.  So each file is computed twice: as it is, and
with the same weights written as float32, which leaves no rounding but that of float32.

NAME.npz of a tiny model: `plain` and `rounded`, logits float32 [T, vocabulary] with float32 weights and as it is, of
the ids in tests/data/architectures; `source`, what computed them.  Of a real one: `text` and its `ids` [T], the KEPT
likeliest tokens of every position with float32 weights, `best_ids` [T, KEPT], and the logarithms of their probabilities
both ways, `plain` and `rounded` [T, KEPT]; `rounded_best` [T], the likeliest token of the file as it is.
With --lora the same with a random adapter (tests/support/random_adapter.py), as NAME-lora.npz.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gguf
import llama_cpp_py_sync  # pyright: ignore[reportMissingImports]
import numpy as np
from llama_cpp_py_sync._cffi_bindings import get_ffi, get_lib  # pyright: ignore[reportMissingImports]

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "support"))

from random_adapter import SCALE, write_random_adapter  # noqa: E402

TINY, FOLDER = ROOT / "tests" / "data" / "architectures", ROOT / "tests" / "data" / "llama_cpp"
KEPT, VOCAB_SIZE = 64, 96
F32 = 0  # GGML_TYPE_F32
TEXT = """The river was high that spring, and 17 boats lay at the quay. "Who'll row us over?" asked Ann.

def area(radius: float) -> float:
    return 3.14159 * radius ** 2  # πr²
"""

ffi: Any = get_ffi()
lib: Any = get_lib()


def source_of() -> str:
    manifest = json.loads((Path(str(llama_cpp_py_sync.__file__)).parent / "native_manifest.json").read_text())
    build = llama_cpp_py_sync.__version__.rpartition(".")[2]
    return f"llama.cpp b{build} ({manifest['llama_cpp_commit'][:9]})"


@contextmanager
def loaded(path: Path, *, has_vocabulary: bool, context: int, lora: Path | None = None) -> Iterator[Any]:
    """A context of a file's model on the CPU, with a cache of float32.  lora: an adapter, taken SCALE times."""
    parameters = lib.llama_model_default_params()
    parameters.n_gpu_layers = 0
    overrides = ffi.new("struct llama_model_kv_override[3]")
    if not has_vocabulary:
        architecture = str(gguf.GGUFReader(path).fields["general.architecture"].contents())
        overrides[0].tag, overrides[1].tag = lib.LLAMA_KV_OVERRIDE_TYPE_STR, lib.LLAMA_KV_OVERRIDE_TYPE_INT
        overrides[0].key, overrides[0].val_str = b"tokenizer.ggml.model", b"none"
        overrides[1].key, overrides[1].val_i64 = f"{architecture}.vocab_size".encode(), VOCAB_SIZE
        parameters.kv_overrides = overrides
    model = lib.llama_model_load_from_file(str(path).encode(), parameters)
    if model == ffi.NULL:
        raise RuntimeError(f"llama.cpp does not load {path}")
    settings = lib.llama_context_default_params()
    settings.n_ctx = settings.n_batch = settings.n_ubatch = context
    settings.n_threads = settings.n_threads_batch = 2
    settings.type_k = settings.type_v = F32
    settings.flash_attn_type = 0
    state = lib.llama_init_from_model(model, settings)
    if state == ffi.NULL:
        raise RuntimeError(f"llama.cpp has no context for {path}")
    if lora is not None:
        adapter = lib.llama_adapter_lora_init(model, str(lora).encode())
        if adapter == ffi.NULL or lib.llama_set_adapters_lora(state, [adapter], 1, [SCALE]):
            raise RuntimeError(f"llama.cpp does not take the adapter {lora}")
    try:
        yield state
    finally:
        lib.llama_free(state)
        lib.llama_model_free(model)


def logits_of(state: Any, ids: np.ndarray) -> np.ndarray:
    """Logits [T, vocabulary] at every position of a text."""
    count = len(ids)
    size = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(lib.llama_get_model(state)))
    batch = lib.llama_batch_init(count, 0, 1)
    batch.n_tokens = count
    for position, token in enumerate(ids.tolist()):
        batch.token[position], batch.pos[position] = token, position
        batch.n_seq_id[position], batch.seq_id[position][0], batch.logits[position] = 1, 0, 1
    failure = lib.llama_decode(state, batch)
    lib.llama_batch_free(batch)
    if failure:
        raise RuntimeError(f"llama.cpp could not decode: {failure}")
    data = ffi.buffer(lib.llama_get_logits(state), 4 * count * size)
    return np.frombuffer(data, np.float32).reshape(count, size).copy()


def tokens_of(state: Any) -> np.ndarray:
    """TEXT as ids, with what the file says of BOS."""
    vocabulary, data = lib.llama_model_get_vocab(lib.llama_get_model(state)), TEXT.encode()
    out = ffi.new("llama_token[]", 512)
    return np.array([out[i] for i in range(lib.llama_tokenize(vocabulary, data, len(data), out, 512, True, False))])


def write_plain(path: Path, out: Path) -> None:
    """The same model with every matrix as float32."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, str(reader.fields["general.architecture"].contents()))
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind, inner = field.types[0], field.types[-1]
        writer.add_key_value(name, field.contents(), kind, inner if kind == gguf.GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))


def make_tiny(path: Path) -> None:
    """Writes NAME.npz for a model of tests/data/architectures."""
    ids = np.load(path.with_suffix(".npz"))["ids"]
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / path.name
        write_plain(path, plain)
        found = {}
        for name, file in (("plain", plain), ("rounded", path)):
            with loaded(file, has_vocabulary=False, context=256) as state:
                found[name] = logits_of(state, ids)
    np.savez_compressed(FOLDER / f"{path.stem}.npz", allow_pickle=False, **{**found, "source": np.array(source_of())})
    print(path.stem, *(f"{name} {values.std():.3f}" for name, values in found.items()))


def make_real(path: Path, *, with_lora: bool) -> None:
    """Writes NAME.npz for a real model, or NAME-lora.npz."""
    found = {"text": np.array(TEXT)}
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / path.name
        write_plain(path, plain)
        lora = write_random_adapter(path, Path(folder) / "lora.gguf") if with_lora else None
        if lora is not None:
            found["adapter_sha256"] = np.array(hashlib.sha256(lora.read_bytes()).hexdigest())
        for name, file in (("plain", plain), ("rounded", path)):
            with loaded(file, has_vocabulary=True, context=512, lora=lora) as state:
                found["ids"] = tokens_of(state)
                values = log_probabilities(logits_of(state, found["ids"]))
            if name == "plain":
                found["best_ids"] = np.argsort(-values, axis=1, kind="stable")[:, :KEPT].astype(np.int32)
            else:
                found["rounded_best"] = values.argmax(axis=1).astype(np.int32)
            found[name] = np.take_along_axis(values, found["best_ids"], axis=1).astype(np.float32)
    with path.open("rb") as file:
        found["sha256"] = np.array(hashlib.file_digest(file, "sha256").hexdigest())
    name = f"{path.stem}{'-lora' if with_lora else ''}.npz"
    np.savez_compressed(FOLDER / name, allow_pickle=False, **{**found, "source": np.array(source_of())})
    print(name, len(found["ids"]), "tokens")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--lora", action="store_true", help="with a random adapter")
    arguments = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    for path in arguments.files or sorted(TINY.glob("*.gguf")):
        if path.with_suffix(".npz").exists():
            make_tiny(path)
        else:
            make_real(path, with_lora=arguments.lora)


if __name__ == "__main__":
    main()
