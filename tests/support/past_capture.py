"""A sentence on the terminal while tests run, past what pytest captures.

Owns nothing: for work of minutes in fixtures, which would otherwise look like a test that hangs.
"""

from __future__ import annotations

import pytest
from _pytest.capture import CaptureManager


def say_past_capture(config: pytest.Config, sentence: str) -> None:
    """Shows it at once, on a line of its own."""
    capture = config.pluginmanager.getplugin("capturemanager")
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if isinstance(capture, CaptureManager) and isinstance(reporter, pytest.TerminalReporter):
        with capture.global_and_fixture_disabled():
            reporter.write_line(f"\n{sentence}")
