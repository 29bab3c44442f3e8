"""A real header damaged in a thousand ways and a real file cut a hundred times, in a process whose memory is watched.

Run as a script, this file is that process: it prints a JSON report.
"""

from __future__ import annotations

import json
import os
import random
import resource
import struct
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypedDict

import numpy as np

from models.errors import ModelError
from models.gguf_file import open_model_file

NUM_MUTATIONS = 1000
NUM_TRUNCATIONS = 100
MAX_GROWTH_BYTES = 50 << 20
TEMPTING = (0, 1, 9, 255, 2**16, 2**20, 2**31, 2**32 - 1, 2**42, 2**63 - 1, 2**63, 2**64 - 1)
"""Numbers that counts, lengths and offsets are overwritten with."""


class Report(TypedDict):
    """What the process found: failures are files that were neither read nor properly refused."""

    failures: list[str]
    growth_bytes: int
    read: int
    refused: int


def test_every_mutation_is_read_or_refused_within_bounds(model_path: Callable[[str], Path], tmp_path: Path) -> None:
    report = run_child("mutations", model_path("smollm2-135m"), tmp_path)
    assert report["failures"] == []
    assert report["read"] + report["refused"] == NUM_MUTATIONS
    assert report["refused"] > NUM_MUTATIONS // 4, "the mutations hardly touch anything that matters"
    assert report["growth_bytes"] < MAX_GROWTH_BYTES


def test_every_truncation_is_refused_within_bounds(model_path: Callable[[str], Path], tmp_path: Path) -> None:
    report = run_child("truncations", model_path("smollm2-135m"), tmp_path)
    assert report["failures"] == []
    assert (report["read"], report["refused"]) == (0, NUM_TRUNCATIONS)
    assert report["growth_bytes"] < MAX_GROWTH_BYTES


def test_claims_that_a_large_file_could_hold_are_refused_within_bounds(tmp_path: Path) -> None:
    report = run_child("large", tmp_path, tmp_path)
    assert report["failures"] == []
    assert (report["read"], report["refused"]) == (0, len(list(large_lies())))
    assert report["growth_bytes"] < MAX_GROWTH_BYTES


def run_child(what: str, source: Path, folder: Path) -> Report:
    command = [sys.executable, __file__, what, str(source), str(folder)]
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    return json.loads(run.stdout)


def peak_bytes() -> int:
    """Peak of resident memory.  ru_maxrss of a child begins with its parent's on Linux; the kernel's VmHWM does not."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


class Trial:
    """Opens files and counts what happened."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.failures: list[str] = []
        self.base_bytes = peak_bytes()

    def open(self, path: Path, label: str, *, reads_metadata: bool) -> None:
        try:
            with open_model_file(path) as file:
                size = path.stat().st_size
                for name, tensor in file.tensors.items():
                    assert tensor.end_bytes <= size, name
                    file.read_rows(name, tensor.num_rows - 1, np.empty((1, tensor.row_bytes), np.uint8))
                if reads_metadata:
                    dict(file.metadata)
            self.outcomes["read"] += 1
        except ModelError as error:
            self.outcomes["refused"] += 1
            if not str(error).startswith(f"'{path}'") or "\x1b" in str(error) or len(str(error)) > len(str(path)) + 600:
                self.failures.append(f"{label}: the message is {str(error)[:800]!r}")
        except Exception:
            self.failures.append(f"{label}: {traceback.format_exc()}")

    def report(self) -> Report:
        return {
            "failures": self.failures,
            "growth_bytes": peak_bytes() - self.base_bytes,
            "read": self.outcomes["read"],
            "refused": self.outcomes["refused"],
        }


def mutate(header: bytes, vocabulary: tuple[int, int], rng: random.Random) -> tuple[int, bytes, int]:
    """One change: where, the new bytes, and how many bytes they replace.  Few hit the vocabulary's text."""
    first, last = vocabulary
    start = rng.randrange(*rng.choices([(0, first), (first, last), (last, len(header))], [50, 8, 42])[0])
    match rng.randrange(6):
        case 0:
            return start, bytes([header[start] ^ 1 << rng.randrange(8)]), 1
        case 1:
            return start, rng.randbytes(1), 1
        case 2:
            return start, struct.pack("<Q", rng.choice(TEMPTING)), 8
        case 3:
            return start, struct.pack("<I", rng.choice(TEMPTING) & 0xFFFFFFFF), 4
        case 4:
            return start, b"", rng.randrange(1, 32)
        case _:
            return start, rng.randbytes(rng.randrange(1, 32)), 0


def run_mutations(source: Path, folder: Path) -> Trial:
    with open_model_file(source) as file:
        header = source.open("rb").read(min(tensor.offset_bytes for tensor in file.tensors.values()))
    vocabulary = header.index(b"tokenizer.ggml.tokens") + 64, header.index(b"tokenizer.ggml.bos_token_id") - 64
    path = folder / "mutated.gguf"
    path.write_bytes(header)
    os.truncate(path, source.stat().st_size)
    trial = Trial()
    with path.open("r+b", buffering=0) as target:
        for seed in range(NUM_MUTATIONS):
            start, new, replaced = mutate(header, vocabulary, random.Random(seed))
            # What lies behind a change of length moves, up to the tensors' data.
            end = len(header) if len(new) != replaced else start + replaced
            target.seek(start)
            target.write((new + header[start + replaced : end] + bytes(64))[: end - start])
            trial.open(path, f"seed {seed}", reads_metadata=seed % 10 == 0)
            target.seek(start)
            target.write(header[start : min(end + 64, len(header))])
    return trial


def run_truncations(source: Path, folder: Path) -> Trial:
    with source.open("rb") as file:
        header = file.read(4 << 20)
    path = folder / "cut.gguf"
    path.write_bytes(header)
    trial = Trial()
    # From the end: what is cut off stays away, and what lies behind the header is a hole.
    size = source.stat().st_size
    os.truncate(path, size)
    for percent in reversed(range(NUM_TRUNCATIONS)):
        os.truncate(path, size * percent // 100)
        trial.open(path, f"{percent} %", reads_metadata=True)
    return trial


def large_lies() -> Iterator[tuple[str, bytes]]:
    """Headers of a file of 256 MiB, nothing but zeros behind: what they claim fits, and still must not be believed."""
    key = struct.pack("<Q", 1) + b"k"
    yield "strings", key + struct.pack("<IIQ", 9, 8, 30_000_000)
    yield "as many strings as may be", key + struct.pack("<IIQ", 9, 8, 1 << 21)
    yield "one string", key + struct.pack("<IQ", 8, 200 << 20)
    yield "arrays", key + struct.pack("<IIQ", 9, 9, 10_000_000)
    yield "as many arrays as may be", key + struct.pack("<IIQ", 9, 9, 1 << 16)
    yield "numbers", key + struct.pack("<IIQ", 9, 0, 250 << 20)
    yield "a key", struct.pack("<Q", 200 << 20)
    yield "long strings", key + struct.pack("<IIQ", 9, 8, 2_000_000) + struct.pack("<Q", 4 << 20) * 2


def run_large(folder: Path) -> Trial:
    trial = Trial()
    path = folder / "large.gguf"
    for label, body in large_lies():
        path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, 2) + body)
        os.truncate(path, 256 << 20)
        trial.open(path, label, reads_metadata=True)
    return trial


if __name__ == "__main__":
    what, source, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    match what:
        case "mutations":
            done = run_mutations(source, folder)
        case "truncations":
            done = run_truncations(source, folder)
        case _:
            done = run_large(folder)
    print(json.dumps(done.report()))
