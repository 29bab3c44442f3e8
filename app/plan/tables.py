"""A plan as text and as JSON values.

Owns the words, the columns and the names.  Does not know streams or how a plan is made.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from typing import Any

from app.figures import rate_text
from runtime.catalog import size_text
from runtime.memory import DeviceBill
from runtime.plans import ModelPlan

_TITLES = {"cpu": "CPU", "gpu": "GPU"}
_NOTHING = "-"
_GAP = "  "

Row = tuple[str, Callable[[DeviceBill], int | None]]


def plan_text(plan: ModelPlan, columns: int | None) -> str:
    """Lines for people.  columns: where sentences are broken; None: nowhere."""
    lines = [
        *_broken([f"{plan.name}: {plan.architecture}, {plan.num_layers} layers, {_parameters(plan)}"], columns),
        "",
        *_bill_lines(plan),
        "",
        *_fact_lines(plan, columns),
    ]
    sentences = [*plan.reasons, *plan.notes]
    if sentences:
        lines += ["", *_broken(sentences, columns)]
    return "\n".join(lines) + "\n"


def plan_value(plan: ModelPlan) -> dict[str, Any]:
    """The JSON object."""
    return {
        "model": {
            "name": plan.name,
            "path": str(plan.path),
            "architecture": plan.architecture,
            "num_parameters": plan.num_parameters,
            "size_bytes": plan.size_bytes,
            "num_layers": plan.num_layers,
            "trained_context_size": plan.trained_context_size,
        },
        "fits": plan.fits,
        "fault": plan.fault,
        "gpu_layers": plan.bill.gpu_layers,
        "cpu_experts": plan.bill.cpu_experts,
        "context_size": plan.bill.context_size,
        "largest_context_size": plan.largest_context_size,
        "threads": plan.threads,
        "batch_size": plan.batch_size,
        "cache_type_k": plan.cache_type_k,
        "cache_type_v": plan.cache_type_v,
        "draft": plan.draft,
        "devices": [_device_value(device) for device in plan.bill.devices],
        "forecast": {
            "tokens_per_s": plan.forecast.tokens_per_s,
            "full_tokens_per_s": plan.forecast.full_tokens_per_s,
            "devices": [
                {
                    "device": pace.kind,
                    "moved_bytes": pace.moved_bytes,
                    "full_moved_bytes": pace.full_moved_bytes,
                    "read_bytes_per_s": pace.bandwidth.read_bytes_per_s,
                    "source": pace.bandwidth.source,
                }
                for pace in plan.forecast.devices
            ],
        },
        "reasons": list(plan.reasons),
        "notes": list(plan.notes),
    }


def _device_value(device: DeviceBill) -> dict[str, Any]:
    memory = device.memory
    return {
        "device": device.kind,
        "name": device.name,
        "weights_bytes": memory.weights_bytes,
        "kv_bytes": memory.kv_bytes,
        "workspace_bytes": memory.workspace_bytes,
        "draft_bytes": device.draft.total_bytes if device.draft else 0,
        "graph_bytes": device.graph_bytes,
        "total_bytes": device.total_bytes,
        "free_bytes": device.free_bytes,
        "margin_bytes": device.margin_bytes,
        "fits": device.fits,
    }


def _parameters(plan: ModelPlan) -> str:
    count = plan.num_parameters
    return f"{count / 1e9:.1f} billion parameters" if count >= 1e9 else f"{count / 1e6:.0f} million parameters"


def _bill_lines(plan: ModelPlan) -> list[str]:
    """A column a device; rows that are nothing everywhere are left out."""
    types = plan.cache_type_k if plan.cache_type_k == plan.cache_type_v else f"{plan.cache_type_k}/{plan.cache_type_v}"
    rows: list[Row] = [
        ("weights", lambda device: device.memory.weights_bytes),
        (f"KV cache {types}", lambda device: device.memory.kv_bytes),
        ("workspace", lambda device: device.memory.workspace_bytes),
        ("draft model", lambda device: device.draft.total_bytes if device.draft else 0),
        ("driver, graphs", lambda device: device.graph_bytes),
    ]
    devices = plan.bill.devices
    rows = [row for row in rows if any(row[1](device) for device in devices)]
    rows += [
        ("total", lambda device: device.total_bytes),
        ("free", lambda device: device.free_bytes),
        ("to be left free", lambda device: device.margin_bytes),
    ]
    cells = [("", [_TITLES[device.kind] for device in devices])]
    cells += [(label, [_size(value(device)) for device in devices]) for label, value in rows]
    cells.append(("", ["fits" if device.fits else "too much" for device in devices]))
    label_width = max(len(label) for label, _ in cells)
    width = max(len(text) for _, texts in cells for text in texts)
    return [
        f"{label:<{label_width}}{''.join(f'{_GAP}{text:>{width}}' for text in texts)}".rstrip()
        for label, texts in cells
    ]


def _size(size_bytes: int | None) -> str:
    if size_bytes is None:
        return "not known"
    return size_text(size_bytes) if size_bytes else _NOTHING


def _fact_lines(plan: ModelPlan, columns: int | None) -> list[str]:
    bill, paces = plan.bill, plan.forecast
    where = (
        f"the last {bill.gpu_layers} of {plan.num_layers} on the {plan.card.name}" if plan.card else "all on the CPU"
    )
    where = where if bill.gpu_layers < plan.num_layers else f"all {plan.num_layers} on the {_card(plan)}"
    if bill.cpu_experts:
        where += f", the experts of the first {bill.cpu_experts} on the CPU"
    bandwidths = ", ".join(
        f"{_TITLES[pace.kind]} memory {pace.bandwidth.read_bytes_per_s / 1e9:.0f} GB/s {pace.bandwidth.source}"
        for pace in paces.devices
    )
    facts = [
        ("layers", where),
        ("context", f"{bill.context_size} tokens; {_largest(plan)}"),
        ("batch", f"{plan.batch_size} tokens"),
        ("threads", str(plan.threads)),
        ("draft", plan.draft or ""),
        (
            "decode",
            f"{rate_text(paces.tokens_per_s)} tokens/s at most, {rate_text(paces.full_tokens_per_s)} with a full "
            f"context ({bandwidths})",
        ),
    ]
    facts = [(label, text) for label, text in facts if text]
    indent = max(len(label) for label, _ in facts) + len(_GAP)
    return [line for label, text in facts for line in _hanging(label, text, indent, columns)]


def _card(plan: ModelPlan) -> str:
    return plan.card.name if plan.card else "CPU"


def _largest(plan: ModelPlan) -> str:
    largest, trained = plan.largest_context_size, plan.trained_context_size
    if largest is None:
        return "none would fit"
    if plan.bill.context_size > trained:
        return f"it was trained for {trained}"
    if largest >= trained:
        return f"all {trained} that it was trained for would fit"
    return f"{largest} would fit, of {trained} that it was trained for"


def _hanging(label: str, text: str, indent: int, columns: int | None) -> list[str]:
    head = f"{label:<{indent}}"
    if columns is None:
        return [head + text]
    return textwrap.wrap(text, max(columns, indent + 20), initial_indent=head, subsequent_indent=" " * indent)


def _broken(sentences: Iterable[str], columns: int | None) -> list[str]:
    if columns is None:
        return list(sentences)
    return [line for sentence in sentences for line in textwrap.wrap(sentence, max(columns, 20))]
