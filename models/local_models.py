"""What lies in the models folder: which catalog models and hub repositories are there, and taking them away.

Owns the folder's layout (catalog files at its top, OWNER/REPOSITORY/FILE below it, unfinished downloads in a hidden
folder).  Does not know the network.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from models.catalog import CATALOG, CatalogEntry
from models.errors import DownloadError
from models.hub_names import HubReference, parse_reference, pick_files, quantisation_of
from models.system_calls import ask
from models.transfers import UNFINISHED_FOLDER

FOLDER_VARIABLE = "TANDEM_MODELS_DIR"


@dataclass(frozen=True, kw_only=True)
class LocalModel:
    """A model on this disk.  name: what `-m` takes for it.  paths: its files, the first one is what is opened."""

    name: str
    paths: tuple[Path, ...]
    size_bytes: int
    entry: CatalogEntry | None


@dataclass(frozen=True, kw_only=True)
class UnfinishedDownload:
    """What is left of a download that was stopped; pulling the model again goes on from it."""

    file_name: str
    size_bytes: int


def models_folder() -> Path:
    """Where models are kept unless the caller says otherwise: TANDEM_MODELS_DIR, or the user's data folder."""
    if text := os.environ.get(FOLDER_VARIABLE):
        return Path(text).expanduser()
    from platformdirs import user_data_path

    return user_data_path("tandem", appauthor=False) / "models"


def local_path(entry: CatalogEntry, folder: Path) -> Path | None:
    """Where a catalog model lies, or None when it is not there, or not with the size that was verified."""
    path = folder / entry.local_name
    try:
        size_bytes = ask(path, path.stat).st_size
    except OSError:
        return None
    return path if entry.sha256 is None or size_bytes == entry.size_bytes else None


def paired_draft(model: Path, folder: Path) -> Path | None:
    """Where the draft model lies that the catalog pairs with the one at that path; None when there is none."""
    paired = [entry for entry in CATALOG.values() if entry.draft is not None]

    def find() -> str | None:
        own = os.path.realpath(model)
        return next((entry.draft for entry in paired if os.path.realpath(folder / entry.local_name) == own), None)

    draft = ask(folder, find)
    return None if draft is None else local_path(CATALOG[draft], folder)


def local_reference(reference: HubReference, folder: Path) -> Path | None:
    """Where the first file of `owner/repo[:quant]` lies, or None when it is not (wholly) there."""
    home = folder / reference.repository

    def find() -> list[str]:
        found = home.rglob("*") if home.is_dir() else ()
        return [path.relative_to(home).as_posix() for path in found if path.is_file()]

    names = ask(home, find)
    try:
        return home / pick_files(names, reference.choice, where=reference.repository)[0]
    except DownloadError:
        return None


def list_local(folder: Path) -> list[LocalModel]:
    """Every model in the folder, by name."""
    return ask(folder, lambda: _list_local(folder))


def _list_local(folder: Path) -> list[LocalModel]:
    entries = {entry.local_name: entry for entry in CATALOG.values()}
    found: list[LocalModel] = []
    for home, names in _names_by_home(folder).items():
        while names:
            files = _next_model(names, str(home))
            names = [name for name in names if name not in files]
            paths = tuple(home / name for name in files)
            entry = entries.get(paths[0].relative_to(folder).as_posix())
            size_bytes = sum(path.stat().st_size for path in paths)
            name = entry.name if entry else _name_of(paths[0].relative_to(folder))
            found.append(LocalModel(name=name, paths=paths, size_bytes=size_bytes, entry=entry))
    return sorted(found, key=lambda model: (model.entry is None, model.name.lower()))


def list_unfinished(folder: Path) -> list[UnfinishedDownload]:
    """Downloads that were stopped, by name."""
    return ask(folder, lambda: _list_unfinished(folder))


def _list_unfinished(folder: Path) -> list[UnfinishedDownload]:
    parts = sorted((folder / UNFINISHED_FOLDER).glob("*.part"))
    return [
        UnfinishedDownload(file_name=part.name.rsplit(".", 2)[0].replace("--", "/"), size_bytes=part.stat().st_size)
        for part in parts
    ]


def remove(name: str, folder: Path) -> tuple[Path, ...]:
    """Delete a model of the folder and what is left of its download; returns the deleted files.

    name: as `list_local` tells it, what `-m` takes for it, or a file's name.  Nothing outside the folder is touched.
    Raises DownloadError when there is no such model.
    """
    reference = None if name.lower() in CATALOG else parse_reference(name)
    names = {name.lower(), str(local_reference(reference, folder) if reference else "").lower()}
    chosen = [model for model in list_local(folder) if names & _names_of(model, folder)]
    paths = [path for model in chosen for path in model.paths] + _leftovers(name, reference, folder)
    if not paths:
        raise DownloadError(f"{name} is not in the models folder {folder}: `tandem models list` shows what is.")
    for path in paths:
        path.unlink(missing_ok=True)
        _remove_empty_parents(path.parent, folder)
    return tuple(paths)


def _names_by_home(folder: Path) -> dict[Path, list[str]]:
    """The .gguf files below the folder, grouped by the folder that a name is relative to."""
    groups: dict[Path, list[str]] = {}
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.suffix.lower() == ".gguf" and inside.parts[0] != UNFINISHED_FOLDER and path.is_file():
            home = folder.joinpath(*inside.parts[:2]) if len(inside.parts) > 2 else path.parent
            groups.setdefault(home, []).append(path.relative_to(home).as_posix())
    return groups


def _next_model(names: list[str], where: str) -> tuple[str, ...]:
    """The model that the first name belongs to; a piece whose siblings are missing stands alone."""
    try:
        return pick_files(names, names[0], where=where)
    except DownloadError:
        return (names[0],)


def _name_of(inside: Path) -> str:
    """What `-m` takes for a file at this place of the models folder."""
    if len(inside.parts) <= 2:
        return inside.as_posix()
    repository = "/".join(inside.parts[:2])
    return f"{repository}:{quantisation_of(inside.name) or inside.name}"


def _names_of(model: LocalModel, folder: Path) -> set[str]:
    """What a person may call a model of the folder, in small letters."""
    inside = [path.relative_to(folder).as_posix() for path in model.paths]
    return {text.lower() for text in (model.name, *inside, *map(str, model.paths))}


def _leftovers(name: str, reference: HubReference | None, folder: Path) -> list[Path]:
    """What is left of the unfinished downloads of a catalog name, a reference, or a file's name."""
    entry = CATALOG.get(name.lower())
    wanted = entry.local_name if entry else name
    found: list[Path] = []
    for path in sorted((folder / UNFINISHED_FOLDER).glob("*")):
        local_name = re.sub(r"\.[0-9a-f]{12}\.(part|pieces\.json)$", "", path.name).replace("--", "/")
        if local_name == path.name:
            continue  # a lock
        owner, _, file_name = local_name.rpartition("/")
        quantisation = quantisation_of(file_name)
        is_of_reference = reference is not None and owner.startswith(reference.repository)
        is_chosen = reference is not None and (reference.choice or "").upper() in ("", quantisation, file_name.upper())
        if local_name == wanted or (is_of_reference and is_chosen):
            found.append(path)
    return found


def _remove_empty_parents(parent: Path, folder: Path) -> None:
    while parent != folder and folder in parent.parents:
        try:
            parent.rmdir()
        except OSError:
            return  # others are still in there
        parent = parent.parent
