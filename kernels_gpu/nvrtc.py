"""NVIDIA's run-time compiler, called through ctypes: .cu text in, machine code for one architecture out.

Owns finding the library and the calls.  Needs neither a driver nor a card; does not know caches (cubin_cache.py) or
what a kernel does.  The functions are those of the NVRTC documentation.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from ctypes.util import find_library
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kernels_gpu.device import GpuError, GpuMissingError

_FILE_NAMES = ("libnvrtc.so.*", "nvrtc64_*_0.dll")
_FOLDERS = ("cu*/lib", "cu*/bin", "cu*/bin/*", "cuda_nvrtc/lib", "cuda_nvrtc/bin")


class CompileError(GpuError):
    """A kernel's source was refused; the message holds the compiler's log."""


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """Machine code (a cubin), what it was made from (PTX), and the log with registers and spills of each kernel."""

    cubin: bytes
    ptx: str
    log: str


def _candidates() -> Iterator[str]:
    """Where the library may lie: NVIDIA's wheels, a toolkit that the environment names, the system."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(location) for location in (spec.submodule_search_locations or ())] if spec else []
    for root in roots:
        for folder in _FOLDERS:
            for name in _FILE_NAMES:
                yield from map(str, sorted(root.glob(f"{folder}/{name}"), reverse=True))
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        if home := os.environ.get(variable):
            for folder in ("lib64", "lib", "bin"):
                for name in _FILE_NAMES:
                    yield from map(str, sorted(Path(home, folder).glob(name), reverse=True))
    if found := find_library("nvrtc"):
        yield found


class Nvrtc:
    """The loaded library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.nvrtcGetErrorString.restype = c_char_p
        library.nvrtcCreateProgram.argtypes = [
            POINTER(c_void_p), c_char_p, c_char_p, c_int, POINTER(c_char_p), POINTER(c_char_p),
        ]  # fmt: skip
        library.nvrtcCompileProgram.argtypes = [c_void_p, c_int, POINTER(c_char_p)]
        for kind in ("ProgramLog", "CUBIN", "PTX"):
            getattr(library, f"nvrtcGet{kind}Size").argtypes = [c_void_p, POINTER(c_size_t)]
            getattr(library, f"nvrtcGet{kind}").argtypes = [c_void_p, c_char_p]
        library.nvrtcDestroyProgram.argtypes = [POINTER(c_void_p)]

    @property
    def version(self) -> tuple[int, int]:
        """Major and minor number."""
        major, minor = c_int(), c_int()
        self._check(self._library.nvrtcVersion(byref(major), byref(minor)), "asking for its version")
        return major.value, minor.value

    def compile(self, name: str, text: str, headers: Mapping[str, str], options: Sequence[str]) -> Compiled:
        """Compiles one file.  headers: what its #includes find, by name.  Raises CompileError with the log."""
        program = c_void_p()
        names = (c_char_p * len(headers))(*(key.encode() for key in headers))
        texts = (c_char_p * len(headers))(*(value.encode() for value in headers.values()))
        create = self._library.nvrtcCreateProgram
        status = create(byref(program), text.encode(), name.encode(), len(headers), texts, names)
        self._check(status, f"reading {name}")
        try:
            given = (c_char_p * len(options))(*(option.encode() for option in options))
            status = self._library.nvrtcCompileProgram(program, len(options), given)
            log = self._read(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            if status:
                raise CompileError(f"The GPU kernels of {name} could not be compiled: {log.strip()}")
            ptx = self._read(program, "PTX").rstrip(b"\0").decode()
            return Compiled(cubin=self._read(program, "CUBIN"), ptx=ptx, log=log)
        finally:
            self._library.nvrtcDestroyProgram(byref(program))

    def _read(self, program: c_void_p, kind: str) -> bytes:
        size = c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{kind}Size")(program, byref(size)), "reading a result")
        data = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{kind}")(program, data), "reading a result")
        return data.raw

    def _check(self, status: int, action: str) -> None:
        if status:
            reason = self._library.nvrtcGetErrorString(status).decode()
            raise GpuError(f"NVIDIA's compiler (NVRTC) failed {action}: {reason}.")


@lru_cache
def load_nvrtc() -> Nvrtc:
    """The compiler of this machine.  Raises GpuMissingError where there is none."""
    for candidate in _candidates():
        try:
            return Nvrtc(ctypes.CDLL(candidate))
        except OSError:
            continue  # built for another system, or lacks what it needs: the next may do
    where = "" if sys.platform != "darwin" else " (there is none for macOS)"
    raise GpuMissingError(
        f"NVIDIA's compiler for GPU kernels (NVRTC) was not found{where}: install the package nvidia-cuda-nvrtc."
    )
