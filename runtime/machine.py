"""Facts about this machine: processor, cores that may be used, memory, load; and the default number of threads.

Owns the reading of /proc, /sys and sysctl.  Does not know what the facts are used for.  Everything is a function of a
Probe, so that tests can fake a machine.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runtime.cgroups import cpu_quota, memory_headroom, read_text

_CPUS = Path("sys/devices/system/cpu")
# Cores slower than these shares of the fastest are efficiency cores.  Turbo makes good cores differ by less.
_FAST_CAPACITY = 0.5
_FAST_FREQUENCY = 0.75

_AVX2 = frozenset({"avx2", "fma", "f16c"})
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"}

_SYSCTL_NAMES = (
    "machdep.cpu.brand_string",
    "hw.logicalcpu",
    "hw.physicalcpu",
    "hw.perflevel0.physicalcpu",
    "hw.memsize",
    "kern.memorystatus_level",
    "hw.optional.avx2_0",
)


def _affinity() -> frozenset[int] | None:
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def _sysctl() -> dict[str, str]:
    """macOS's names and values."""
    import subprocess

    try:
        found = subprocess.run(["sysctl", *_SYSCTL_NAMES], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in found.stdout.splitlines())}


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Where facts are read.  affinity: the processors this process may run on, None where the system can't say."""

    root: Path = Path("/")
    system: str = field(default_factory=platform.system)
    architecture: str = field(default_factory=platform.machine)
    affinity: Callable[[], frozenset[int] | None] = _affinity
    sysctl: Callable[[], Mapping[str, str]] = _sysctl


@dataclass(frozen=True, kw_only=True)
class Machine:
    """isa: the widest instruction set Tandem has kernels for (avx512, avxvnni, avx2, neon, portable).

    allowed_cpus: logical processors this process may run on; num_cores: the physical cores they belong to, and
    num_fast_cores those that are not efficiency cores.  cpu_quota: processors' worth of time a container allows.
    huge_pages: the kernel's setting.  load: processes that ran or waited in the last minute.  None: not known.
    """

    system: str
    architecture: str
    cpu_name: str
    isa: str
    allowed_cpus: int
    num_cores: int
    num_fast_cores: int
    cpu_quota: float | None
    memory_total_bytes: int | None
    memory_available_bytes: int | None
    load: float | None
    huge_pages: str | None


def read_machine(probe: Probe | None = None) -> Machine:
    """The facts as they are now."""
    probe = probe or Probe()
    return _read_mac(probe) if probe.system == "Darwin" else _read_linux(probe)


def default_threads(machine: Machine) -> int:
    """One for each fast core: a second thread on a core, or one on a slow core, holds the others up.

    Of a quota only whole processors count: threads beyond it are put to sleep while the others wait for them.
    """
    threads = machine.num_fast_cores
    if machine.cpu_quota is not None:
        threads = min(threads, int(machine.cpu_quota))
    return max(1, threads)


def choose_threads(asked: int | None, machine: Machine) -> tuple[int, str | None]:
    """(threads, a note for the user if it is not what was asked for)."""
    if asked is None:
        return default_threads(machine), None
    if asked <= machine.allowed_cpus:
        return asked, None
    return machine.allowed_cpus, (
        f"{asked} threads were asked for, but this process may run on {machine.allowed_cpus} processors only; "
        f"{machine.allowed_cpus} threads are used."
    )


def _read_linux(probe: Probe) -> Machine:
    root = probe.root
    cpuinfo = _colon_fields((read_text(root / "proc/cpuinfo") or "").split("\n\n")[0])
    cpus = sorted(_allowed(probe))
    fast = _fast_cpus(root, cpus)
    memory = _colon_fields(read_text(root / "proc/meminfo") or "")
    available = _kilobytes(memory.get("MemAvailable"))
    headroom = memory_headroom(root)
    if headroom is not None:
        available = headroom if available is None else min(available, headroom)
    load = (read_text(root / "proc/loadavg") or "").split()
    return Machine(
        system=probe.system,
        architecture=probe.architecture,
        cpu_name=cpuinfo.get("model name") or cpuinfo.get("Hardware") or probe.architecture,
        isa=_isa(probe.architecture, (cpuinfo.get("flags") or cpuinfo.get("Features") or "").split()),
        allowed_cpus=len(cpus),
        num_cores=_count_cores(root, cpus),
        num_fast_cores=_count_cores(root, fast),
        cpu_quota=cpu_quota(root),
        memory_total_bytes=_kilobytes(memory.get("MemTotal")),
        memory_available_bytes=available,
        load=float(load[0]) if load else None,
        huge_pages=_chosen(read_text(root / "sys/kernel/mm/transparent_hugepage/enabled")),
    )


