"""Models that are split over several GGUF files: -00001-of-00003, -00002-of-00003, ...

Owns the names of the parts and how they must fit together.  Does not open or parse files.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from models.errors import FileError, quoted
from models.gguf_values import Metadata, shown_value

_PART_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_MIXED_UP = "parts of different models are mixed up, download them again."


def part_count(metadata: Metadata, label: str) -> int:
    """Of how many parts the model consists by its metadata; 1 where it does not say."""
    count = metadata.get("split.count", 1)
    if not isinstance(count, int) or not 0 <= count <= 65535:
        raise FileError(
            f"{label}: key 'split.count' is {shown_value(count)}, expected the number of parts: the file is damaged."
        )
    return max(int(count), 1)


def part_paths(path: Path, count: int, label: str) -> list[Path]:
    """The paths of all parts, beside the one given.  FileError: its name is not that of a part, or one is missing."""
    match = _PART_NAME.fullmatch(path.name)
    if match is None or int(match["count"]) != count or not 1 <= int(match["number"]) <= count:
        raise FileError(
            f"{label} is one of {count} parts of a model, expected a name like 'model-00001-of-{count:05}.gguf': give "
            "all parts the names they were published under, in one folder."
        )
    paths = [path.with_name(f"{match['stem']}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    missing = [part for part in paths if not os.path.exists(part)]
    if missing:
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise FileError(
            f"{label} is one of {count} parts of a model, and {quoted(missing[0].name, limit=None)}{others} is missing "
            "beside it: download every part into the same folder."
        )
    return paths


def check_part(metadata: Metadata, part_idx: int, count: int, label: str) -> None:
    """FileError unless the file says of itself that it is that part of so many."""
    for key, expected in (("split.no", part_idx), ("split.count", count)):
        found = metadata.get(key)
        if not isinstance(found, int) or found != expected:
            shown = "missing" if found is None else shown_value(found)
            raise FileError(f"{label}: key '{key}' is {shown}, expected {expected} by the file's name: {_MIXED_UP}")


def check_total(metadata: Metadata, num_tensors: int, label: str) -> None:
    """FileError unless all parts together hold as many tensors as the first one says."""
    total = metadata.get("split.tensors.count", num_tensors)
    if not isinstance(total, int) or total != num_tensors:
        raise FileError(
            f"{label}: all parts together hold {num_tensors:,} tensors, expected {shown_value(total)} by key "
            f"'split.tensors.count': {_MIXED_UP}"
        )
