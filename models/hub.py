"""Files of the Hugging Face hub: what a repository holds, and the bytes of one file, resumed where they broke off.

Owns the conversation with the hub.  Does not know which file is wanted (hub_names.py) nor where it will lie
(downloads.py).  HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE mean what they mean to huggingface_hub.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.errors import DownloadError, OfflineError
from models.transfers import CancelSignal, Progress, UnfinishedFile, check_cancelled, size_text

if TYPE_CHECKING:
    from httpx2 import Response
    from huggingface_hub.errors import HfHubHTTPError

_METADATA_TIMEOUT_S = 15.0
_READ_TIMEOUT_S = 10.0  # of a server that says nothing; what it sent is kept, and asking it again costs little
_MAX_FAILURES = 4  # in a row, without a byte in between
_CANCEL_POLL_S = 0.05
_TRY_AGAIN = (408, 429, 500, 502, 503, 504)
_RANGE_REFUSED = 416


@dataclass(frozen=True, kw_only=True)
class HubAccess:
    """Where the hub is and how patient we are.  The token is huggingface_hub's own affair."""

    endpoint: str | None = None  # None: huggingface_hub's own
    is_offline: bool = False
    retry_wait_s: float = 1.0  # doubles with every failure in a row


@dataclass(frozen=True, kw_only=True)
class HubFile:
    """A file of a repository.  sha256 is None where the hub publishes none."""

    name: str
    size_bytes: int
    sha256: str | None


@dataclass(frozen=True, kw_only=True)
class HubListing:
    """What a repository holds at one commit."""

    repository: str
    commit: str
    files: tuple[HubFile, ...]

    def file(self, name: str) -> HubFile:
        for file in self.files:
            if file.name == name:
                return file
        raise DownloadError(f"{self.repository} on the hub has no file {name!r}.")


class _BrokenOffError(Exception):
    """The connection failed in the middle; the transfer may go on from what has arrived."""


def access_from_environment(*, offline: bool = False) -> HubAccess:
    """HF_ENDPOINT and HF_HUB_OFFLINE as they are now (huggingface_hub looks once, when it is imported)."""
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or None
    offline_text = os.environ.get("HF_HUB_OFFLINE", "").upper()
    return HubAccess(endpoint=endpoint, is_offline=offline or offline_text in ("1", "ON", "YES", "TRUE"))


def list_repository(repository: str, access: HubAccess) -> HubListing:
    """The files of a repository at the head of its main branch, with sizes and SHA-256 of what is in LFS."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    _require_online(repository, access)
    try:
        info = HfApi(endpoint=access.endpoint).model_info(repository, files_metadata=True, timeout=_METADATA_TIMEOUT_S)
    except HFValidationError as error:
        raise DownloadError(f"{repository!r} is no name of a repository on the hub: owner/repo is expected.") from error
    except HfHubHTTPError as error:
        raise _refusal(error, repository) from error
    except Exception as error:  # the transport's own errors: httpx's or another's, as huggingface_hub has it
        raise unreachable(repository, error) from error
    files = [
        HubFile(name=item.rfilename, size_bytes=item.size or 0, sha256=item.lfs.sha256 if item.lfs else None)
        for item in info.siblings or []
    ]
    return HubListing(repository=repository, commit=info.sha or "main", files=tuple(files))


def download_hub_file(
    listing: HubListing,
    file: HubFile,
    unfinished: UnfinishedFile,
    access: HubAccess,
    *,
    progress: Progress | None,
    cancel: CancelSignal | None,
) -> None:
    """Append what is still missing of `file` to `unfinished`.

    Goes on by itself after a connection that breaks; gives up when it breaks again and again without a byte.
    Raises DownloadError, DownloadCancelledError; what has arrived stays for the next try.
    """
    _require_online(f"{listing.repository}/{file.name}", access)
    failures = 0
    if progress is not None:
        progress(min(unfinished.size_bytes, file.size_bytes), file.size_bytes)
    while unfinished.size_bytes != file.size_bytes:
        check_cancelled(cancel, file.name)
        if unfinished.size_bytes > file.size_bytes:
            unfinished.truncate(0)
        before = unfinished.size_bytes
        try:
            _transfer(listing, file, unfinished, access, progress=progress, cancel=cancel)
        except _BrokenOffError as error:
            failures = failures + 1 if unfinished.size_bytes <= before else 1
            if failures >= _MAX_FAILURES:
                raise DownloadError(
                    f"The download of {file.name} from {listing.repository} broke off at "
                    f"{size_text(unfinished.size_bytes)} of {size_text(file.size_bytes)} ({error}): check the network "
                    "and try again: it goes on from there."
                ) from error
            _wait(access.retry_wait_s * 2 ** (failures - 1), cancel, file.name)


def _transfer(
    listing: HubListing,
    file: HubFile,
    unfinished: UnfinishedFile,
    access: HubAccess,
    *,
    progress: Progress | None,
    cancel: CancelSignal | None,
) -> None:
    """One request's worth of bytes; raises _BrokenOffError when they end too early."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import build_hf_headers

    url = hf_hub_url(listing.repository, file.name, revision=listing.commit, endpoint=access.endpoint)
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    offset = unfinished.size_bytes
    if offset:
        headers["Range"] = f"bytes={offset}-"
    with ExitStack() as stack:
        response = _open(stack, url, headers)
        _check_status(response, f"{listing.repository}/{file.name}")
        if offset and not _continues_at(response, offset):
            unfinished.truncate(0)  # the server begins anew
        if offset and response.status_code == _RANGE_REFUSED:
            raise _BrokenOffError(f"the hub refused to go on from byte {offset}")
        for chunk in _chunks(response):
            check_cancelled(cancel, file.name)
            unfinished.append(chunk)
            if unfinished.size_bytes > file.size_bytes:
                unfinished.truncate(0)
                raise DownloadError(
                    f"The hub sent more than the {file.size_bytes} bytes that {file.name} of {listing.repository} has: "
                    "what arrived was deleted; try again."
                )
            if progress is not None:
                progress(unfinished.size_bytes, file.size_bytes)
    if unfinished.size_bytes < file.size_bytes:
        raise _BrokenOffError("the server closed the connection early")


