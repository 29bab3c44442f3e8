"""How a row is told to people: what was measured, with which setting, and what it brought.

Owns the words.  Does not know tables or charts.
"""

from __future__ import annotations

from pathlib import PurePath

from app.figures import rate_text, ratio_text
from runtime.benchmark.results import TANDEM, Row, Setting


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
