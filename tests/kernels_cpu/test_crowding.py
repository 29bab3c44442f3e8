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


def test_one_run_that_was_held_up_is_no_crowd() -> None:
    """A pass of many tokens that a machine's owner took away for 150 ms, now and then."""
    num_runs = 0

    def seldom(threads: int) -> Run:
        nonlocal num_runs
        num_runs += 1
        lost_s = 0.15 if num_runs % 20 == 0 else 0.0
        return Run(elapsed_s=0.12 / threads + lost_s, busy_s=0.12 / threads, stalled_s=lost_s)

    assert set(Machine(Crowding(2), seldom).run_for(60)) == {2}


def test_signs_that_do_not_last_are_no_crowd() -> None:
    """Every third window waits, as where another program does something for half a second."""
    num_runs = 0

    def sometimes(threads: int) -> Run:
        nonlocal num_runs
        num_runs += 1
        lost_s = 0.02 if num_runs // 8 % 3 == 2 else 0.0
        return Run(elapsed_s=0.12 / threads + lost_s, busy_s=0.12 / threads, stalled_s=lost_s)

    assert set(Machine(Crowding(2), sometimes).run_for(60)) == {2}


def test_a_trial_of_long_runs_ends_when_the_first_were_slower() -> None:
    def waits_and_yet_faster(threads: int) -> Run:
        return Run(elapsed_s=0.12 / threads, busy_s=0.12 / threads, stalled_s=0.01 if threads == 2 else 0.0)

    machine = Machine(Crowding(2), waits_and_yet_faster)
    while machine.crowding.threads == 2:
        machine.run_for(0.05)
    assert machine.run_for(0.2) == {1: pytest.approx(0.24)}
    assert machine.crowding.threads == 2


def test_runs_that_are_not_compared_take_no_part_in_a_trial() -> None:
    machine = Machine(Crowding(2), crowded)
    while machine.crowding.threads == 2:
        machine.run_for(0.02)
    assert machine.crowding.kept == 2
    machine.run_for(1)
    assert machine.crowding.kept == 1
