"""Finds, compiles and loads kernels: names in, addresses out.

Owns the cache folder and the child processes that fill it.  A warm start reads object files and links them with
llvmlite alone; Numba is imported only by the compiler's processes (see compiler.py).

The folder's name is a hash of everything that the machine code depends on: this room's sources, the versions of
Numba, llvmlite and Python, the processor and its features, the instruction-set level.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from kernels_cpu.compiler import EXIT_UNWRITABLE, unseal
from kernels_cpu.isa import TARGET_VARIABLE, Isa

Progress = Callable[[int, int], None]
ROOT = Path(__file__).resolve().parent
LOCK_NAME = "compiling"
LONGEST_WAIT_S, WAIT_STEP_S = 120.0, 0.05
STALE_AFTER_S = 60 * 24 * 3600
FOLDER_NAME = re.compile(r"[a-z0-9]+-[0-9a-f]{16}")
_LINKED: list[object] = []  # machine code stays for the life of the process: a thread may still be inside


class KernelError(RuntimeError):
    """A kernel could not be compiled or loaded."""


class UnwritableError(KernelError):
    """A compiled kernel could not be written; the message is the system's reason."""


def fingerprint(isa: Isa) -> str:
    """16 hex digits that name the folder of this machine's kernels."""
    import llvmlite.binding as llvm

    digest = hashlib.sha256()
    for path in (*sorted(ROOT.glob("*.py")), ROOT.parent / "models" / "formats.py"):
        digest.update(path.name.encode() + path.read_bytes())
    features = llvm.get_host_cpu_features().flatten()
    facts = (version("numba"), version("llvmlite"), sys.version, llvm.get_host_cpu_name(), features, repr(isa))
    digest.update(repr(facts).encode())
    return digest.hexdigest()[:16]


# Seconds of compiling, about: a family that shares inner functions compiles them once a process.
SHARED = {"attend": "attention", "combine": "attention", "rotate": "row"}
FAMILY_COST_S = {"attention": 3.0, "row": 1.0}
KERNEL_COST_S = {"product": 0.9, "product_floats": 0.5, "attend": 1.5, "combine": 0.3, "executor": 0.4}


def share_out(names: Sequence[str], workers: int) -> list[list[str]]:
    """Splits kernels among compiler processes: families that share code stay together, the longest jobs go first."""
    jobs: dict[str, list[str]] = {}
    for name in names:
        family = SHARED.get(name.split("-")[0], name.split("-")[0])
        jobs.setdefault(family if family in FAMILY_COST_S else name, []).append(name)

    def cost(job: str) -> float:
        return FAMILY_COST_S.get(job, 0.0) + sum(KERNEL_COST_S.get(name.split("-")[0], 0.2) for name in jobs[job])

    shares: list[list[str]] = [[] for _ in range(workers)]
    loads = [0.0] * workers
    for job in sorted(jobs, key=cost, reverse=True):
        idx = loads.index(min(loads))
        shares[idx] += jobs[job]
        loads[idx] += cost(job)
    return [share for share in shares if share]


def compiler_environment(isa: Isa) -> dict[str, str]:
    """What fixes a compiler's target before it starts: Numba's cannot be changed later.

    A level with a processor of its own gets that one's features, not this machine's: what is tested is what runs there.
    """
    environment = {key: value for key, value in os.environ.items() if not key.startswith("NUMBA_")}
    environment[TARGET_VARIABLE] = isa.name
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT.parent), environment.get("PYTHONPATH"))))
    if isa.llvm_cpu is not None:
        environment |= {"NUMBA_CPU_NAME": isa.llvm_cpu, "NUMBA_CPU_FEATURES": ""}
    return environment


