"""What can be known of a model before it is loaded: its fingerprint, and how many answers memory has room for.

Owns the search for that number.  Does not know what it is wanted for; reads the file's header alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from models.gguf_file import ModelFile
from models.template_file import read_template_file
from runtime.adapters import AdapterChoice, open_adapted
from runtime.errors import CapacityError
from runtime.machine import Machine, read_machine
from runtime.options import EngineOptions
from runtime.placement import place, usable_cards

MOST_PARALLEL = 16
"""More at once make hardly more tokens a second on a processor, and let each wait longer."""


def fingerprint_of(
    path: Path | str, adapters: Sequence[AdapterChoice] = (), *, chat_template_file: Path | None = None
) -> str:
    """As EngineDescription.fingerprint will be, with what the file of a chat template adds to it.

    Raises ModelError for the files' faults.
    """
    with open_adapted(path, adapters) as file:
        fingerprint = file.fingerprint
    if chat_template_file is None:
        return fingerprint
    return f"{fingerprint} {read_template_file(Path(os.path.expanduser(chat_template_file))).sha256}"


def fitting_sequences(path: Path | str, options: EngineOptions, *, most: int, machine: Machine | None = None) -> int:
    """The largest max_sequences, up to `most`, with which each has the context that one alone would have.

    Raises CapacityError when not even one fits, ModelError for the file's faults.
    """
    machine = machine or read_machine()
    with open_adapted(path, options.adapters) as file:
        context_size = place(
            file, replace(options, max_sequences=1), machine, cards=usable_cards(options)
        ).bill.context_size
        options = replace(options, context_size=context_size)
        low, high = 1, max(1, min(most, options.batch_size, options.max_outputs))
        while low < high:
            middle = (low + high + 1) // 2
            if _fits(file, replace(options, max_sequences=middle), machine):
                low = middle
            else:
                high = middle - 1
    return low


def _fits(file: ModelFile, options: EngineOptions, machine: Machine) -> bool:
    try:
        place(file, options, machine, cards=usable_cards(options))
    except CapacityError:
        return False
    return True
