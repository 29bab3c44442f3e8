"""How figures are written for people: rates, shares, times, rows.

Owns the rounding and the words.  Does not know tables or charts.
"""

from __future__ import annotations

from pathlib import PurePath

from runtime.benchmark.results import TANDEM, Row, Setting
from runtime.benchmark.statistics import Spread


def rate_text(tokens_per_s: float) -> str:
    """Four significant digits, no more than two decimals."""
    if tokens_per_s >= 1000:
        return f"{tokens_per_s:.0f}"
    return f"{tokens_per_s:.1f}" if tokens_per_s >= 100 else f"{tokens_per_s:.2f}"


def range_text(spread: Spread) -> str:
    """From the least to the most."""
    return f"{rate_text(spread.least)} .. {rate_text(spread.most)}"


def ratio_text(ratio: float) -> str:
    """1.36."""
    return f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}"


def share_text(share: float) -> str:
    """Per cent."""
    return f"{share * 100:.0f} %"


def giga_text(per_s: float) -> str:
    """Milliards."""
    return f"{per_s / 1e9:.1f}" if per_s < 100e9 else f"{per_s / 1e9:.0f}"


def mega_text(count: float) -> str:
    """Millions."""
    return f"{count / 1e6:.1f}" if count < 100e6 else f"{count / 1e6:.0f}"


def model_text(setting: Setting) -> str:
    """The file, without its ending: what a person called it."""
    return PurePath(setting.model_file).stem


def engine_text(setting: Setting) -> str:
    """The engine, and how it was called."""
    return setting.engine if setting.engine == TANDEM else f"{setting.engine} {setting.variant}"


def threads_text(threads: int) -> str:
    """1 thread, 2 threads."""
    return f"{threads} thread" if threads == 1 else f"{threads} threads"


def row_title(row: Row) -> str:
    """One row's test in words."""
    setting = row.setting
    words = [model_text(setting), row.workload.label, threads_text(setting.threads)]
    words.append(engine_text(setting) if setting.engine != TANDEM else setting.activations or "")
    return ", ".join(filter(None, words))


def against_one_text(row: Row) -> str:
    """What a pass of several tokens, or of several sequences, is against one token; "" for other tests."""
    if row.step_time_ratio is None:
        return ""
    if row.workload.test == "parallel":
        return f"{row.workload.width / row.step_time_ratio:.2f} x the tokens/s of one"
    return f"{row.step_time_ratio:.2f} x the time of one token"


def guessing_text(row: Row) -> str:
    """What guessing brought; "" for other tests."""
    found = row.speculation
    if found is None:
        return ""
    lossless = "all answers the same" if found.same_answers == found.answers else "ANSWERS DIFFER"
    return f"{ratio_text(found.ratio.median)} x of {rate_text(found.plain_tokens_per_s)} without guesses, {lossless}"


def remark(row: Row) -> str:
    """What else there is to say about a row."""
    said = [against_one_text(row), guessing_text(row)]
    if row.ttft_s is not None:
        said.append(f"first token after {row.ttft_s:.3f} s")
    if row.overhead_ms is not None:
        said.append(f"{row.overhead_ms:.2f} ms a token beside the device")
    if not row.is_complete:
        repeats = len(row.tokens_per_s_samples)
        said.append(f"stopped after {repeats} {'repeat' if repeats == 1 else 'repeats'}")
    return ", ".join(filter(None, said))