class KernelCache:
    """Kernels of one instruction-set level.  warnings: what a person should know (once)."""

    def __init__(self, folder: Path, isa: Isa, workers: int = 2) -> None:
        """folder: where compiled kernels are kept between runs.  workers: compiler processes at a time."""
        self.isa, self.workers = isa, max(1, workers)
        self.warnings: list[str] = []
        self.root = folder
        self.folder = folder / f"{isa.name}-{fingerprint(isa)}"
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._engine = None
        self._addresses: dict[str, int] = {}

    def load(self, names: Sequence[str], progress: Progress | None = None) -> dict[str, int]:
        """Addresses of the kernels called `names`, compiled first where they are missing.

        progress(done, total) counts kernels being compiled.  Raises KernelError.
        """
        wanted = [name for name in dict.fromkeys(names) if name not in self._addresses]
        codes = {name: self._read(name) for name in wanted}
        missing = [name for name, code in codes.items() if code is None]
        if missing:
            codes |= self._compile_and_read(missing, progress)
        elif wanted:
            self._say_used()
        self._link({name: code for name, code in codes.items() if code is not None})
        lost = [name for name in wanted if name not in self._addresses]
        if lost:
            raise KernelError(
                f"compiled kernels are missing from {self.folder}: {', '.join(lost)}; remove that folder and try again"
            )
        return {name: self._addresses[name] for name in names}

    def _compile_and_read(self, names: Sequence[str], progress: Progress | None) -> dict[str, bytes | None]:
        """The code of kernels that are missing; what the folder can't take goes on elsewhere, for this run alone."""
        self._prepare_folder()
        with self._alone(names, progress):
            codes = {name: self._read(name) for name in names}
            missing = [name for name, code in codes.items() if code is None]
            return codes | self._compile_missing(missing, progress)

    @contextmanager
    def _alone(self, names: Sequence[str], progress: Progress | None) -> Iterator[None]:
        """Lets one process compile at a time, so that two that start together don't both compile everything.

        Progress tells what another one has compiled meanwhile.  One that compiles nothing for long (stopped, perhaps)
        is waited for no longer.
        """
        try:
            lock = (self.folder / LOCK_NAME).open("wb")
        except OSError:
            yield  # compiling will say what is wrong with the folder
            return
        with lock:
            num_there, end_s = -1, 0.0
            while num_there < 0 or time.monotonic() < end_s:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    found = sum((self.folder / f"{name}.o").exists() for name in names)
                    if found > num_there:
                        num_there, end_s = found, time.monotonic() + LONGEST_WAIT_S
                    if progress is not None:
                        progress(min(found, len(names) - 1), len(names))
                    time.sleep(WAIT_STEP_S)
                except OSError:
                    break  # a file system without locks: at worst something is compiled twice
            yield

    def _compile_missing(self, names: Sequence[str], progress: Progress | None) -> dict[str, bytes | None]:
        if not names:
            return {}
        codes: dict[str, bytes | None] = {}
        try:
            self._compile(names, progress)
        except UnwritableError as error:
            if self._temporary is not None:
                raise
            codes = {name: self._read(name) for name in names}
            names = [name for name, code in codes.items() if code is None]
            self._go_elsewhere(str(error))
            self._compile(names, progress)
        return codes | {name: self._read(name) for name in names}

    def _read(self, name: str) -> bytes | None:
        try:
            return unseal((self.folder / f"{name}.o").read_bytes())
        except OSError:
            return None

    def _say_used(self) -> None:
        try:
            os.utime(self.folder)
        except OSError:
            pass  # a folder that others filled: they keep it

    def _prepare_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            self._go_elsewhere(error.strerror)
            return
        try:
            self._remove_stale()
        except OSError:
            pass  # they are another user's, or another process removes them just now

    def _go_elsewhere(self, reason: str | None) -> None:
        self.warnings.append(
            f"compiled kernels cannot be kept in {self.root} ({reason}): they will be compiled again at the next start"
        )
        self._temporary = tempfile.TemporaryDirectory(prefix="tandem-kernels-")
        self.folder = Path(self._temporary.name)

    def _remove_stale(self) -> None:
        """Removes kernels of versions that nobody used for two months; what else lies beside them is left alone."""
        for old in self.root.iterdir():
            if old == self.folder or not FOLDER_NAME.fullmatch(old.name) or not old.is_dir():
                continue
            if time.time() - old.stat().st_mtime > STALE_AFTER_S:
                for file in (*old.glob("*.o"), *old.glob("*.partial"), old / LOCK_NAME):
                    file.unlink(missing_ok=True)
                if not any(old.iterdir()):
                    old.rmdir()

    def _compile(self, names: Sequence[str], progress: Progress | None) -> None:
        processes: list[subprocess.Popen[str]] = []
        done = 0
        try:
            for share in share_out(names, self.workers):
                processes.append(self._start_compiler(share))
            if progress:
                progress(0, len(names))
            for process in processes:
                assert process.stdout is not None
                for _ in process.stdout:
                    done += 1
                    if progress:
                        progress(done, len(names))
            for process in processes:
                assert process.stderr is not None
                problem = process.stderr.read().strip()
                if process.wait() != 0:
                    last = problem.splitlines()[-1] if problem else f"exit status {process.returncode}"
                    if process.returncode == EXIT_UNWRITABLE:
                        raise UnwritableError(last)
                    raise KernelError(f"compiling the kernels for {self.isa.name} failed: {last}")
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                process.communicate()

    def _start_compiler(self, names: Sequence[str]) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "kernels_cpu.compiler", str(self.folder), *names]
        return subprocess.Popen(
            command,
            env=compiler_environment(self.isa),
            stdin=subprocess.PIPE,  # Closed when this process ends, also where it is killed: so does the compiler then.
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _link(self, codes: dict[str, bytes]) -> None:
        import llvmlite.binding as llvm

        if self._engine is None:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            machine = llvm.Target.from_default_triple().create_target_machine(codemodel="jitdefault", jit=True)
            self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
            _LINKED.append(self._engine)
        for code in codes.values():
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        for name in codes:
            self._addresses[name] = self._engine.get_function_address(name)

    def close(self) -> None:
        """Removes kernels that could not be kept."""
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None
