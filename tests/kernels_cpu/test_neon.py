"""The NEON level, which this machine cannot run: its tiles compile for AArch64 to the dot products they mean."""

from __future__ import annotations

from functools import cache

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from kernels_cpu.emitter import I64, Emitter
from kernels_cpu.isa import NEON
from kernels_cpu.packed_formats import PACKED_FORMATS
from kernels_cpu.tile import Tile

TRIPLE = "aarch64-unknown-linux-gnu"


@cache
def machine() -> llvm.TargetMachine:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(TRIPLE).create_target_machine(cpu="neoverse-n1", opt=3)


def assembly(format_name: str, terms: int, tokens: int) -> str:
    module = ir.Module()
    module.triple = TRIPLE  # pyright: ignore[reportAttributeAccessIssue]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64] * 5), "tile")
    builder = ir.IRBuilder(function.append_basic_block())
    Tile(Emitter(builder, NEON, NEON.lanes), PACKED_FORMATS[format_name], terms, tokens).emit(*function.args)
    builder.ret_void()
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    builder_of_passes = llvm.create_pass_builder(machine(), options)
    builder_of_passes.getModulePassManager().run(parsed, builder_of_passes)
    return machine().emit_assembly(parsed)


@pytest.mark.parametrize("terms", (1, 2))
@pytest.mark.parametrize("format_name", sorted(PACKED_FORMATS))
def test_a_tile_multiplies_with_sdot(format_name: str, terms: int) -> None:
    """32 columns of 4 rows are 8 instructions a term, part and token, whatever the format."""
    text = assembly(format_name, terms, tokens=4)
    dots = sum(line.split()[0] == "sdot" for line in text.splitlines() if line.split())
    assert dots == 8 * terms * PACKED_FORMATS[format_name].parts * 4


def test_no_library_is_called() -> None:
    text = assembly("Q6_K", 2, tokens=4)
    assert not any(line.split()[0] in ("bl", "blr") for line in text.splitlines() if line.split())
