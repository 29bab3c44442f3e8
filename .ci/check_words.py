"""Finds what must not be in the repository: one machine's paths, registry addresses, tests that do not run.

Owns the list of patterns; knows nothing of the code that it reads.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

OWN_NAME = ".ci/check_words.py"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A pattern, the files that it is looked for in (a pattern of their names), and the reason."""

    pattern: re.Pattern[str]
    files: re.Pattern[str]
    reason: str


RULES = (
    Rule(
        pattern=re.compile(r"(?<![\w.~])/(?:root|work|opt/wheels|opt/pypi)\b"),
        files=re.compile(r""),
        reason="a path of one machine",
    ),
    Rule(
        pattern=re.compile(r"\b(?:pypi|pythonhosted|npmjs|debian)\.(?:org|com)\b"),
        files=re.compile(r""),
        reason="the address of a package registry",
    ),
    Rule(
        pattern=re.compile(r"://|--(?:extra-)?index-url|--find-links|--trusted-host"),
        files=re.compile(r"^requirements.*\.txt$"),
        reason="an address or an index in a pinned file",
    ),
    Rule(
        pattern=re.compile(r"\b(?:pytest\.skip|mark\.skip|skipif|importorskip|mark\.xfail|unittest\.skip)"),
        files=re.compile(r"^tests/.*\.py$"),
        reason="a test that may not run: what it needs is missing, so let it fail",
    ),
    Rule(
        pattern=re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b"),
        files=re.compile(r"\.(?:py|sh|cu|cuh|h|tcss|md|toml)$|^Makefile$"),
        reason="something left undone",
    ),
)


def findings(root: Path) -> list[str]:
    """One sentence for each line of a tracked or new text file under root that breaks a rule."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    sentences: list[str] = []
    for name in sorted(set(names) - {OWN_NAME}):
        rules = [rule for rule in RULES if rule.files.search(name)]
        for number, line in enumerate(_lines(root / name), start=1):
            broken = [rule.reason for rule in rules if rule.pattern.search(line)]
            sentences += [f"{name}:{number}: {reason}: {line.strip()[:80]}" for reason in broken]
    return sentences


def _lines(path: Path) -> list[str]:
    """The lines of a text file; none for one that is gone or not UTF-8 (test data)."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def main() -> int:
    sentences = findings(Path(__file__).resolve().parent.parent)
    print("\n".join(sentences) or "No word is out of place.")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
