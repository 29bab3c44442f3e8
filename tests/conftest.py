"""What every test shares: the real models, downloaded once, and Hypothesis without chance.

Knows the catalog and nothing else of the rooms; helpers of single rooms are in tests/support.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples on every machine and in every run; `--hypothesis-profile=explore` looks for new ones.
settings.register_profile("deterministic", deadline=None, derandomize=True, database=None, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile("deterministic")


def models_folder() -> Path:
    """Where the models of this machine lie: TANDEM_MODELS_DIR, or the folder that the program itself uses."""
    if text := os.environ.get("TANDEM_MODELS_DIR"):
        return Path(text).expanduser()
    return Path("~/.cache/tandem/models").expanduser()


@pytest.fixture(scope="session")
def model_path() -> Callable[[str], Path]:
    """A function from a catalog name to the file, which it downloads when this machine lacks it.

    A model that can't be had fails the test, with a sentence that says what to do; it never skips one.
    """
    found: dict[str, Path] = {}

    def path_of(name: str) -> Path:
        if name not in found:
            found[name] = _fetched(name, models_folder())
        return found[name]

    return path_of


def _fetched(name: str, folder: Path) -> Path:
    from models.catalog import CATALOG
    from models.downloads import fetch
    from models.errors import ModelError

    entry = CATALOG[name]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return fetch(entry, folder, None, threading.Event())
    except ModelError as error:
        pytest.fail(
            f"The tests need the model {name} in {folder}, and it could not be downloaded: {error} "
            f"Run `tandem models pull {name}` where there is a network, or set TANDEM_MODELS_DIR to a folder that has it.",
            pytrace=False,
        )
