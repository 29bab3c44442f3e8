"""The folder of compiled kernels: what is kept, what is compiled again, and what happens when nothing can be kept."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from kernels import LEVELS

from kernels_cpu import kernel_cache, operands
from kernels_cpu.compiler import MAGIC, seal, unseal
from kernels_cpu.isa import AVX2, PORTABLE_X86, Isa, choose
from kernels_cpu.kernel_cache import (
    LOCK_NAME,
    STALE_AFTER_S,
    KernelCache,
    KernelError,
    compiler_environment,
    fingerprint,
    share_out,
)
from kernels_cpu.team import native

ISA = choose(LEVELS[-1])
NAME, OTHER = "pack-F32", "pack-F16"  # the quickest to compile


def packs(address: int) -> bool:
    """Whether the machine code at that address packs floats: [column][lane]."""
    x, zeros = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros(64, np.uint8)
    out = np.zeros((3, ISA.lanes), np.float32)
    values = {"source": x.ctypes.data, "row_bytes": 12, "num_rows": 2, "source_blocks": 3, "out": out.ctypes.data}
    values |= {"group_stride": out.nbytes, "groups_per_chunk": 1, "zeros": zeros.ctypes.data}
    block = np.array(operands.PACK.fill(values), np.int64)
    native(address)(block.ctypes.data, 0)
    return np.array_equal(out[:, :2], x.T) and not out[:, 2:].any()


def compiled(
    folder: Path, names: list[str], isa: Isa = ISA
) -> tuple[KernelCache, list[tuple[int, int]], dict[str, int]]:
    """A cache that loaded kernels, what it told about compiling, and the addresses."""
    cache, told = KernelCache(folder, isa), []
    return cache, told, cache.load(names, lambda done, total: told.append((done, total)))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two kernels, which tests copy."""
    folder = tmp_path_factory.mktemp("kernels") / "made when needed"
    cache, told, found = compiled(folder, [NAME, OTHER, NAME])
    assert told == [(0, 2), (1, 2), (2, 2)] and not cache.warnings
    assert packs(found[NAME])
    assert sorted(path.name for path in cache.folder.iterdir()) == [LOCK_NAME, f"{OTHER}.o", f"{NAME}.o"]
    cache.close()
    return folder


@pytest.fixture
def folder(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "kernels"))


def test_a_second_start_compiles_nothing(folder: Path) -> None:
    cache, told, found = compiled(folder, [NAME, OTHER])
    assert not told and not cache.warnings and packs(found[NAME])
    assert cache.load([NAME])[NAME] == found[NAME]


def test_only_what_is_missing_is_compiled(folder: Path) -> None:
    (KernelCache(folder, ISA).folder / f"{OTHER}.o").unlink()
    cache, told, found = compiled(folder, [NAME, OTHER])
    assert told == [(0, 1), (1, 1)] and packs(found[NAME])


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_file_is_compiled_again(folder: Path, damage: str) -> None:
    path = KernelCache(folder, ISA).folder / f"{NAME}.o"
    whole = path.read_bytes()
    at = len(whole) // 2
    path.write_bytes(whole[:at] if damage == "cut" else whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    _, told, found = compiled(folder, [NAME])
    assert told == [(0, 1), (1, 1)] and packs(found[NAME])
    assert unseal(path.read_bytes()) is not None


def test_seals() -> None:
    code = b"machine code"
    assert unseal(seal(code)) == code and seal(code).startswith(MAGIC)
    assert unseal(seal(code)[:-1]) is None and unseal(seal(code) + b"\0") is None and unseal(b"") is None


def test_a_folder_that_cannot_be_written_is_one_warning(tmp_path: Path) -> None:
    """Whoever runs this: a file stands where the folder should be."""
    folder = tmp_path / "file" / "kernels"
    folder.parent.write_text("in the way")
    cache, told, found = compiled(folder, [NAME])
    assert told == [(0, 1), (1, 1)] and packs(found[NAME])
    assert cache.load([OTHER])
    assert len(cache.warnings) == 1
    assert str(folder) in cache.warnings[0] and "compiled again at the next start" in cache.warnings[0]
    temporary = cache.folder
    assert (temporary / f"{NAME}.o").exists()
    cache.close()
    cache.close()
    assert not temporary.exists() and folder.parent.read_text() == "in the way"


def test_a_folder_that_fills_up_is_one_warning(folder: Path) -> None:
    """As on a full disk: the folder takes files, but not this one, in whose place something else stands."""
    cache = KernelCache(folder, ISA)
    there = cache.folder
    (there / f"{NAME}.o").unlink()
    (there / f"{NAME}.o").mkdir()
    found = cache.load([NAME, OTHER])
    assert packs(found[NAME]) and found[OTHER]
    assert len(cache.warnings) == 1 and "(Is a directory): they will be compiled again" in cache.warnings[0]
    assert cache.folder != there and [path.name for path in cache.folder.iterdir()] == [f"{NAME}.o"]
    assert sorted(path.name for path in there.iterdir()) == [LOCK_NAME, f"{OTHER}.o", f"{NAME}.o"]
    cache.close()


def test_a_kernel_that_cannot_be_compiled_is_one_sentence(folder: Path) -> None:
    with pytest.raises(KernelError) as caught:
        compiled(folder, [NAME, "pack-unheard"])
    text = str(caught.value)
    assert text == f"compiling the kernels for {ISA.name} failed: KeyError: 'unheard'"
    assert not list(folder.rglob("*.partial"))


def test_a_compiler_that_dies_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(KernelError, match=r"^compiling the kernels for \w+ failed: exit status 1$"):
        compiled(tmp_path, [NAME])


def test_a_compiler_that_compiles_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("true"))
    with pytest.raises(KernelError, match=rf"missing from {tmp_path}.*: {NAME}; remove that folder and try again"):
        compiled(tmp_path, [NAME])


