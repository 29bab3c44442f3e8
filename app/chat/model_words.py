"""Models, repositories and bills as lines of text.

Owns the wording. What comes from a file or the hub is a stranger's text: it is made safe here.
"""

from __future__ import annotations

from app.chat.downloads import Download, DownloadState
from app.chat.model_port import Bill, MachineFacts, ModelLine, RepositoryLine
from app.chat.plain_text import one_line
from runtime.catalog import size_text

_SEPARATOR = " · "
_SILENT_S = 3.0


def fit_words(bill: Bill | None) -> str:
    """Whether it fits, in few words; None: nobody knows yet."""
    if bill is None:
        return "…"
    if bill.context_size is not None:
        layers = f", {bill.gpu_layers} layers on the GPU" if bill.gpu_layers else ""
        return f"fits, {bill.context_size:,} context{layers}"
    needed = f"{'' if bill.sentence else 'about '}{size_text(bill.needed_bytes)}"
    if bill.sentence and bill.fits is not False:
        return one_line(bill.sentence)
    if bill.fits is None or bill.available_bytes is None:
        return f"needs {needed}"
    if bill.fits:
        return f"fits: {needed} of {size_text(bill.available_bytes)} free"
    return f"too large: needs {needed}, {size_text(bill.available_bytes)} free"


def model_head(line: ModelLine, *, is_loaded: bool) -> str:
    """The model's name and title."""
    title = f": {one_line(line.title)}" if line.title else ""
    return f"{one_line(line.name)}{title}{' (loaded now)' if is_loaded else ''}"


def model_facts(line: ModelLine, bill: Bill | None, download: Download | None) -> str:
    """Size, format, licence and fit; or how its download is going."""
    if download is not None and download.state is not DownloadState.DONE:
        return _download_words(download)
    if line.refusal:
        return f"not run by this version: {one_line(line.refusal)}"
    pieces = [size_text(line.size_bytes), one_line(line.quantisation), one_line(line.licence), fit_words(bill)]
    if line.unfinished_bytes:
        pieces.append(f"{size_text(line.unfinished_bytes)} of it are here")
    return _SEPARATOR.join(filter(None, pieces))


def _download_words(download: Download) -> str:
    amounts = size_text(download.done_bytes)
    share = ""
    if download.total_bytes:
        amounts += f" of {size_text(download.total_bytes)}"
        share = f" {100 * download.done_bytes // download.total_bytes} %"
    if download.state is DownloadState.RUNNING:
        if download.silent_s >= _SILENT_S:
            pace = f", nothing has come for {download.silent_s:.0f} s"
        else:
            pace = _pace_words(download)
        begun = f"downloading{share}: {amounts}" if download.total_bytes else "download begins"
        return f"{begun}{pace} (Enter stops it)"
    if download.state is DownloadState.STOPPED:
        return f"stopped{share}: {amounts} (Enter goes on)"
    return f"{one_line(download.sentence)} (Enter tries again)"


def _pace_words(download: Download) -> str:
    """How fast it comes, and how long that takes."""
    speed = download.bytes_per_s
    if speed <= 0:
        return ""
    left_s = (download.total_bytes - download.done_bytes) / speed
    minutes, seconds = divmod(round(left_s), 60)
    left = f"{seconds} s" if not minutes else f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"
    return f", {size_text(round(speed))}/s, {left} left"


def repository_facts(repository: RepositoryLine) -> str:
    """What the hub tells of a repository."""
    size = repository.num_parameters
    pieces = [
        one_line(repository.architecture),
        f"{size / 1e9:.1f}B" if size >= 10**9 else f"{size / 1e6:.0f}M" if size else "",
        one_line(repository.licence) or "licence not told",
        f"{repository.num_downloads:,} downloads",
        "gated" if repository.is_gated else "",
    ]
    return _SEPARATOR.join(filter(None, pieces))


def machine_words(machine: MachineFacts) -> list[str]:
    """Processor, memory and cards, a line each."""
    cores = f"{machine.num_cores} core{'s' if machine.num_cores != 1 else ''}"
    lines = [f"Processor  {one_line(machine.cpu_name)}, {cores}, {machine.isa}"]
    if machine.memory_total_bytes is not None:
        free = machine.memory_available_bytes
        lines.append(
            f"Memory     {size_text(machine.memory_total_bytes)}" + (f", {size_text(free)} free" if free else "")
        )
    lines.append(f"Graphics   {', '.join(map(one_line, machine.devices)) or 'no card that Tandem can use'}")
    return lines
