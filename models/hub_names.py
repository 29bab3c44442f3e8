"""Names on the hub: what `owner/repo[:quant]` means, and which of a repository's files it picks.

Owns these rules for remote listings and for folders on disk alike.  Does not know the network.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from models.errors import DownloadError

_REFERENCE = re.compile(r"(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?::(?P<choice>[\w./ -]+))?", re.ASCII)
_PIECE = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
_QUANTISATION = re.compile(r"(?<![A-Za-z0-9])(?:I?Q\d[A-Z0-9_]*|T?Q\d_\d|BF16|F16|F32)(?![A-Za-z0-9])", re.IGNORECASE)
_PREFERRED = ("Q4_K_M", "Q4_K_S", "Q4_1", "Q4_0", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0", "Q6_K", "Q8_0", "Q3_K_M", "F16")


@dataclass(frozen=True, kw_only=True)
class HubReference:
    """A repository, and which of its models: a quantisation such as Q4_K_M, a file's name, or None for the usual."""

    repository: str
    choice: str | None = None

    def __str__(self) -> str:
        return self.repository if self.choice is None else f"{self.repository}:{self.choice}"


def parse_reference(text: str) -> HubReference | None:
    """`owner/repo[:quant]`, or None when the text is something else."""
    match = _REFERENCE.fullmatch(text)
    if match is None or ".." in text:
        return None
    return HubReference(repository=match["repository"], choice=match["choice"])


def is_safe_name(name: str) -> bool:
    """Whether a file's name, as a repository gives it, stays below the folder that it is put in."""
    if not name or not name.isprintable() or "\\" in name or ":" in name:
        return False
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and str(path) == name


def quantisation_of(name: str) -> str | None:
    """The quantisation that a file's name tells, in capitals, or None."""
    found = _QUANTISATION.findall(PurePosixPath(name).name)
    return found[-1].upper() if found else None


def pick_files(names: Iterable[str], choice: str | None, *, where: str) -> tuple[str, ...]:
    """The files of the one model that is meant, in the order of their numbers when it is split.

    names: every file of the repository or folder `where`.  choice: a quantisation (capitals don't matter), the name
    of a .gguf file, or None for Q4_K_M or what comes nearest.  Raises DownloadError that names what there is.
    """
    models = gguf_models(names, where)
    if not models:
        raise DownloadError(f"{where} holds no GGUF model: choose one that does (their names often end in -GGUF).")
    if choice is None:
        return _usual(models, where)
    wanted = choice.lower()
    if wanted.endswith(".gguf"):
        chosen = [files for files in models if any(wanted in (name.lower(), _base(name).lower()) for name in files)]
    else:
        chosen = [
            files for files in models if _ends_with(files[0], wanted) or quantisation_of(files[0]) == choice.upper()
        ]
    if not chosen:
        raise DownloadError(f"{where} has no {choice}; it has {_offer(models)}.")
    return _complete(min(chosen, key=_plainness), where)


def gguf_models(names: Iterable[str], where: str) -> list[tuple[str, ...]]:
    """The GGUF models among the names, each with its pieces; projectors and importance matrices are none."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name in names:
        base = _base(name).lower()
        if not base.endswith(".gguf") or "mmproj" in base or "imatrix" in base:
            continue
        if not is_safe_name(name):
            raise DownloadError(f"{where} holds a file named {name!r}, which would land outside its folder: refused.")
        match = _PIECE.fullmatch(name)
        key = (match["stem"], match["count"]) if match else (name, "")
        groups.setdefault(key, []).append(name)
    return [tuple(sorted(group)) for group in groups.values()]


def _usual(models: list[tuple[str, ...]], where: str) -> tuple[str, ...]:
    if len(models) == 1:
        return _complete(models[0], where)
    for quantisation in _PREFERRED:
        chosen = [files for files in models if quantisation_of(files[0]) == quantisation]
        if chosen:
            return _complete(min(chosen, key=_plainness), where)
    raise DownloadError(f"{where} has several models: choose one of {_offer(models)} as {where}:NAME.")


def _complete(files: tuple[str, ...], where: str) -> tuple[str, ...]:
    match = _PIECE.fullmatch(files[0])
    if match is None:
        return files
    count = int(match["count"])
    numbers = [int(piece["number"]) for name in files if (piece := _PIECE.fullmatch(name))]
    missing = sorted(set(range(1, count + 1)) - set(numbers))
    if missing or len(numbers) != count:
        raise DownloadError(f"{where} lacks part {missing[0] if missing else '?'} of {count} of {match['stem']}.")
    return files


def _ends_with(name: str, wanted: str) -> bool:
    """Whether a name without its number and ending ends with the whole words that are wanted: UD-Q4_K_XL."""
    match = _PIECE.fullmatch(name)
    stem = (match["stem"] if match else name[: -len(".gguf")]).lower()
    return re.search(rf"(?<![a-z0-9_]){re.escape(wanted)}$", stem) is not None


def _plainness(files: tuple[str, ...]) -> tuple[int, str]:
    return len(files[0]), files[0]


def _base(name: str) -> str:
    return PurePosixPath(name).name


def _offer(models: list[tuple[str, ...]]) -> str:
    return ", ".join(sorted({quantisation_of(files[0]) or _base(files[0]) for files in models}))