def _read_mac(probe: Probe) -> Machine:
    values = probe.sysctl()

    def number(name: str) -> int | None:
        text = values.get(name, "")
        return int(text) if text.isdigit() else None

    is_arm = probe.architecture == "arm64"
    num_cores = number("hw.physicalcpu") or 1
    total, free_percent = number("hw.memsize"), number("kern.memorystatus_level")
    return Machine(
        system=probe.system,
        architecture=probe.architecture,
        cpu_name=values.get("machdep.cpu.brand_string") or probe.architecture,
        isa="neon" if is_arm else "avx2" if number("hw.optional.avx2_0") else "portable",
        allowed_cpus=number("hw.logicalcpu") or num_cores,
        num_cores=num_cores,
        num_fast_cores=number("hw.perflevel0.physicalcpu") or num_cores,
        cpu_quota=None,
        memory_total_bytes=total,
        memory_available_bytes=None if total is None or free_percent is None else total * free_percent // 100,
        load=os.getloadavg()[0],
        huge_pages=None,
    )


def _allowed(probe: Probe) -> frozenset[int]:
    affinity = probe.affinity()
    if affinity:
        return affinity
    return parse_cpu_list(read_text(probe.root / _CPUS / "online") or "") or frozenset({0})


def parse_cpu_list(text: str) -> frozenset[int]:
    """The numbers of a list such as "0-3,8,10-11"."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit():
            found.update(range(int(first), int(last if last.isdigit() else first) + 1))
    return frozenset(found)


def _count_cores(root: Path, cpus: Iterable[int]) -> int:
    """Physical cores: logical processors that are listed as siblings share one."""
    cores: set[str] = set()
    for cpu in cpus:
        topology = root / _CPUS / f"cpu{cpu}" / "topology"
        siblings = read_text(topology / "core_cpus_list") or read_text(topology / "thread_siblings_list")
        cores.add(siblings or f"{cpu}")
    return len(cores)


def _fast_cpus(root: Path, cpus: list[int]) -> list[int]:
    """Those that are not efficiency cores; all when only such are allowed, or when none is said to be one."""
    hybrid = parse_cpu_list(read_text(root / "sys/devices/cpu_core/cpus") or "")
    if hybrid:
        return [cpu for cpu in cpus if cpu in hybrid] or cpus
    for name, share in (("cpu_capacity", _FAST_CAPACITY), ("cpufreq/cpuinfo_max_freq", _FAST_FREQUENCY)):
        values = {cpu: read_text(root / _CPUS / f"cpu{cpu}" / name) for cpu in cpus}
        speeds = {cpu: int(value) for cpu, value in values.items() if value and value.isdigit()}
        if len(speeds) == len(cpus):
            limit = share * max(speeds.values())
            return [cpu for cpu in cpus if speeds[cpu] >= limit]
    return cpus


def _isa(architecture: str, flags: Iterable[str]) -> str:
    has = frozenset(flags)
    if architecture in ("aarch64", "arm64"):
        return "neon" if "asimddp" in has else "portable"
    if has >= _AVX512:
        return "avx512"
    if has >= _AVX2:
        return "avxvnni" if "avx_vnni" in has else "avx2"
    return "portable"


def _colon_fields(text: str) -> dict[str, str]:
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def _kilobytes(text: str | None) -> int | None:
    """Bytes, from "16384 kB"."""
    number = (text or "").split(" ")[0]
    return int(number) * 1024 if number.isdigit() else None


def _chosen(text: str | None) -> str | None:
    """The word in brackets of "always [madvise] never"."""
    _, _, rest = (text or "").partition("[")
    return rest.partition("]")[0] or None
