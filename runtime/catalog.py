"""The façade through which app/ reaches models on disk and in the catalog: names of models/ under one roof.

Owns nothing: it passes names on.  Does not know engines; importing it loads neither NumPy nor a network client.
"""

from __future__ import annotations

from models.catalog import CATALOG, DEFAULT_MODEL, CatalogEntry, HubSource, WheelSource
from models.downloads import fetch, fetch_reference, resolve_model, why_not_runnable
from models.errors import ArchitectureError, DownloadError, ModelError, escaped, quoted
from models.hub_names import HubReference, parse_reference, quantisation_of
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
    "HubReference",
    "HubSource",
    "LocalModel",
    "ModelError",
    "Progress",
    "UnfinishedDownload",
    "WheelSource",
    "escaped",
    "fetch",
    "fetch_reference",
    "list_local",
    "list_unfinished",
    "local_path",
    "models_folder",
    "paired_draft",
    "parse_reference",
    "quantisation_of",
    "quoted",
    "remove",
    "resolve_model",
    "size_text",
    "why_not_runnable",
]
