"""The `tandem` command in this process, as if its words had been typed.

Owns what it writes where.  A command in a process of its own, in a terminal: terminal.py.
"""

from __future__ import annotations

import io

import pytest

import app.cli
from app.output import Console


def run_tandem(*words: object, stdout: io.StringIO | None = None) -> tuple[int, str, str]:
    """Exit status, stdout and stderr."""
    out, err = stdout or io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stderr", err)
        patch.setattr(app.cli, "console_of_process", lambda: Console(out, err))
        return app.cli.main([str(word) for word in words]), out.getvalue(), err.getvalue()
