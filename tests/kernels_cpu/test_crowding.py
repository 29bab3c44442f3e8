"""How many threads work on a crowded machine, on machines that are simulated: no real time passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from kernels_cpu.crowding import LONGEST_PAUSE_S, Crowding

DECODE, OTHER = 1, 5


@dataclass(frozen=True, kw_only=True)
class Run:
    """Seconds of a run, of its starter on a core, and of waiting."""

    elapsed_s: float
    busy_s: float
    stalled_s: float = 0.0


@dataclass
class Machine:
    """A clock and what runs take with so many threads."""

    crowding: Crowding
    run_of: Callable[[int], Run]
    now_s: float = 0.0
    used_s: dict[int, float] = field(default_factory=dict)

    def run_for(self, seconds: float) -> dict[int, float]:
        """Runs back to back; the time spent with each number of threads."""
        self.used_s = {}
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            threads = self.crowding.threads
            run = self.run_of(threads)
            self.now_s += run.elapsed_s
            self.used_s[threads] = self.used_s.get(threads, 0.0) + run.elapsed_s
            self.crowding.after_run(DECODE, run.elapsed_s, run.busy_s, run.stalled_s, self.now_s)
        return self.used_s


def quiet(threads: int) -> Run:
    return Run(elapsed_s=0.012 / threads, busy_s=0.012 / threads)


def crowded(threads: int) -> Run:
    """Another program has a core: what two threads do waits for the one that was taken away."""
    return Run(elapsed_s=0.012, busy_s=0.012) if threads == 1 else Run(elapsed_s=0.02, busy_s=0.01, stalled_s=0.008)


def crowded_and_yet_faster(threads: int) -> Run:
    return Run(elapsed_s=0.016 / threads, busy_s=0.010 / threads, stalled_s=0.001)


@pytest.mark.parametrize("most", [1, 2, 4])
def test_all_threads_work_on_a_quiet_machine(most: int) -> None:
    assert Machine(Crowding(most), quiet).run_for(60) == {most: pytest.approx(60, abs=0.1)}


def test_one_thread_works_while_another_program_has_a_core() -> None:
    machine = Machine(Crowding(2), crowded)
    machine.run_for(5)
    used = machine.run_for(60)
    assert used[1] > 0.9 * 60


def test_all_threads_work_again_when_the_crowd_has_gone() -> None:
    machine = Machine(Crowding(2), crowded)
    machine.run_for(30)
    machine.run_of = quiet
    machine.run_for(2 * LONGEST_PAUSE_S)
    assert machine.run_for(30) == {2: pytest.approx(30, abs=0.1)}


def test_fewer_threads_are_seldom_tried_where_they_are_slower() -> None:
    machine = Machine(Crowding(4), crowded_and_yet_faster)
    machine.run_for(20)
    assert machine.run_for(60)[4] > 0.9 * 60


def test_the_number_stays_between_one_and_all() -> None:
    def worst(threads: int) -> Run:
        return Run(elapsed_s=0.01 * threads, busy_s=0.001, stalled_s=0.005)

    machine = Machine(Crowding(3), worst)
    used = machine.run_for(60)
    assert set(used) <= {1, 2, 3} and machine.run_for(60)[1] > 0.8 * 60


def test_a_trial_ends_when_other_runs_come() -> None:
    """Times of different work are not compared."""
    machine = Machine(Crowding(2), crowded)
    while machine.crowding.threads == 2:
        machine.run_for(0.02)
    assert machine.crowding.after_run(OTHER, 0.02, 0.01, 0.008, machine.now_s) == 2
