"""The system's clipboard, beside the terminal's own way (OSC 52), which not every terminal follows.

Owns which program puts a text there. Does not know what is copied.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping

_TIMEOUT_S = 3.0
_WAYLAND = ("wl-copy",)
_X11 = (("xclip", "-selection", "clipboard"), ("xsel", "--clipboard", "--input"))
_MAC = ("pbcopy",)
_WINDOWS = ("clip.exe",)


def clipboard_command(
    environment: Mapping[str, str], platform: str = sys.platform, find: Callable[[str], str | None] = shutil.which
) -> tuple[str, ...] | None:
    """The program that takes a text on its standard input and puts it into the clipboard; None where there is none."""
    candidates: list[tuple[str, ...]] = []
    if platform == "darwin":
        candidates.append(_MAC)
    if environment.get("WAYLAND_DISPLAY"):
        candidates.append(_WAYLAND)
    if environment.get("DISPLAY"):
        candidates.extend(_X11)
    if environment.get("WSL_DISTRO_NAME"):
        candidates.append(_WINDOWS)
    return next((command for command in candidates if find(command[0]) is not None), None)


def put_into_clipboard(command: tuple[str, ...], text: str) -> bool:
    """Runs the program; False where it failed or took too long. Waits for it: call this beside the screen."""
    try:
        # Its output goes nowhere: such programs stay in the background and would hold a pipe open.
        ended = subprocess.run(
            command,
            input=text.encode("utf-8", "replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0
