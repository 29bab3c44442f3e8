"""Which versions are at work: of Tandem, Python and the packages that results depend on.

Owns the list of packages.  Imports none of them.
"""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "tandem-llm"
_PACKAGES = (
    "numpy",
    "numba",
    "llvmlite",
    "llguidance",
    "tokenizers",
    "sentencepiece",
    "jinja2",
    "huggingface-hub",
    "textual",
    "pip",
    "cupy-cuda13x",
    "cupy-cuda12x",
)


def tandem_version() -> str:
    """Tandem's version, or that it was not installed."""
    return _version(DISTRIBUTION) or "unknown (not installed as a package)"


def package_versions() -> dict[str, str]:
    """Python and the installed packages of the list, by name."""
    found = {name: text for name in _PACKAGES if (text := _version(name)) is not None}
    return {"python": platform.python_version(), **found}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
