"""The façade through which app/ reaches models on disk and in the catalog: names of models/ under one roof.

Owns nothing: it passes names on.  Does not know engines; importing it loads neither NumPy nor a network client.
"""

from __future__ import annotations

from models.catalog import CATALOG, DEFAULT_MODEL, CatalogEntry, HubSource, WheelSource
from models.downloads import fetch, fetch_reference, resolve_model, why_not_runnable
from models.errors import ArchitectureError, DownloadError, ModelError, OfflineError, TemplateError, escaped, quoted
from models.hub import access_from_environment
from models.hub_names import HubReference, parse_reference, quantisation_of
from models.hub_search import HubModel, HubRepository
from models.hub_search import models_of_repository as _models_of_repository
from models.hub_search import search_repositories as _search_repositories
from models.local_models import (
    LocalModel,
    UnfinishedDownload,
    list_local,
    list_unfinished,
    local_path,
    models_folder,
    paired_draft,
    remove,
)
from models.transfers import CancelSignal, DownloadCancelledError, Progress, size_text

__all__ = [
    "CATALOG",
    "DEFAULT_MODEL",
    "ArchitectureError",
    "CancelSignal",
    "CatalogEntry",
    "DownloadCancelledError",
    "DownloadError",
    "HubModel",
    "HubReference",
    "HubRepository",
    "HubSource",
    "LocalModel",
    "ModelError",
    "OfflineError",
    "Progress",
    "UnfinishedDownload",
    "TemplateError",
    "WheelSource",
    "access_from_environment",
    "escaped",
    "fetch",
    "fetch_reference",
    "list_local",
    "list_unfinished",
    "local_path",
    "models_folder",
    "models_of_repository",
    "paired_draft",
    "parse_reference",
    "quantisation_of",
    "quoted",
    "remove",
    "resolve_model",
    "search_hub",
    "size_text",
    "why_not_runnable",
]


def search_hub(text: str, *, offline: bool = False) -> tuple[HubRepository, ...]:
    """Repositories with GGUF files that the hub finds for these words.  Raises DownloadError, within seconds."""
    return _search_repositories(text, access_from_environment(offline=offline))


def models_of_repository(repository: str, *, offline: bool = False) -> tuple[HubModel, ...]:
    """The GGUF models of a repository of the hub, the smallest first.  Raises DownloadError."""
    return _models_of_repository(repository, access_from_environment(offline=offline))
