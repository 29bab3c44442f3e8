"""Which kernels exist: a kernel's name to the Python function that Numba compiles.

A name is a family and its parameters, such as `product-Q4_K-2`.  Owns the families; nothing is imported before a
kernel is asked for, and only the compiler's processes ask.
"""

from __future__ import annotations

from collections.abc import Callable

from kernels_cpu.kv_layout import CacheTypes
from kernels_cpu.packed_formats import FLOAT_FORMATS

Kernel = Callable[[int, int], None]


def build(name: str) -> Kernel:
    """The Python function of a kernel (operands address, chunk).  Raises KeyError for an unknown family."""
    family, *parameters = name.split("-")
    return FAMILIES[family](*parameters)


def _product(format_name: str, terms: str) -> Kernel:
    from kernels_cpu.product import make_product

    return make_product(format_name, int(terms))


def _product_floats(format_name: str) -> Kernel:
    from kernels_cpu.product_floats import make_product_floats

    return make_product_floats(format_name)


def _pack(format_name: str) -> Kernel:
    from kernels_cpu.packing import make_pack, make_pack_floats

    size = FLOAT_FORMATS.get(format_name)
    return make_pack(format_name) if size is None else make_pack_floats(size)


def _requantize(format_name: str) -> Kernel:
    from kernels_cpu.requantize import make_requantize

    return make_requantize(format_name)


def _embed(format_name: str) -> Kernel:
    from kernels_cpu.rows import make_embed, make_embed_floats

    return make_embed_floats(format_name) if format_name in FLOAT_FORMATS else make_embed(format_name)


def _expert_product(format_name: str, terms: str) -> Kernel:
    from kernels_cpu.experts import make_expert_product

    return make_expert_product(format_name, int(terms))


def _experts(kind: str, *terms: str) -> Kernel:
    from kernels_cpu import experts

    makers = {
        "choose": experts.make_choose,
        "group": experts.make_group,
        "gather": experts.make_gather,
        "gather_floats": experts.make_gather_floats,
        "mix": experts.make_mix,
    }
    return makers[kind](*map(int, terms))


def _row(kind: str) -> Kernel:
    from kernels_cpu import norms, rows

    makers = {
        "normalize": norms.make_normalize,
        "quantize": rows.make_quantize,
        "select": rows.make_select,
        "gate": rows.make_gate,
        "cap": rows.make_cap,
        "scale": rows.make_scale,
        "weigh": rows.make_weigh,
        "separate": rows.make_separate,
    }
    return makers[kind]()


def _recurrence(kind: str) -> Kernel:
    from kernels_cpu import recurrence

    return {"convolve": recurrence.make_convolve, "delta": recurrence.make_delta}[kind]()


def _attend(k: str, v: str) -> Kernel:
    from kernels_cpu.attention import make_attend

    return make_attend(CacheTypes.named(k, v))


def _combine() -> Kernel:
    from kernels_cpu.attention import make_combine

    return make_combine()


def _rotate(k: str, v: str) -> Kernel:
    from kernels_cpu.rotate import make_rotate

    return make_rotate(CacheTypes.named(k, v))


def _executor(part: str) -> Kernel:
    from kernels_cpu import executor

    return {"run": executor.run, "work": executor.work}[part]


def _probe(kind: str) -> Kernel:
    from kernels_cpu import probe

    return {"read": probe.make_read, "multiply": probe.make_multiply, "add": probe.make_add}[kind]()


FAMILIES: dict[str, Callable[..., Kernel]] = {
    "product": _product,
    "product_floats": _product_floats,
    "expert_product": _expert_product,
    "experts": _experts,
    "pack": _pack,
    "requantize": _requantize,
    "embed": _embed,
    "row": _row,
    "recurrence": _recurrence,
    "attend": _attend,
    "combine": _combine,
    "rotate": _rotate,
    "executor": _executor,
    "probe": _probe,
}
