"""Models that are split over several GGUF files: -00001-of-00003, -00002-of-00003, ...

Owns the names of the parts and how they must fit together.  Does not map or parse files.
"""
from __future__ import annotations

import re
from pathlib import Path

from models.errors import FileError, quoted
from models.gguf_values import Metadata

_PART_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


def part_count(metadata: Metadata, label: str) -> int:
    """Of how many parts the model consists by its metadata; 1 where it does not say."""
    count = metadata.get("split.count", 1)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= 65535:
        raise FileError(f"{label}: key 'split.count' is {quoted(repr(count))}, expected a number of parts: the file is damaged.")
    return max(count, 1)


def part_paths(path: Path, count: int, label: str) -> list[Path]:
    """The paths of all parts, beside the one given.  FileError when its name is not that of a part, or one is missing."""
    match = _PART_NAME.fullmatch(path.name)
    if match is None or int(match["count"]) != count:
        raise FileError(
            f"{label} is one of {count} parts of a model, expected a name like 'model-00001-of-{count:05}.gguf': give all "
            "parts the names they were published under, in one folder."
        )
    paths = [path.with_name(f"{match['stem']}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    missing = [part for part in paths if not part.exists()]
    if missing:
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise FileError(
            f"{label} is one of {count} parts of a model, but {quoted(missing[0].name, limit=None)}{others} is missing beside it: "
            "download every part into the same folder."
        )
    return paths


def check_part(metadata: Metadata, part_idx: int, count: int, label: str) -> None:
    """FileError unless the file says of itself that it is that part of so many."""
    found = (metadata.get("split.no"), metadata.get("split.count"))
    if found != (part_idx, count):
        raise FileError(
            f"{label} says it is part {quoted(repr(found[0]))} (counted from 0) of {quoted(repr(found[1]))}, expected {part_idx} of "
            f"{count} by its name: parts of different models are mixed up, download them again."
        )


def check_total(metadata: Metadata, num_tensors: int, label: str) -> None:
    """FileError unless all parts together hold as many tensors as the first one says."""
    total = metadata.get("split.tensors.count", num_tensors)
    if total != num_tensors:
        raise FileError(
            f"{label}: all parts together hold {num_tensors:,} tensors, expected {quoted(repr(total))} by key "
            "'split.tensors.count': parts of different models are mixed up, download them again."
        )
