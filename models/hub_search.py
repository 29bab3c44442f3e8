"""Looking for models on the Hugging Face hub: repositories by words, and the GGUF models of one repository.

Owns the question and what is read of the answer.  Does not know downloads.  Everything the hub says is a stranger's
text: whoever shows it makes it safe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from models.errors import DownloadError
from models.hub import HubAccess, list_repository, refusal_of_status, unreachable
from models.hub_names import gguf_models, quantisation_of

_HUB = "https://huggingface.co"
_TIMEOUT_S = 6.0
_LICENCE_TAG = "license:"
_EXPANDED = ("downloads", "gated", "gguf", "tags")


@dataclass(frozen=True, kw_only=True)
class HubRepository:
    """A repository that was found.  licence and architecture are empty and num_parameters 0 where it tells none."""

    name: str
    licence: str
    architecture: str
    num_parameters: int
    num_downloads: int
    is_gated: bool


@dataclass(frozen=True, kw_only=True)
class HubModel:
    """A GGUF model of a repository.  reference: what `-m` takes for it.  file_names: its parts, in the repository."""

    reference: str
    quantisation: str
    size_bytes: int
    file_names: tuple[str, ...]


def search_repositories(text: str, access: HubAccess, *, limit: int = 20) -> tuple[HubRepository, ...]:
    """Repositories with GGUF files that the hub finds for these words, the most downloaded first.

    Raises DownloadError when there is no network, or no answer within seconds.
    """
    from huggingface_hub import get_session
    from huggingface_hub.utils import build_hf_headers

    if access.is_offline:
        raise DownloadError("Downloads are off (--offline or HF_HUB_OFFLINE), so the hub is not asked.")
    parameters = {"search": text, "filter": "gguf", "sort": "downloads", "limit": limit, "expand[]": _EXPANDED}
    try:
        response = get_session().get(
            f"{access.endpoint or _HUB}/api/models", params=parameters, headers=build_hf_headers(), timeout=_TIMEOUT_S
        )
        status, found = response.status_code, response.json() if response.status_code == 200 else None
    except Exception as error:  # the transport's own errors, see models.hub
        raise unreachable(f"a search for {text!r}", error) from error
    if not isinstance(found, list):
        raise refusal_of_status(status, f"a search for {text!r}")
    return tuple(_repository(item) for item in found if isinstance(item, dict) and isinstance(item.get("id"), str))


def models_of_repository(repository: str, access: HubAccess) -> tuple[HubModel, ...]:
    """The GGUF models of a repository, the smallest first.  Raises DownloadError."""
    sizes = {file.name: file.size_bytes for file in list_repository(repository, access).files}
    found = [
        HubModel(
            reference=f"{repository}:{files[0] if _is_ambiguous(files, groups) else quantisation_of(files[0])}",
            quantisation=quantisation_of(files[0]) or "",
            size_bytes=sum(sizes[name] for name in files),
            file_names=files,
        )
        for groups in [gguf_models(sizes, repository)]
        for files in groups
    ]
    return tuple(sorted(found, key=lambda model: (model.size_bytes, model.reference)))


def _is_ambiguous(files: tuple[str, ...], groups: Iterable[tuple[str, ...]]) -> bool:
    """Whether the quantisation alone would not name this model."""
    quantisation = quantisation_of(files[0])
    same = [group for group in groups if quantisation_of(group[0]) == quantisation]
    return quantisation is None or len(same) > 1


def _repository(item: Mapping[str, object]) -> HubRepository:
    tags, gguf, downloads = item.get("tags"), item.get("gguf"), item.get("downloads")
    licences = [tag.removeprefix(_LICENCE_TAG) for tag in _texts(tags) if tag.startswith(_LICENCE_TAG)]
    facts = gguf if isinstance(gguf, dict) else {}
    architecture, total = facts.get("architecture"), facts.get("total")
    return HubRepository(
        name=str(item["id"]),
        licence=licences[0] if licences else "",
        architecture=architecture if isinstance(architecture, str) else "",
        num_parameters=total if isinstance(total, int) else 0,
        num_downloads=downloads if isinstance(downloads, int) else 0,
        is_gated=bool(item.get("gated")),
    )


def _texts(value: object) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
