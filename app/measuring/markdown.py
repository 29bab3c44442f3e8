"""What every measurement written as Markdown has: tables, and where and when it was made.

Owns their look.  Does not know columns or rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.benchmark.results import Environment


def grid(titles: Sequence[str], figures: Sequence[bool], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table with columns as wide as their longest text."""
    widths = [max(3, len(title), *(len(line[idx]) for line in lines)) for idx, title in enumerate(titles)]

    def written(texts: Sequence[str]) -> str:
        cells = (
            text.rjust(width) if is_figure else text.ljust(width)
            for text, width, is_figure in zip(texts, widths, figures, strict=True)
        )
        return f"| {' | '.join(cells)} |"

    rule = "|".join(
        f" {'-' * (width - 1)}: " if is_figure else f" {'-' * width} "
        for width, is_figure in zip(widths, figures, strict=True)
    )
    escaped = [[text.replace("|", "\\|") for text in line] for line in lines]
    return "\n".join([written(titles), f"|{rule}|", *map(written, escaped)])


def environment_lines(environment: Environment) -> str:
    """Where and when, as a list."""
    machine = environment.machine
    memory = machine.get("memory_total_bytes")
    facts = {
        "date": environment.date,
        "CPU": f"{machine.get('cpu_name')}, {machine.get('num_cores')} cores, {machine.get('isa')}",
        "memory": f"{memory / 2**30:.1f} GiB, huge pages {machine.get('huge_pages')}" if memory else "unknown",
        "load": f"{environment.load_start} at the start, {environment.load_end} at the end",
        "Tandem": environment.tandem,
        "versions": ", ".join(f"{name} {version}" for name, version in environment.versions.items()),
    }
    return "\n".join(f"- {name}: {fact}" for name, fact in facts.items())
