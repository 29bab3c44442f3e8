"""What every test shares: the real models, downloaded once, and Hypothesis without chance.

Knows the catalog and nothing else of the rooms; helpers of single rooms are in tests/support.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from past_capture import say_past_capture

# The same examples on every machine and in every run; `--hypothesis-profile=explore` looks for new ones.
settings.register_profile("deterministic", deadline=None, derandomize=True, database=None, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile("deterministic")

# A shell that starts the suite in the background lets it ignore Ctrl-C, and so would every program that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def model_path(pytestconfig: pytest.Config) -> Callable[[str], Path]:
    """A function from a catalog name to the file, which it downloads when this machine lacks it.

    The folder is the program's own: TANDEM_MODELS_DIR, or the user's data folder.  A model that can't be had
    fails the test, with a sentence that says what to do; it never skips one.
    """
    found: dict[str, Path | str] = {}

    def path_of(name: str) -> Path:
        if name not in found:
            found[name] = _path_or_refusal(name, pytestconfig)
        path = found[name]
        if isinstance(path, str):
            pytest.fail(path, pytrace=False)
        return path

    return path_of


def _path_or_refusal(name: str, config: pytest.Config) -> Path | str:
    """Where the model lies, or a sentence that says why it can't be had: one try a run, not one a test."""
    from models.catalog import CATALOG
    from models.downloads import fetch
    from models.errors import ModelError
    from models.local_models import local_path, models_folder

    entry, folder = CATALOG[name], models_folder()
    present = local_path(entry, folder)
    if present is not None:
        return present
    say_past_capture(config, f"Fetching {name} ({entry.size_bytes / 1e6:.0f} MB, only once) into {folder} ...")
    try:
        return fetch(entry, folder)
    except ModelError as error:
        return (
            f"This test needs the model {name}, which is not in {folder} and could not be fetched: {error} "
            f"Run `tandem models pull {name}` where there is a network, or set TANDEM_MODELS_DIR to a folder with it."
        )
