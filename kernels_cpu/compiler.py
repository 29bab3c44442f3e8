"""Compiles kernels to object code; runs as a child process, one for each core.

    python -m kernels_cpu.compiler FOLDER ISA NAME...

Owns the way from a Python function to machine code: Numba types and optimises it, LLVM emits an object file, which
the parent loads without importing Numba (see kernel_cache.py).  Prints a kernel's name when its file stands in FOLDER.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
import threading
from pathlib import Path

MAGIC = b"TANDEM-KERNEL-1\n"
EXIT_UNWRITABLE = 73  # os.EX_CANTCREAT; the last line of stderr is the system's reason


def seal(code: bytes) -> bytes:
    """An object file with what it takes to notice damage: a magic line and a SHA-256 before it."""
    return MAGIC + hashlib.sha256(code).digest() + code


def unseal(data: bytes) -> bytes | None:
    """The object file, or None when it is damaged."""
    code = data[len(MAGIC) + 32 :]
    return code if data[: len(MAGIC) + 32] == MAGIC + hashlib.sha256(code).digest() else None


def compile_kernel(name: str) -> bytes:
    """Object code of one function, `name`: int32 (int64* result, void* error, int64 operands, int64 chunk)."""
    from numba import njit, types

    from kernels_cpu.registry import build
    from kernels_cpu.vectors import TARGET

    signature = types.void(types.intp, types.intp)
    options = {"boundscheck": False, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    dispatcher = njit(signature, nogil=True, **options)(build(name))
    text = dispatcher.inspect_llvm(dispatcher.signatures[0])
    mangled = dispatcher.overloads[dispatcher.signatures[0]].fndesc.mangled_name
    return emit_object(text, mangled, name, TARGET.vector_bits)


def emit_object(text: str, mangled: str, name: str, vector_bits: int) -> bytes:
    """Optimised IR of one kernel to object code, the function `mangled` renamed to `name`."""
    import llvmlite.binding as llvm
    from numba.core.registry import cpu_target

    widths = f'"prefer-vector-width"="{vector_bits}" "min-legal-vector-width"="{vector_bits}"'
    text = re.sub(r"^(attributes #\d+ = \{ mustprogress)", rf"\1 {widths}", text, flags=re.MULTILINE)
    module = llvm.parse_assembly(text)
    for function in module.functions:
        if function.name == mangled:
            function.name = name
        elif not function.is_declaration:
            function.linkage = "internal"
    module.verify()
    return cpu_target.target_context.codegen()._tm.emit_object(module)


def write_sealed(folder: Path, name: str, code: bytes) -> None:
    """Puts the file in place whole, or not at all."""
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=name, suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(seal(code))
        os.replace(temporary, folder / f"{name}.o")
    except OSError:
        os.unlink(temporary)
        raise


def end_with_parent() -> None:
    """Ends this process once its stdin ends: whoever started it holds the other end, and is gone then."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        os._exit(1)

    threading.Thread(target=watch, name="compiler-parent", daemon=True).start()


def main(arguments: list[str]) -> int:
    """Compiles the kernels named on the command line into the folder, as long as stdin is open."""
    end_with_parent()
    folder, names = Path(arguments[0]), arguments[1:]
    for name in names:
        code = compile_kernel(name)
        try:
            write_sealed(folder, name, code)
        except OSError as error:
            print(error.strerror or error, file=sys.stderr)
            return EXIT_UNWRITABLE
        print(name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
