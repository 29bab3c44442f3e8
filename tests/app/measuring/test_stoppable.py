"""Work in a thread of its own: what it raises, and that nobody stops it unasked."""

from __future__ import annotations

import pytest

from app.measuring.stoppable import run_stoppable


def test_the_worker_raises_what_the_work_raised() -> None:
    assert run_stoppable(lambda: None, lambda: pytest.fail("nobody asked for it")) is False
    with pytest.raises(ZeroDivisionError):
        run_stoppable(lambda: 1 / 0, lambda: None)  # type: ignore[arg-type, return-value]
