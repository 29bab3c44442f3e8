"""`tandem models list | pull | info | remove`: models on this disk and in the catalog.

Owns how they are shown.  Does not know how a model is fetched or stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from app.errors import EXIT_SUCCESS, AppError
from app.output import Console
from runtime.catalog import (
    CATALOG,
    CatalogEntry,
    OfflineError,
    WheelSource,
    fetch,
    fetch_reference,
    list_local,
    list_unfinished,
    local_path,
    parse_reference,
    remove,
    resolve_model,
    size_text,
    why_not_runnable,
)

Row = tuple[str, str, str]


def list_models(folder: Path, console: Console, *, as_json: bool = False) -> int:
    """Show what is in the folder, what is left unfinished there, and what the catalog has beside."""
    local = list_local(folder)
    present = {model.name for model in local}
    if as_json:
        console.json(
            {
                "folder": str(folder),
                "models": [
                    {"name": model.name, "size_bytes": model.size_bytes, **_entry_value(model.entry)} for model in local
                ],
                "unfinished": [
                    {"file": left.file_name, "size_bytes": left.size_bytes} for left in list_unfinished(folder)
                ],
                "catalog": [
                    {"name": entry.name, "size_bytes": entry.size_bytes, **_entry_value(entry)}
                    for name, entry in CATALOG.items()
                    if name not in present
                ],
            }
        )
        return EXIT_SUCCESS
    lines = [f"On this disk ({folder})"]
    lines += _table([(model.name, size_text(model.size_bytes), _title(model.entry)) for model in local])
    unfinished = list_unfinished(folder)
    if unfinished:
        lines += ["", "Unfinished downloads (pull the model again to go on)"]
        lines += _table([(left.file_name, size_text(left.size_bytes), "") for left in unfinished])
    missing = [entry for name, entry in CATALOG.items() if name not in present]
    if missing:
        lines += ["", "In the catalog (tandem models pull NAME)"]
        lines += _table([(entry.name, size_text(entry.size_bytes), _title(entry)) for entry in missing])
    console.text("\n".join(lines) + "\n")
    return EXIT_SUCCESS


def pull_model(name: str, folder: Path, console: Console) -> int:
    """Fetch a model, or check one that is there; its path goes to stdout."""
    entry = CATALOG.get(name.lower())
    reference = parse_reference(name)
    if entry is None and reference is None:
        resolve_model(name, folder=folder, offline=True)  # says what is wrong with the name, or finds a file
        raise AppError(f"{name} is a file on this disk already: `tandem generate -m {name}` uses it.")
    with console.progress(f"Downloading {name}", "bytes") as progress:
        if entry is not None:
            was_present = local_path(entry, folder) is not None
            path = fetch(entry, folder, progress, verify=True)
        else:
            assert reference is not None
            was_present = False
            path = fetch_reference(reference, folder, progress)
    if was_present and entry is not None:
        checked = ", its SHA-256 is right" if entry.sha256 else ""
        console.note(f"{entry.name} is here{checked}.")
    if entry is not None and (reason := why_not_runnable(entry)) is not None:
        console.note(f"note: {reason}.")
    console.text(f"{path}\n")
    return EXIT_SUCCESS


def show_model(name: str, folder: Path, console: Console, *, chat_template_file: Path | None = None) -> int:
    """Show what the catalog and the file say; fetches nothing.  chat_template_file: in place of the model's own."""
    entry = CATALOG.get(name.lower())
    if entry is not None and local_path(entry, folder) is None:
        rows = [
            *_entry_rows(entry),
            ("on this disk", f"no (tandem models pull {entry.name})"),
            *([("can't be run", reason)] if (reason := why_not_runnable(entry)) else []),
        ]
    else:
        path = _here(name, folder)
        rows = [*(_entry_rows(entry) if entry else []), *_file_rows(path, chat_template_file)]
    width = max(len(label) for label, _ in rows)
    console.text("".join(f"{label:<{width}}  {value}\n" for label, value in rows))
    return EXIT_SUCCESS


def _here(name: str, folder: Path) -> Path:
    try:
        return resolve_model(name, folder=folder, offline=True)
    except OfflineError as error:
        raise AppError(f"{name} is not in the models folder: `tandem models pull {name}` fetches it.") from error


def remove_model(name: str, folder: Path, console: Console) -> int:
    """Delete a model of the folder; the deleted paths go to stdout."""
    for path in remove(name, folder):
        console.text(f"{path}\n")
    return EXIT_SUCCESS


def _entry_rows(entry: CatalogEntry) -> list[tuple[str, str]]:
    sources = [
        f"{len(source.requirements)} wheel(s)" if isinstance(source, WheelSource) else source.repository
        for source in entry.sources
    ]
    return [
        ("name", entry.name),
        ("title", entry.title),
        ("licence", entry.licence),
        ("download", f"{size_text(entry.size_bytes)} from {', then '.join(sources)}"),
        ("SHA-256", entry.sha256 or "as the hub publishes it"),
    ]


def _file_rows(path: Path, chat_template_file: Path | None) -> list[tuple[str, str]]:
    from runtime.files import read_facts

    facts = read_facts(path, chat_template_file=chat_template_file)
    formats = ", ".join(f"{use.name} {size_text(use.size_bytes)}" for use in facts.formats)
    rows = [
        ("file", str(path)),
        ("parts", str(len(facts.paths)) if len(facts.paths) > 1 else ""),
        ("size", size_text(facts.size_bytes)),
        ("calls itself", facts.name or ""),
        ("file's licence", facts.licence or ""),
        ("architecture", facts.architecture),
        ("parameters", f"{facts.num_parameters / 1e6:.1f} million"),
        ("layers", str(facts.num_layers or "")),
        ("trained context", f"{facts.context_length} tokens" if facts.context_length else ""),
        ("vocabulary", f"{facts.vocabulary_size} tokens ({facts.vocabulary})"),
        (
            "chat template",
            _template_words(tuple(facts.chat_templates)) if chat_template_file is None else str(chat_template_file),
        ),
        ("its variables", ", ".join(facts.template_variables)),
        ("formats", formats),
        *(("note", note) for note in facts.notes),
        ("can't be run", facts.refusal or ""),
    ]
    return [(label, value) for label, value in rows if value]


def _template_words(names: tuple[str, ...]) -> str:
    """Names only where there is something to choose."""
    if len(names) > 1:
        return f"{', '.join(names)} (--chat-template NAME chooses)"
    return "yes" if names else "no"


def _table(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return ["  nothing"]
    name_width, size_width = (max(len(row[column]) for row in rows) for column in (0, 1))
    return [f"  {name:<{name_width}}  {size:>{size_width}}  {title}".rstrip() for name, size, title in rows]


def _entry_value(entry: CatalogEntry | None) -> dict[str, str | bool]:
    if entry is None:
        return {}
    return {"title": entry.title, "licence": entry.licence, "can_run": why_not_runnable(entry) is None}


def _title(entry: CatalogEntry | None) -> str:
    if entry is None:
        return ""
    mark = ", not run by this version" if why_not_runnable(entry) else ""
    return f"{entry.title} ({entry.licence}){mark}"