def _open(stack: ExitStack, url: str, headers: dict[str, str]) -> Response:
    from huggingface_hub import get_session

    try:
        return stack.enter_context(get_session().stream("GET", url, headers=headers, timeout=_READ_TIMEOUT_S))
    except Exception as error:  # the transport's own errors, see list_repository
        raise _BrokenOffError(_reason(error)) from error


def _chunks(response: Response) -> Iterator[bytes]:
    try:
        yield from response.iter_bytes()
    except Exception as error:  # only the transport works in here
        raise _BrokenOffError(_reason(error)) from error


def _check_status(response: Response, what: str) -> None:
    """Let what can be read pass; a server in trouble may be asked again, a refusal is final."""
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils import hf_raise_for_status

    status = response.status_code
    if status == _RANGE_REFUSED:
        return
    if status in _TRY_AGAIN:
        raise _BrokenOffError(f"the hub answered {status}")
    try:
        hf_raise_for_status(response)
    except HfHubHTTPError as error:
        raise _refusal(error, what) from error


def _continues_at(response: Response, offset: int) -> bool:
    return response.status_code == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {offset}-")


def _refusal(error: HfHubHTTPError, what: str) -> DownloadError:
    """One sentence for what the hub said no to."""
    from huggingface_hub.errors import GatedRepoError, RemoteEntryNotFoundError, RepositoryNotFoundError

    if isinstance(error, GatedRepoError):
        return DownloadError(
            f"{what} is gated: accept its licence on its page on the hub, and set HF_TOKEN to a token of that account."
        )
    status = error.response.status_code
    if isinstance(error, RemoteEntryNotFoundError):
        return DownloadError(f"{what} is no longer on the hub: look at the repository's list of files.")
    if isinstance(error, RepositoryNotFoundError) or status in (401, 403, 404):
        return DownloadError(
            f"{what} is not on the hub, or it is private ({status}): check the name, or set HF_TOKEN to a token that "
            "may read it."
        )
    return refusal_of_status(status, what)


def refusal_of_status(status: int, what: str) -> DownloadError:
    """One sentence for a status that says nothing more."""
    return DownloadError(f"The hub answered {status} for {what}: try again later.")


def unreachable(what: str, error: Exception) -> DownloadError:
    """One sentence for a hub that did not answer."""
    return DownloadError(
        f"The hub can't be reached for {what} ({_reason(error)}): check the network, or set HF_ENDPOINT to a mirror."
    )


def _require_online(what: str, access: HubAccess) -> None:
    if access.is_offline:
        raise OfflineError(
            f"{what} is not on this machine, and downloads are off (--offline or HF_HUB_OFFLINE): run "
            f"`tandem models pull {what}` where there is a network."
        )


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")


def _wait(duration_s: float, cancel: CancelSignal | None, what: str) -> None:
    deadline = time.monotonic() + duration_s
    while (left_s := deadline - time.monotonic()) > 0:
        check_cancelled(cancel, what)
        time.sleep(min(left_s, _CANCEL_POLL_S))
