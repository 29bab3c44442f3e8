"""A step program as text, one operation a line, for people and for snapshot tests.

Owns how operations and their fields are written.  Does not know what they do.
"""

from __future__ import annotations

from models.buffers import Buffer
from models.program import KvLayer, Operation, Part, Program, Rope
from models.recurrence import StateLayer


def describe(program: Program) -> str:
    """The operations in order."""
    return "\n".join(map(_describe, program.operations))


def _describe(operation: Operation) -> str:
    """`GatedProject layer 3: x=h gate=blk.3.ffn_gate.weight ...`."""
    where = "" if operation.layer_idx is None else f" layer {operation.layer_idx}"
    shown = {key: value for key, value in vars(operation).items() if key != "layer_idx" and value not in (None, False)}
    words = [f"{key}={_show(value)}" for key, value in shown.items()]
    return f"{type(operation).__name__}{where}: {' '.join(words)}"


def _show(value: object) -> str:
    match value:
        case Buffer():
            return f"{value.name}[{value.width}]"
        case Part():
            return f"{value.weight}{'+' + value.bias if value.bias else ''}->{_show(value.out)}"
        case Rope():
            magnitude = "" if value.magnitude == 1.0 else f",magnitude {value.magnitude:.6g}"
            return f"rope({value.dimensions},{value.pairing},slowest {value.frequencies[-1]:.6g}{magnitude})"
        case KvLayer():
            return f"kv({value.num_kv_heads}x{value.head_dim}{f',window {value.window}' if value.window else ''})"
        case StateLayer():
            matrices = f",{value.num_heads}x{value.key_dim}x{value.value_dim}" if value.num_heads else ""
            return f"state({value.num_inputs}x{value.channels}{matrices})"
        case tuple():
            return "(" + ",".join(_show(item) for item in value) + ")"
        case _:
            return str(value)
