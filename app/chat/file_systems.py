"""Where a path lies: on this machine, or on a file system that is shared over a network.

Owns the reading of the mount table. Knows nothing of what is stored: SQLite's log needs memory that all users of a
file share, which a network file system can't give.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# Of a virtual machine's shared folders, too, the host does not share the guest's memory.
_NETWORK_KINDS = (
    *("nfs", "cifs", "smb", "afs", "afp", "9p", "ceph", "gluster", "lustre", "beegfs", "gpfs", "orangefs", "mfs"),
    *("sshfs", "webdav", "davfs", "rclone", "s3fs", "gcsfuse", "vboxsf", "vmhgfs", "virtiofs", "prl_fs", "drvfs"),
)
_MOUNT_TABLE = Path("/proc/self/mounts")
_OCTAL_BLANK = "\\040"


def is_network_path(path: Path, mounts: str | None = None) -> bool:
    """Whether the path's folder lies on a network file system; False where the mount table can't be read."""
    folder = path.parent.resolve()
    best_length, kind = -1, ""
    for mount_point, mount_kind in _mounts(_mount_text() if mounts is None else mounts):
        if (folder == mount_point or mount_point in folder.parents) and len(mount_point.parts) >= best_length:
            best_length, kind = len(mount_point.parts), mount_kind
    return kind.removeprefix("fuse.").startswith(_NETWORK_KINDS)


def _mount_text() -> str:
    try:
        return _MOUNT_TABLE.read_text(encoding="utf-8", errors="replace")
    except OSError:
        pass
    if sys.platform != "darwin":
        return ""
    try:
        listed = subprocess.run(
            ["/sbin/mount"], capture_output=True, text=True, errors="replace", timeout=2, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return listed.stdout


def _mounts(text: str) -> list[tuple[Path, str]]:
    """Mount points and kinds, from Linux's table (`device point kind`) or macOS's (`device on point (kind, ...)`)."""
    found: list[tuple[Path, str]] = []
    for line in text.splitlines():
        if " on /" in line and line.endswith(")"):
            point, _, options = line.partition(" on ")[2].rpartition(" (")
            found.append((Path(point), options.split(",")[0].rstrip(")")))
        elif len(parts := line.split(" ")) >= 3:
            found.append((Path(parts[1].replace(_OCTAL_BLANK, " ")), parts[2]))
    return found
