"""Instruction-set levels: what a kernel may use, and which level this machine has.

Owns the table of levels.  Does not compile anything; compiler.py hands a level to Numba through the environment,
since Numba's target is fixed once a process has started.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from typing import Literal

Dot = Literal["vpdpbusd512", "vpdpbusd256", "pmaddubsw", "sdot", "widen"]
TARGET_VARIABLE = "TANDEM_KERNEL_ISA"


class IsaError(ValueError):
    """The instruction-set level asked for is unknown or this machine lacks it."""


@dataclass(frozen=True, kw_only=True)
class Isa:
    """lanes: rows of a packed group, one a vector lane.  dot: how 4 unsigned weights meet 4 signed activations.

    llvm_cpu: the processor LLVM compiles for; None: this machine's.  has_half: converts float16 in hardware.
    vector_bits: the widest register kernels are allowed to use; vector_registers: how many there are.
    wide_tile: tokens of the larger tile.
    shuffle: LLVM's name for looking bytes up in a table of 16, within each 16 bytes; None: no such instruction.
    """

    name: str
    lanes: int
    dot: Dot
    llvm_cpu: str | None
    has_half: bool
    vector_bits: int
    vector_registers: int
    wide_tile: int
    shuffle: str | None


AVX512 = Isa(
    name="avx512", lanes=16, dot="vpdpbusd512", llvm_cpu=None, has_half=True, vector_bits=512,
    vector_registers=32, wide_tile=8, shuffle="llvm.x86.avx512.pshuf.b.512",
)  # fmt: skip
AVXVNNI = Isa(
    name="avxvnni", lanes=8, dot="vpdpbusd256", llvm_cpu=None, has_half=True, vector_bits=256,
    vector_registers=16, wide_tile=8, shuffle="llvm.x86.avx2.pshuf.b",
)  # fmt: skip
AVX2 = Isa(
    name="avx2", lanes=8, dot="pmaddubsw", llvm_cpu="haswell", has_half=True, vector_bits=256,
    vector_registers=16, wide_tile=8, shuffle="llvm.x86.avx2.pshuf.b",
)  # fmt: skip
NEON = Isa(
    name="neon", lanes=4, dot="sdot", llvm_cpu=None, has_half=True, vector_bits=128,
    vector_registers=32, wide_tile=4, shuffle="llvm.aarch64.neon.tbl1.v16i8",
)  # fmt: skip
PORTABLE_X86 = Isa(
    name="portable", lanes=4, dot="widen", llvm_cpu="x86-64-v2", has_half=False, vector_bits=128,
    vector_registers=16, wide_tile=4, shuffle="llvm.x86.ssse3.pshuf.b.128",
)  # fmt: skip
PORTABLE = Isa(
    name="portable",
    lanes=4,
    dot="widen",
    llvm_cpu=None,
    has_half=False,
    vector_bits=128,
    vector_registers=16,
    wide_tile=4,
    shuffle=None,
)

NAMES = ("auto", "avx512", "avxvnni", "avx2", "neon", "portable")


def is_x86() -> bool:
    """Whether this process runs on an x86-64 processor."""
    return platform.machine().lower() in ("x86_64", "amd64")


def host_features() -> frozenset[str]:
    """LLVM's names of the features this machine has, such as avx512vnni."""
    import llvmlite.binding as llvm

    return frozenset(name for name, has in llvm.get_host_cpu_features().items() if has)


def supported(features: frozenset[str] | None = None) -> tuple[Isa, ...]:
    """The levels that this machine runs, best first."""
    features = host_features() if features is None else features
    if not is_x86():
        return (NEON, PORTABLE) if {"dotprod", "neon"} <= features else (PORTABLE,)
    levels = []
    if {"avx512f", "avx512bw", "avx512vl", "avx512vnni"} <= features:
        levels.append(AVX512)
    if "avxvnni" in features or {"avx512vl", "avx512vnni"} <= features:
        levels.append(AVXVNNI)
    if {"avx2", "fma", "f16c"} <= features:
        levels.append(AVX2)
    return (*levels, PORTABLE_X86)


def choose(name: str = "auto") -> Isa:
    """The level called `name`, or the best one.  Raises IsaError when the machine does not have it."""
    levels = supported()
    if name == "auto":
        return levels[0]
    for level in levels:
        if level.name == name:
            return level
    have = ", ".join(level.name for level in levels)
    raise IsaError(
        f"instruction set {name!r} is not available on this machine: it has {have}; choose one of them or auto"
    )


def compile_target() -> Isa:
    """The level that this process compiles for: set by the compiler for its child processes, else the best."""
    return choose(os.environ.get(TARGET_VARIABLE, "auto"))
