"""Which sources a segment's kernels are compiled from, and with which definitions.

Owns the names of kernels and what one module has of them.  Does not compile (nvrtc.py) nor launch.
"""

from __future__ import annotations

from pathlib import Path

from kernels_gpu.launches import Module
from kernels_gpu.layout import defines_for
from kernels_gpu.matrices import Matrix
from kernels_gpu.plan import GpuLimits, Plan, attention_defines
from kernels_gpu.precision import Precision, terms_for
from models.program import Embed, GatedProject, MixExperts, Project, RotateAndStore
from models.segments import Segment

SOURCES = Path(__file__).resolve().parent / "sources"
BUCKETS = (1, 2, 4, 8)  # tokens that a product is compiled for
QUANTIZED = tuple(f"{kind}_{count}" for kind in ("product", "gated") for count in BUCKETS) + ("embed",)
PLAIN = (*(f"product_{count}" for count in BUCKETS), "embed")

ROWS_MODULE = Module(
    source="rows.cu", defines=(), kernels=("normalize", "quantize", "select_rows", "combine_gate", "cap_softly")
)
EXPERTS_MODULE = Module(source="experts.cu", defines=(), kernels=("choose", "group", "mix"))


def product_module(matrix: Matrix, terms: int) -> Module:
    """The products of a matrix's format with so many terms."""
    if matrix.is_plain:
        return Module(source="product_plain.cu", defines=defines_for(matrix.format_name, 1), kernels=PLAIN)
    return Module(source="product.cu", defines=defines_for(matrix.format_name, terms), kernels=QUANTIZED)


def prefill_module(product: Module) -> Module:
    """The tensor cores' products for the same format and terms."""
    return Module(source="prefill.cu", defines=product.defines, kernels=("product_prefill",))


def experts_module(product: Module) -> Module:
    """The products of experts that belong to those of a format."""
    return Module(source="product_experts.cu", defines=product.defines, kernels=("product_experts", "gated_experts"))


def prefill_experts_module(product: Module) -> Module:
    """The same on tensor cores."""
    return Module(source="prefill_experts.cu", defines=product.defines, kernels=("prefill_experts",))


def attention_module(limits: GpuLimits) -> Module:
    """Attention of a few tokens, for the cache's types."""
    defines = attention_defines(limits.cache_types)
    return Module(source="attention.cu", defines=defines, kernels=("rotate_and_store", "attend", "combine"))


def prompt_attention_module(limits: GpuLimits) -> Module:
    """Attention of a prompt."""
    defines = attention_defines(limits.cache_types)
    return Module(source="attention_prompt.cu", defines=defines, kernels=("attend_prompt",))


def modules_of(segment: Segment, plan: Plan, limits: GpuLimits, precision: Precision) -> list[Module]:
    """What must be compiled for a segment, each once."""
    fine, coarse = terms_for(precision), terms_for(precision, is_coarse=True)
    wanted: dict[Module, None] = {ROWS_MODULE: None}

    def want(terms: int, *names: str) -> None:
        wanted.update(dict.fromkeys(product_module(plan.matrices[name], terms) for name in names))

    for operation in segment.operations:
        match operation:
            case Embed(weight=weight):
                want(fine, weight)
            case Project(parts=parts, is_coarse=is_coarse):
                want(coarse if is_coarse else fine, *(part.weight for part in parts))
            case GatedProject(gate=gate, up=up, is_coarse=is_coarse):
                want(coarse if is_coarse else fine, gate, up)
            case MixExperts(router=router, gate=gate, up=up, down=down):
                want(fine, router.weight)
                wanted[EXPERTS_MODULE] = None
                for name in (gate, up, down):
                    product = product_module(plan.matrices[name], coarse)
                    wanted |= dict.fromkeys((experts_module(product), prefill_experts_module(product)))
            case RotateAndStore():
                wanted |= dict.fromkeys((attention_module(limits), prompt_attention_module(limits)))
            case _:
                pass
    quantized = [module for module in wanted if module.source == "product.cu"]
    return [*wanted, *map(prefill_module, quantized)]
