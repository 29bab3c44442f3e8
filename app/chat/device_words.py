"""What the machine does, as lines of text: devices, memory by kind, guessing, the times of the latest tokens.

Owns the wording at a given width. Knows nothing of the screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from app.chat.engine_port import MemoryUse
from app.chat.pass_log import PassFigures
from app.chat.plain_text import one_line, shortened
from runtime.catalog import size_text

_BARS = "▁▂▃▄▅▆▇█"
_LABEL_COLUMNS = 8


@dataclass(frozen=True, kw_only=True)
class DeviceFigures:
    """All that the panel shows. None: not known (yet).

    `read_bytes_a_pass`: what a pass moves; `limit_bytes_per_s`: what the memory gives at most.
    """

    memory: Sequence[MemoryUse] = ()
    passes: PassFigures = PassFigures()
    read_bytes_a_pass: int | None = None
    limit_bytes_per_s: float | None = None
    draft: str = ""


def device_lines(figures: DeviceFigures, width: int, *, is_plain: bool = False) -> list[str]:
    """The lines, each in at most `width` columns. is_plain: words in place of a picture of the token times."""
    lines = [*_speed(figures), *_memory(figures), *_guessing(figures)]
    times_ms = figures.passes.token_times_ms
    if times_ms:
        lines.append(f"Times   {_span(times_ms)}")
        if not is_plain:
            lines.append(sparkline(times_ms, width))
    return [shortened(line, width) for line in lines]


def sparkline(values: Sequence[float], width: int) -> str:
    """The latest values as bars, the tallest three times the median or more."""
    shown = list(values)[-max(1, width) :]
    top = max(3 * median(shown), 1e-9)
    return "".join(_BARS[min(len(_BARS) - 1, int(len(_BARS) * value / top))] for value in shown)


def _speed(figures: DeviceFigures) -> list[str]:
    passes = figures.passes
    if passes.ms_a_token is None or passes.ms_a_pass is None:
        return ["Speed   measured when a reply is written"]
    lines = [f"Speed   {passes.ms_a_token:.1f} ms a token · {1e3 / max(passes.ms_a_token, 1e-6):.1f} tokens/s"]
    if passes.spent_a_token is not None:
        spent = passes.spent_a_token
        lines.append(f"Where   CPU {spent.cpu_ms:.1f} · GPU {spent.gpu_ms:.1f} · copies {spent.transfer_ms:.1f} ms")
    if figures.read_bytes_a_pass is not None and passes.ms_a_pass > 0:
        read_per_s = figures.read_bytes_a_pass / (passes.ms_a_pass / 1e3)
        lines.append(f"Reads   {size_text(figures.read_bytes_a_pass)} a pass · {read_per_s / 1e9:.1f} GB/s")
        if figures.limit_bytes_per_s:
            share = 100 * read_per_s / figures.limit_bytes_per_s
            limit = f"{figures.limit_bytes_per_s / 1e9:.1f} GB/s"
            # What was measured while others used the memory is no limit.
            told = f"{share:.0f} % of {limit}, as measured" if share <= 100 else f"above the {limit} that were measured"
            lines.append(f"Limit   {told}")
    return lines


def _memory(figures: DeviceFigures) -> list[str]:
    lines: list[str] = []
    for use in figures.memory:
        lines.append(_row(one_line(use.device), size_text(use.total_bytes)))
        for name, size_bytes in (
            ("weights", use.weights_bytes),
            ("KV", use.kv_bytes),
            ("work", use.workspace_bytes),
            ("draft", use.draft_bytes),
            ("driver", use.own_bytes),
        ):
            if size_bytes:
                lines.append(_row(f" {name}", size_text(size_bytes)))
    return lines


def _row(label: str, text: str) -> str:
    return f"{label:<{_LABEL_COLUMNS}}{'' if len(label) < _LABEL_COLUMNS else ' '}{text}"


def _guessing(figures: DeviceFigures) -> list[str]:
    passes = figures.passes
    if not passes.num_drafted:
        return [f"Draft   {one_line(figures.draft)}"] if figures.draft else []
    kept = f"{100 * passes.acceptance:.0f} % accepted" if passes.acceptance is not None else ""
    several = f"{passes.tokens_a_pass:.2f} tokens a pass" if passes.tokens_a_pass is not None else ""
    return [f"Draft   {' · '.join(filter(None, (kept, several)))}"]


def _span(times_ms: Sequence[float]) -> str:
    low, high = min(times_ms), max(times_ms)
    return f"{low:.1f} to {high:.1f} ms, median {median(times_ms):.1f}"
