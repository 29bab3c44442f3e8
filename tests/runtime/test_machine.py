"""Facts about machines, read from faked /proc and /sys folders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from runtime.machine import Machine, Probe, choose_threads, default_threads, parse_cpu_list, read_machine

X86_FLAGS = "fpu sse2 avx avx2 fma f16c"
CPU = "sys/devices/system/cpu"


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def make_machine(
    root: Path,
    cores: list[list[int]],
    *,
    files: Mapping[str, str] | None = None,
    allowed: set[int] | None = None,
    flags: str = X86_FLAGS,
    architecture: str = "x86_64",
) -> Machine:
    """A Linux machine; each core is a list of its logical processors."""
    write(
        root,
        {
            "proc/cpuinfo": f"processor\t: 0\nmodel name\t: Fake CPU: 3000\nflags\t\t: {flags}\n\nprocessor\t: 1",
            "proc/meminfo": "MemTotal:       16000000 kB\nMemFree:  1 kB\nMemAvailable:    8000000 kB",
            "proc/loadavg": "1.25 0.50 0.10 2/300 999",
            "proc/self/cgroup": "0::/",
            f"{CPU}/online": "0-63",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        },
    )
    for core in cores:
        for cpu in core:
            write(root, {f"{CPU}/cpu{cpu}/topology/core_cpus_list": ",".join(map(str, core))})
    write(root, files or {})
    affinity = frozenset(allowed if allowed is not None else {cpu for core in cores for cpu in core})
    return read_machine(
        Probe(root=root, system="Linux", architecture=architecture, affinity=lambda: affinity, sysctl=dict)
    )


def test_plain_facts(tmp_path: Path) -> None:
    machine = make_machine(tmp_path, [[0], [1]])
    assert machine == Machine(
        system="Linux",
        architecture="x86_64",
        cpu_name="Fake CPU: 3000",
        isa="avx2",
        allowed_cpus=2,
        num_cores=2,
        num_fast_cores=2,
        cpu_quota=None,
        memory_total_bytes=16_000_000 * 1024,
        memory_available_bytes=8_000_000 * 1024,
        load=1.25,
        huge_pages="madvise",
    )
    assert default_threads(machine) == 2


def test_two_threads_of_a_core_count_once(tmp_path: Path) -> None:
    machine = make_machine(tmp_path, [[0, 4], [1, 5], [2, 6], [3, 7]])
    assert (machine.allowed_cpus, machine.num_cores, default_threads(machine)) == (8, 4, 4)


def test_a_cpuset_leaves_its_cores_only(tmp_path: Path) -> None:
    machine = make_machine(tmp_path, [[0, 4], [1, 5], [2, 6], [3, 7]], allowed={0, 4, 5})
    assert (machine.allowed_cpus, machine.num_cores, default_threads(machine)) == (3, 2, 2)


HYBRID = [[0, 1], [2, 3], [4], [5], [6], [7]]


def test_efficiency_cores_of_intels_hybrids_are_left_out(tmp_path: Path) -> None:
    files = {"sys/devices/cpu_core/cpus": "0-3", "sys/devices/cpu_atom/cpus": "4-7"}
    machine = make_machine(tmp_path, HYBRID, files=files)
    assert (machine.num_cores, machine.num_fast_cores, default_threads(machine)) == (6, 2, 2)


def test_where_only_efficiency_cores_are_allowed_they_are_used(tmp_path: Path) -> None:
    files = {"sys/devices/cpu_core/cpus": "0-3", "sys/devices/cpu_atom/cpus": "4-7"}
    machine = make_machine(tmp_path, HYBRID, files=files, allowed={5, 6, 7})
    assert default_threads(machine) == 3


@pytest.mark.parametrize(
    ("name", "values", "fast"),
    [
        ("cpu_capacity", [1024, 900, 900, 900, 350, 350, 350, 350], 4),
        ("cpufreq/cpuinfo_max_freq", [5_100_000, 5_000_000, 4_800_000, 3_300_000, 3_300_000], 3),
        ("cpufreq/cpuinfo_max_freq", [4_000_000] * 6, 6),
    ],
)
def test_slow_cores_are_known_by_capacity_or_frequency(tmp_path: Path, name: str, values: list[int], fast: int) -> None:
    files = {f"{CPU}/cpu{cpu}/{name}": str(value) for cpu, value in enumerate(values)}
    machine = make_machine(tmp_path, [[cpu] for cpu in range(len(values))], files=files)
    assert default_threads(machine) == fast


CGROUP_FILES = {
    "version 2": {
        "proc/self/cgroup": "0::/user.slice/box",
        "sys/fs/cgroup/user.slice/cpu.max": "max 100000",
        "sys/fs/cgroup/user.slice/box/cpu.max": "250000 100000",
    },
    "version 2, a limit above": {
        "proc/self/cgroup": "0::/outer/inner",
        "sys/fs/cgroup/outer/cpu.max": "250000 100000",
        "sys/fs/cgroup/outer/inner/cpu.max": "400000 100000",
    },
    "version 2, inside a container": {
        "proc/self/cgroup": "0::/host/path/that/is/not/here",
        "sys/fs/cgroup/cpu.max": "250000 100000",
    },
    "version 1": {
        "proc/self/cgroup": "5:memory:/box\n4:cpu,cpuacct:/box\n0::/",
        "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us": "250000",
        "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us": "100000",
    },
    "version 1, another mount": {
        "proc/self/cgroup": "4:cpuacct,cpu:/elsewhere",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "250000",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    },
}


@pytest.mark.parametrize("kind", CGROUP_FILES)
def test_a_quota_of_processor_time_limits_the_threads(tmp_path: Path, kind: str) -> None:
    machine = make_machine(tmp_path, [[cpu] for cpu in range(16)], files=CGROUP_FILES[kind])
    assert machine.cpu_quota == 2.5
    assert default_threads(machine) == 2


def test_less_than_one_processor_is_still_one_thread(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/cpu.max": "50000 100000"}
    assert default_threads(make_machine(tmp_path, [[0], [1]], files=files)) == 1


@pytest.mark.parametrize("text", ["max 100000", "-1 100000", "", "nonsense", "0 0"])
def test_no_quota_is_no_limit(tmp_path: Path, text: str) -> None:
    machine = make_machine(tmp_path, [[0], [1]], files={"sys/fs/cgroup/cpu.max": text})
    assert machine.cpu_quota is None


@pytest.mark.parametrize(
    "files",
    [
        {
            "sys/fs/cgroup/memory.max": "1000000",
            "sys/fs/cgroup/memory.current": "400000",
            "sys/fs/cgroup/memory.stat": "anon 1\ninactive_file 100000\nactive_file 5",
        },
        {
            "proc/self/cgroup": "9:memory:/box/deep",
            "sys/fs/cgroup/memory/box/memory.limit_in_bytes": "1000000",
            "sys/fs/cgroup/memory/box/memory.usage_in_bytes": "400000",
            "sys/fs/cgroup/memory/box/memory.stat": "inactive_file 7\ntotal_inactive_file 100000",
            "sys/fs/cgroup/memory/box/deep/memory.limit_in_bytes": "9223372036854771712",
            "sys/fs/cgroup/memory/box/deep/memory.usage_in_bytes": "4",
        },
    ],
)
def test_a_memory_limit_leaves_what_is_not_used_yet(tmp_path: Path, files: dict[str, str]) -> None:
    assert make_machine(tmp_path, [[0]], files=files).memory_available_bytes == 700_000


AVX512 = f"{X86_FLAGS} avx512f avx512bw avx512vl avx512dq avx512_vnni"


@pytest.mark.parametrize(
    ("architecture", "flags", "isa"),
    [
        ("x86_64", AVX512, "avx512"),
        ("x86_64", AVX512.replace("avx512_vnni", ""), "avx2"),
        ("x86_64", f"{X86_FLAGS} avx_vnni", "avxvnni"),
        ("x86_64", X86_FLAGS, "avx2"),
        ("x86_64", "sse2 avx avx2", "portable"),
        ("aarch64", "fp asimd asimddp", "neon"),
        ("aarch64", "fp asimd", "portable"),
        ("riscv64", "", "portable"),
    ],
)
def test_the_widest_instruction_set(tmp_path: Path, architecture: str, flags: str, isa: str) -> None:
    assert make_machine(tmp_path, [[0]], flags=flags, architecture=architecture).isa == isa


def test_arm_calls_its_flags_features(tmp_path: Path) -> None:
    files = {"proc/cpuinfo": "processor : 0\nFeatures : fp asimd asimddp"}
    machine = make_machine(tmp_path, [[0]], files=files, architecture="aarch64")
    assert (machine.isa, machine.cpu_name) == ("neon", "aarch64")


def test_a_machine_that_tells_nothing_gets_one_thread(tmp_path: Path) -> None:
    probe = Probe(root=tmp_path, system="Linux", architecture="x86_64", affinity=lambda: None, sysctl=dict)
    machine = read_machine(probe)
    assert (machine.isa, machine.memory_available_bytes, machine.load) == ("portable", None, None)
    assert default_threads(machine) == 1


def test_apples_machines_tell_by_sysctl() -> None:
    values = {
        "machdep.cpu.brand_string": "Apple M9",
        "hw.logicalcpu": "10",
        "hw.physicalcpu": "10",
        "hw.perflevel0.physicalcpu": "4",
        "hw.memsize": "1000",
        "kern.memorystatus_level": "60",
    }
    probe = Probe(system="Darwin", architecture="arm64", affinity=lambda: None, sysctl=lambda: values)
    machine = read_machine(probe)
    assert (machine.cpu_name, machine.isa, machine.num_cores) == ("Apple M9", "neon", 10)
    assert (machine.memory_total_bytes, machine.memory_available_bytes) == (1000, 600)
    assert default_threads(machine) == 4


@pytest.mark.parametrize(("asked", "used"), [(1, 1), (2, 2), (8, 8), (9, 8), (10_000, 8), (None, 4)])
def test_absurd_thread_counts_are_cut_with_a_note(tmp_path: Path, asked: int | None, used: int) -> None:
    machine = make_machine(tmp_path, [[0, 4], [1, 5], [2, 6], [3, 7]])
    threads, note = choose_threads(asked, machine)
    assert threads == used
    assert (note is None) == (asked in (None, used))
    assert note is None or (str(asked) in note and "8 threads" in note)


def test_lists_of_processors() -> None:
    assert parse_cpu_list("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    assert parse_cpu_list("") == set()


def test_this_machine_can_be_read() -> None:
    machine = read_machine()
    assert machine.cpu_name
    assert 1 <= default_threads(machine) <= machine.num_cores <= machine.allowed_cpus
    assert machine.memory_total_bytes and machine.memory_total_bytes > 10**8
