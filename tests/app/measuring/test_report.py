"""What is heard while a session measures."""

from __future__ import annotations

import io

from app.measuring.report import MeasuringReport
from app.output import Console


def test_a_note_is_said_once() -> None:
    stderr = io.StringIO()
    report = MeasuringReport(Console(io.StringIO(), stderr))
    for text in ("first", "second", "first"):
        report.noted(text)
    assert stderr.getvalue() == "note: first\nnote: second\n"
