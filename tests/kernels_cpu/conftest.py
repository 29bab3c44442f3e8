"""Compiles in one go what the tests of this room call, when many of them run.

Starting a compiler takes longer than most kernels; whoever runs a single test compiles its kernel's family alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.capture import CaptureManager
from kernels import LEVELS, compile_all

MANY = 100


@pytest.fixture(scope="session", autouse=True)
def _compiled(request: pytest.FixtureRequest) -> None:
    here = Path(__file__).parent
    if sum(item.path.is_relative_to(here) for item in request.session.items) >= MANY:
        for level in LEVELS:
            compile_all(level, lambda sentence: _say(request.config, sentence))


def _say(config: pytest.Config, sentence: str) -> None:
    """Writes past pytest's capture, so that a minute of compiling does not look like a hanging test."""
    capture = config.pluginmanager.getplugin("capturemanager")
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if isinstance(capture, CaptureManager) and isinstance(reporter, pytest.TerminalReporter):
        with capture.global_and_fixture_disabled():
            reporter.write_line(f"\n{sentence}")
