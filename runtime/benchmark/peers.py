"""Another engine, measured by its own benchmark: `llama-bench`, or what takes its flags and prints its JSON.

Owns the flags and the reading of the answer.  Does not know where the command is found, nor in which order engines take
turns.  Versions differ in their flags, so the command's own --help decides.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Protocol

from runtime.benchmark.workloads import Workload
from runtime.errors import EngineError

_MOST_PASSES = 16
_ASK_TIMEOUT_S = 60
# What switches the packing of weights at load off (or on), by what --help says.
_REPACK_FLAGS = (
    ("--repack ", ("--repack", "0")),
    ("--no-repack", ("--no-repack",)),
    ("--run-time-repack", ("-rtr", "1")),
)
# The processor alone, even if the build knows a graphics card.
_CPU_FLAGS = (("--n-gpu-layers", ("-ngl", "0")), ("--no-op-offload", ("-nopo", "1")))


class PeerError(EngineError):
    """Another engine's benchmark failed, or said what can't be read."""


class PeerStopped(EngineError):
    """stop() ended the benchmark."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A way to call a peer."""

    name: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PeerCall:
    """What is measured: the same file and threads as Tandem has."""

    path: Path
    threads: int
    cache_type_k: str
    cache_type_v: str
    workload: Workload


class Peer(Protocol):
    """Another engine."""

    @property
    def name(self) -> str:
        """As it stands in tables."""
        ...

    @property
    def version(self) -> str:
        """As it tells it itself."""
        ...

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The default first."""
        ...

    def can_run(self, workload: Workload) -> bool:
        """Whether it has such a test."""
        ...

    def measure(self, call: PeerCall, variant: Variant) -> float:
        """Tokens a second, once.  Raises PeerError, or PeerStopped after stop()."""
        ...

    def stop(self) -> None:
        """From any thread: ends the measurement in progress and all later ones."""
        ...


class LlamaBench:
    """`llama-bench`: its file, or a command that behaves alike."""

    def __init__(self, command: Sequence[str], name: str = "llama.cpp") -> None:
        """Asks for --help.  Raises PeerError if that is no llama-bench."""
        self.name = name
        self._command = list(command)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._is_stopped = False
        self._help = self._ask("--help")
        if "--n-prompt" not in self._help or "--output" not in self._help:
            raise PeerError(f"{' '.join(self._command)} is no llama-bench: to --help it says {_last(self._help)!r}.")
        self.version = _first(self._ask("--version")) if "--version" in self._help else "unknown"
        chosen = [Variant(name=" ".join(flags), arguments=flags) for sign, flags in _REPACK_FLAGS if sign in self._help]
        self.variants = (Variant(name="default"), *chosen[:1])

    def can_run(self, workload: Workload) -> bool:
        has_kind = workload.test in ("prefill", "decode", "verify")
        return has_kind and (workload.depth == 0 or "--n-depth" in self._help)

    def measure(self, call: PeerCall, variant: Variant) -> float:
        return median(read_rates(self._run([*self._arguments(call), *variant.arguments])))

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            if self._process is not None:
                self._process.terminate()

    def _ask(self, flag: str) -> str:
        """Everything that it says to a flag."""
        try:
            found = subprocess.run(
                [*self._command, flag], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise PeerError(f"{self._command[0]} can't be run: {error}.") from error
        return found.stdout + found.stderr

    def _arguments(self, call: PeerCall) -> list[str]:
        workload = call.workload
        prompt, output, repeats = workload.prompt_tokens, workload.output_tokens, 1
        if workload.test == "verify":
            prompt, output, repeats = workload.width, 0, min(_MOST_PASSES, workload.num_passes)
        arguments = ["-m", str(call.path), "-p", str(prompt), "-n", str(output), "-t", str(call.threads)]
        arguments += ["-ctk", call.cache_type_k, "-ctv", call.cache_type_v, "-r", str(repeats), "-o", "json"]
        if workload.depth:
            arguments += ["-d", str(workload.depth)]
        for sign, flags in _CPU_FLAGS:
            arguments += flags if sign in self._help else ()
        return arguments

    def _run(self, arguments: list[str]) -> str:
        with self._lock:
            if self._is_stopped:
                raise PeerStopped("stopped")
            command = [*self._command, *arguments]
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    start_new_session=True,  # a Ctrl-C in the terminal is ours to hand on
                )
            except OSError as error:
                raise PeerError(f"{self._command[0]} can't be run: {error.strerror}.") from error
        try:
            output, complaint = self._process.communicate()
        finally:
            self._process.kill()
        if self._is_stopped:
            raise PeerStopped("stopped")
        if self._process.returncode != 0:
            raise PeerError(f"{self.name} ended with status {self._process.returncode}: {_last(complaint)}")
        return output


def read_rates(output: str) -> list[float]:
    """Tokens a second of each repeat of the one test in what `llama-bench -o json` prints.

    Raises PeerError for anything else.
    """
    start = output.find("[")
    try:
        records = json.loads(output[start:]) if start >= 0 else None
    except ValueError as error:
        raise PeerError(f"The peer's answer is no JSON: {error}.") from error
    if not isinstance(records, list) or len(records) != 1 or not isinstance(records[0], dict):
        raise PeerError(f"The peer's answer is {_beginning(output)}; expected a list of one test.")
    samples = records[0].get("samples_ts")
    if not isinstance(samples, list) or not samples or not all(isinstance(x, int | float) and x > 0 for x in samples):
        raise PeerError(f"The peer's answer has samples_ts {samples!r}; expected tokens a second.")
    return [float(sample) for sample in samples]


def _first(text: str) -> str:
    """The first line, without the word that says that it is a version."""
    return text.strip().splitlines()[0].removeprefix("version: ") if text.strip() else "unknown"


def _last(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else "nothing"


def _beginning(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