def test_an_interrupted_compilation_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a person presses Ctrl-C: the exception comes out of the progress function."""
    started: list[subprocess.Popen[str]] = []
    start = KernelCache._start_compiler

    def watched(self: KernelCache, names: list[str]) -> subprocess.Popen[str]:
        started.append(start(self, names))
        return started[-1]

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(KernelCache, "_start_compiler", watched)
    with pytest.raises(KeyboardInterrupt):
        KernelCache(tmp_path, ISA).load([NAME, OTHER], interrupt)
    assert len(started) == 2 and all(process.poll() is not None for process in started)


def test_two_that_start_together_compile_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second waits for the first and takes what it compiled."""
    started: list[list[str]] = []
    start = KernelCache._start_compiler

    def watched(self: KernelCache, names: list[str]) -> subprocess.Popen[str]:
        started.append(names)
        return start(self, names)

    monkeypatch.setattr(KernelCache, "_start_compiler", watched)
    with ThreadPoolExecutor(2) as pool:
        found = [future.result() for future in [pool.submit(compiled, tmp_path, [NAME]) for _ in range(2)]]
    assert started == [[NAME]]
    assert all(packs(addresses[NAME]) for _, _, addresses in found)


def test_one_that_hangs_is_not_waited_for_without_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cache, "LONGEST_WAIT_S", 0.2)
    (KernelCache(folder, ISA).folder / f"{OTHER}.o").unlink()
    with (KernelCache(folder, ISA).folder / LOCK_NAME).open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert packs(compiled(folder, [NAME, OTHER])[2][NAME])


