"""`tandem bench --compare A B`: which differences are larger than noise.

Owns what is said on which stream.  The rule is runtime.benchmark.comparison's.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from app.bench.arguments import CompareRequest
from app.bench.documents import comparison_csv, comparison_values, difference_values, read_results
from app.bench.markdown import comparison_markdown
from app.errors import EXIT_SUCCESS, AppError
from app.output import Console
from runtime.benchmark.comparison import compare
from runtime.benchmark.results import Environment


def run(request: CompareRequest, console: Console) -> int:
    """Read both, compare, print."""
    first_rows, first_environments = read_results(request.first)
    second_rows, second_environments = read_results(request.second)
    comparison = compare(first_rows, second_rows)
    if not comparison.differences:
        raise AppError(
            f"{request.first} and {request.second} have no test in common.",
            hint="engine, model file, threads, batch size, cache types, activations and test must be the same.",
        )
    for warning in _warnings(first_environments, second_environments):
        console.note(f"warning: {warning}")
    match request.format:
        case "md":
            console.text(comparison_markdown(comparison))
        case "json":
            console.text(json.dumps(comparison_values(comparison), ensure_ascii=False, indent=1) + "\n")
        case "jsonl":
            for difference in comparison.differences:
                console.json(difference_values(difference))
        case _:
            console.text(comparison_csv(comparison))
    return EXIT_SUCCESS


def _warnings(first: Sequence[Environment], second: Sequence[Environment]) -> list[str]:
    """What makes two runs hard to compare."""
    warnings = []
    names = [{environment.machine.get("cpu_name") for environment in side} for side in (first, second)]
    if names[0] != names[1]:
        warnings.append(f"the processors differ: {_listed(names[0])} and {_listed(names[1])}.")
    for name, side in (("A", first), ("B", second)):
        loads = [environment.load_start for environment in side if environment.load_start is not None]
        cores = [environment.machine.get("num_cores") or 1 for environment in side]
        if loads and max(loads) > max(cores) / 2:
            warnings.append(f"{name} was measured on a busy machine (load {max(loads):g} on {max(cores)} cores).")
    return warnings


def _listed(names: Collection[object]) -> str:
    return ", ".join(sorted(map(str, names)))
