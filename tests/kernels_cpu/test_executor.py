"""The executor and its team: every chunk once, phase after phase, by any number of threads; and how they stop."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from kernels import LEVELS, addresses
from step_tables import Shuffle, make_team

from kernels_cpu import table
from kernels_cpu.arena import view
from kernels_cpu.team import Team, native

LEVEL = LEVELS[0]
MORE_THAN_CORES = 5


@contextmanager
def team_of(num_threads: int, level: str = LEVEL) -> Iterator[Team]:
    team = make_team(level, num_threads)
    try:
        yield team
    finally:
        team.close()


def team_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tandem-cpu-")]


def run_many(team: Team, runs: int, *, rows: int, phases: int) -> np.ndarray:
    """The sum of all runs' rows, each run's result checked."""
    program = Shuffle(LEVEL, rows=rows, phases=phases)
    for number in range(runs):
        program.feed(number)
        assert team.run(program.address)
        assert program.is_right()
    return program.total


@pytest.mark.parametrize("level", LEVELS)
def test_phases_follow_each_other(level: str) -> None:
    program = Shuffle(level, rows=40, phases=30)
    with team_of(3, level) as team:
        for number in range(20):
            program.feed(number)
            assert team.run(program.address)
            assert program.is_right()


@pytest.mark.parametrize("num_threads", [2, 3, MORE_THAN_CORES])
def test_any_number_of_threads_gives_the_same_bits(num_threads: int) -> None:
    with team_of(1) as alone:
        expected = run_many(alone, 40, rows=50, phases=12)
    with team_of(num_threads) as team:
        assert np.array_equal(run_many(team, 40, rows=50, phases=12), expected)


def test_hundreds_of_tiny_runs_by_more_threads_than_cores() -> None:
    """Fewer chunks than threads: threads come late and find the tickets of another run."""
    with team_of(MORE_THAN_CORES) as team:
        total = run_many(team, 600, rows=3, phases=2)
    with team_of(1) as alone:
        assert np.array_equal(run_many(alone, 600, rows=3, phases=2), total)


def test_tables_take_turns() -> None:
    """A thread that is late for one table must not touch the other."""
    programs = [Shuffle(LEVEL, rows=rows, phases=phases, seed=rows) for rows, phases in ((3, 1), (64, 5), (7, 9))]
    with team_of(4) as team:
        for number in range(100):
            program = programs[number % 3]
            program.feed(number)
            assert team.run(program.address)
            assert program.is_right()


def test_a_late_thread_takes_nothing_of_the_next_run() -> None:
    """It wakes up for a run that is over, while the next one's chunks are being counted beside the old tickets."""
    program = Shuffle(LEVEL, rows=8, phases=2)
    with team_of(1) as team:
        program.feed(0)
        assert team.run(program.address) and program.is_right()
        left = program.snapshot()
        steps = view(program.address, (program.num_steps + 1, table.STEP_BYTES // 8), np.int64)
        done = steps[:, table.DONE // 8].copy()
        steps[1:-1:2, table.CHUNKS // 8] += 1  # the first thing that the starter writes for a step
        steps[-1, table.TICKET // 8] += 1  # the last step has a chunk for the worker: so we see that it walked by
        team._set(table.THREADS, 2)
        team._set(table.JOB, 0)  # so that the worker begins before the run that it is late for
        work = native(addresses(LEVEL, "executor-work")["executor-work"])
        worker = threading.Thread(target=work, args=(team._base, 1))
        worker.start()
        wait_until(lambda: team._words[table.PARKED // 8] == 1)
        team._set(table.JOB, 1)
        wake(team)
        wait_until(lambda: steps[-1, table.DONE // 8] == 9)
        assert np.array_equal(steps[:-1, table.DONE // 8], done[:-1])
        changed = (program.snapshot() != left).any(axis=2)
        assert changed.sum() == 1 and changed[-1, 7], "only the last row of the total was added to again"
        team._set(table.STOP, 1)
        wake(team)
        worker.join()


def wake(team: Team) -> None:
    libc = ctypes.CDLL(None)
    libc.pthread_mutex_lock(ctypes.c_void_p(team._base + table.MUTEX))
    libc.pthread_cond_broadcast(ctypes.c_void_p(team._base + table.SIGNAL))
    libc.pthread_mutex_unlock(ctypes.c_void_p(team._base + table.MUTEX))


def test_a_parked_team_wakes_up() -> None:
    program = Shuffle(LEVEL, rows=200, phases=5)
    with team_of(3) as team:
        for number in range(5):
            wait_until_parked(team)
            program.feed(number)
            assert team.run(program.address)
            assert program.is_right()


def wait_until(condition: Callable[[], bool]) -> None:
    """A minute is for a machine that has other things to do."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "nothing happens"
        time.sleep(0.001)


def wait_until_parked(team: Team) -> None:
    wait_until(lambda: team._words[table.PARKED // 8] == team.num_threads - 1)


def test_an_idle_team_takes_no_processor_time() -> None:
    with team_of(3) as team:
        run_many(team, 3, rows=10, phases=2)
        wait_until_parked(team)
        before = time.process_time()
        time.sleep(0.5)
        assert time.process_time() - before < 0.1


def test_a_cancel_before_a_run_stops_that_run_and_no_other() -> None:
    program = Shuffle(LEVEL, rows=20, phases=3)
    with team_of(2) as team:
        program.feed(0)
        before = program.snapshot()
        team.cancel()
        assert not team.run(program.address)
        assert np.array_equal(program.snapshot(), before, equal_nan=True)
        assert team.run(program.address) and program.is_right()


def test_a_cancel_between_runs_can_be_forgotten() -> None:
    program = Shuffle(LEVEL, rows=20, phases=3)
    with team_of(2) as team:
        program.feed(0)
        team.cancel()
        team.clear()
        assert team.run(program.address) and program.is_right()


@pytest.mark.parametrize("num_threads", [1, 2, MORE_THAN_CORES])
def test_a_run_is_cancelled_in_the_middle_and_the_next_is_clean(num_threads: int) -> None:
    program = Shuffle(LEVEL, rows=4000, phases=60)
    pauses = np.random.default_rng(0).uniform(0.0, 0.01, 10_000)
    num_cancelled = 0
    with team_of(num_threads) as team:
        for number, pause in enumerate(pauses):
            program.feed(number)
            timer = threading.Timer(pause, team.cancel)
            timer.start()
            is_whole = team.run(program.address)
            timer.join()
            if is_whole:
                assert program.is_right()
            else:
                num_cancelled += 1
                left = program.snapshot()
                time.sleep(0.005)
                assert np.array_equal(program.snapshot(), left, equal_nan=True), "a worker went on after the run"
            team.clear()
            program.feed(number)
            assert team.run(program.address) and program.is_right()
            if num_cancelled == 8:
                return
    pytest.fail(f"{num_cancelled} runs were cancelled, expected 8")


def test_closing_ends_all_threads() -> None:
    assert not team_threads()
    team = make_team(LEVEL, 4)
    assert sorted(team_threads()) == ["tandem-cpu-1", "tandem-cpu-2", "tandem-cpu-3"]
    run_many(team, 2, rows=5, phases=1)
    team.close()
    assert not team_threads()
    team.close()


@pytest.mark.parametrize("num_threads", [1, 3])
def test_a_team_that_never_ran_can_be_closed(num_threads: int) -> None:
    team = make_team(LEVEL, num_threads)
    if num_threads > 1:
        wait_until_parked(team)
    team.close()
    assert not team_threads()


def test_a_step_without_chunks_is_passed() -> None:
    """Such as the combining of spans where a batch has none."""
    program = Shuffle(LEVEL, rows=2, phases=2)  # its first step of each phase has 2 // 3 rows
    with team_of(2) as team:
        for number in range(10):
            program.feed(number)
            assert team.run(program.address) and program.is_right()
