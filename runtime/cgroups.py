"""What a container allows: processor time and memory, from control groups of version 1 and 2.

Owns the reading of /proc/self/cgroup and the files it points to.  Everything is a function of a root folder, so that
tests can fake a machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_MOUNT = Path("sys/fs/cgroup")
# Version 1 writes a limit that is no limit as the largest multiple of the page size.
_NO_LIMIT_BYTES = 2**60


def cpu_quota(root: Path) -> float | None:
    """How many processors' time this process may use; None without a limit."""
    quotas: list[float] = []
    for folder in _folders(root, "cpu"):
        quota, period = _words(folder / "cpu.max", 2) or (
            read_text(folder / "cpu.cfs_quota_us"),
            read_text(folder / "cpu.cfs_period_us"),
        )
        if quota and period and quota.isdigit() and period.isdigit() and int(quota) > 0 and int(period) > 0:
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory_headroom(root: Path) -> int | None:
    """Bytes this process may still take before its group's limit; None without a limit."""
    headrooms: list[int] = []
    for folder in _folders(root, "memory"):
        limit = _number(folder / "memory.max", folder / "memory.limit_in_bytes")
        used = _number(folder / "memory.current", folder / "memory.usage_in_bytes")
        if limit is None or used is None or limit >= _NO_LIMIT_BYTES:
            continue
        headrooms.append(max(0, limit - used + _reclaimable(folder / "memory.stat")))
    return min(headrooms, default=None)


def read_text(path: Path) -> str | None:
    """The stripped text of a small file; None when it can't be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """The group of this process and all above it.

    In a container the path may be the host's; then the mount itself is the group.
    """
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            mounts = [root / _MOUNT]
        elif controller in controllers.split(","):
            mounts = [root / _MOUNT / controllers, root / _MOUNT / controller]
        else:
            continue
        inside = PurePosixPath(path.lstrip("/"))
        for mount in mounts:
            for group in (inside, *inside.parents):
                if ".." not in group.parts and (mount / group).is_dir():
                    yield mount / group


def _reclaimable(stat: Path) -> int:
    """Bytes of cached files that are given up when memory is short; the sum over a group and those in it."""
    fields = dict(line.split(maxsplit=1) for line in (read_text(stat) or "").splitlines() if " " in line)
    found = fields.get("total_inactive_file", fields.get("inactive_file", "0"))
    return int(found) if found.isdigit() else 0


def _number(*paths: Path) -> int | None:
    """The number in the first of the files that can be read."""
    for path in paths:
        text = read_text(path)
        if text is not None:
            return int(text) if text.isdigit() else None
    return None


def _words(path: Path, count: int) -> list[str] | None:
    words = (read_text(path) or "").split()
    return words if len(words) == count else None
