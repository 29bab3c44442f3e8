"""Compiles in one go what the tests of this room call, when many of them run.

Starting a compiler takes longer than most kernels; whoever runs a single test compiles its kernel's family alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels import LEVELS, compile_all
from past_capture import say_past_capture

MANY = 100


@pytest.fixture(scope="session", autouse=True)
def _compiled(request: pytest.FixtureRequest) -> None:
    here = Path(__file__).parent
    if sum(item.path.is_relative_to(here) for item in request.session.items) >= MANY:
        for level in LEVELS:
            compile_all(level, lambda sentence: say_past_capture(request.config, sentence))