def test_one_that_goes_on_is_waited_for_however_slow_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process needs far longer than the limit for both kernels, but not for one."""
    monkeypatch.setattr(kernel_cache, "LONGEST_WAIT_S", 20.0)
    own = KernelCache(folder, ISA).folder
    codes = {name: (own / f"{name}.o").read_bytes() for name in (NAME, OTHER)}
    for name in codes:
        (own / f"{name}.o").unlink()
    now_s = [0.0]
    seen: list[tuple[int, int]] = []
    clock = SimpleNamespace(monotonic=lambda: now_s[0], time=time.time, sleep=lambda duration_s: None)
    monkeypatch.setattr(kernel_cache, "time", clock)
    with (own / LOCK_NAME).open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        def pass_time(done: int, total: int) -> None:
            seen.append((done, total))
            now_s[0] += 5.0
            if now_s[0] == 15.0:
                (own / f"{NAME}.o").write_bytes(codes[NAME])
            elif now_s[0] == 30.0:
                (own / f"{OTHER}.o").write_bytes(codes[OTHER])
                fcntl.flock(held, fcntl.LOCK_UN)

        monkeypatch.setattr(
            KernelCache, "_start_compiler", lambda self, names: pytest.fail(f"{names} are compiled again")
        )
        assert packs(KernelCache(folder, ISA).load([NAME, OTHER], pass_time)[NAME])
    assert seen == [(0, 2)] * 3 + [(1, 2)] * 3


def test_a_file_system_without_locks_is_not_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(kernel_cache, "LONGEST_WAIT_S", 0.5)
    (KernelCache(folder, ISA).folder / f"{OTHER}.o").unlink()
    assert compiled(folder, [NAME, OTHER])[1] == [(0, 1), (1, 1)]


def test_kernels_that_nobody_used_for_months_are_removed(folder: Path) -> None:
    old = time.time() - STALE_AFTER_S - 60
    names = ("avx2-0123456789abcdef", "portable-0123456789abcdef", "objects", "avx2-0123456789abcdef.old")
    for name in names:
        (folder / name).mkdir()
        (folder / name / "kernel.o").write_bytes(b"")
        (folder / name / "kernelx.partial").write_bytes(b"")
    for name in (*names[:1], *names[2:]):
        os.utime(folder / name, (old, old))
    (folder / "notes.txt").write_text("mine")
    compiled(folder, ["pack-BF16"])
    left = {path.name for path in folder.iterdir()}
    assert left == {*names[1:], "notes.txt", KernelCache(folder, ISA).folder.name}
    assert (folder / "objects" / "kernel.o").exists(), "not a folder of kernels"


def test_a_folder_in_daily_use_is_not_old(folder: Path) -> None:
    used = KernelCache(folder, ISA).folder
    os.utime(used, (0, 0))
    compiled(folder, [NAME])
    assert time.time() - used.stat().st_mtime < STALE_AFTER_S


def test_the_key_holds_sources_versions_and_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [fingerprint(AVX2), fingerprint(PORTABLE_X86)]
    assert keys[0] == fingerprint(AVX2)
    room, formats = tmp_path / "kernels_cpu", tmp_path / "models" / "formats.py"
    shutil.copytree(kernel_cache.ROOT, room, ignore=shutil.ignore_patterns("__pycache__"))
    formats.parent.mkdir()
    shutil.copy(kernel_cache.ROOT.parent / "models" / "formats.py", formats)
    monkeypatch.setattr(kernel_cache, "ROOT", room)
    assert fingerprint(AVX2) == keys[0], "neither the place nor the times of the sources matter"
    for path in (room / "tile.py", formats):
        path.write_text(path.read_text() + "\n# changed\n")
        keys.append(fingerprint(AVX2))
    (room / "new.py").write_text("")
    keys.append(fingerprint(AVX2))
    monkeypatch.setattr(kernel_cache, "version", lambda package: "0.0")
    keys.append(fingerprint(AVX2))
    assert len(set(keys)) == len(keys) == 6
    assert KernelCache(tmp_path, AVX2).folder == tmp_path / f"avx2-{keys[-1]}"


def test_a_level_is_compiled_for_its_own_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """And for nothing that this machine has beside it, or that the user's environment says."""
    monkeypatch.setenv("NUMBA_OPT", "0")
    ask = "from numba.core.registry import cpu_target as t; m = t.target_context.codegen(); print(m._tm_features)"
    for level in LEVELS:
        isa = choose(level)
        environment = compiler_environment(isa)
        assert "NUMBA_OPT" not in environment
        command = [sys.executable, "-c", ask]
        features = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()
        assert (features == "") == (isa.llvm_cpu is not None)


def test_work_is_shared_out_by_what_it_costs() -> None:
    names = ["product-Q4_K-1", "attend-f16-f16", "combine", "row-gate", "row-select", "pack-Q4_K", "product-Q6_K-2"]
    shares = share_out(names, 2)
    assert sorted(name for share in shares for name in share) == sorted(names)
    assert any({"attend-f16-f16", "combine"} <= set(share) for share in shares)
    assert any({"row-gate", "row-select"} <= set(share) for share in shares)
    assert share_out(["row-gate"], 4) == [["row-gate"]]


def test_a_compiler_ends_with_whoever_started_it(tmp_path: Path) -> None:
    """Also where that one was killed: its end of the compiler's stdin closes then."""
    command = [sys.executable, "-c", _NEVER_ENDING_COMPILER, str(tmp_path), "kernel"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as compiler:
        assert compiler.stdout is not None and compiler.stdin is not None
        assert compiler.stdout.readline() == b"begun\n"
        compiler.stdin.close()
        try:
            assert compiler.wait(timeout=60) == 1
        finally:
            compiler.kill()


_NEVER_ENDING_COMPILER = """
import sys, time
from kernels_cpu import compiler

def compile_kernel(name):
    print("begun", flush=True)
    time.sleep(1000)

compiler.compile_kernel = compile_kernel
compiler.main(sys.argv[1:])
"""
