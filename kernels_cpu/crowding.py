"""How many threads of a team should work while other programs want the cores too.

Owns the policy, fed with the times of runs.  Does not know threads.

On a crowded machine a thread that the system took off its core in the middle of a chunk holds all others up for a time
slice (3 ms and more), and a thread that waits politely loses its own core.  Then fewer threads get more done.  How many
is not guessed: when runs show signs of a crowd, one thread less is tried for a few runs and kept if that is faster;
later one more is tried.  The pauses between trials that changed nothing grow.
"""

from __future__ import annotations

from statistics import median

WINDOW_RUNS = 8
WINDOW_S = 0.03
BUSY_SHARE = 0.85  # of its time the starter of runs should be on a core
STALLED_SHARE = 0.05  # of a run that threads may wait for one that was taken away
GAIN = 0.97  # a trial is kept when its runs take less than this share of the time before
FIRST_PAUSE_S = 0.3
LONGEST_PAUSE_S = 5.0


class Crowding:
    """`threads`: how many should take part in the next run, 1 to `most`."""

    def __init__(self, most: int) -> None:
        self.most = self.threads = most
        self._kept = most
        self._kind: int | None = None
        self._reference_s: float | None = None  # of the runs before a trial; None: no trial goes on
        self._goes_down = True
        self._pause_s = FIRST_PAUSE_S
        self._quiet_until_s = float("-inf")
        self._forget_runs()

    def _forget_runs(self) -> None:
        self._runs_s: list[float] = []
        self._busy_s = self._stalled_s = 0.0

    def after_run(self, kind: int, elapsed_s: float, busy_s: float, stalled_s: float, now_s: float) -> int:
        """Takes note of a run; returns `threads`.

        kind: what the run computed; only runs of one kind are compared.  busy_s: processor time of the run's starter.
        stalled_s: waiting of all threads together.
        """
        if self.most == 1:
            return 1
        if kind != self._kind:
            self._kind = kind
            self._end_trial(self._kept)
        self._runs_s.append(elapsed_s)
        self._busy_s += busy_s
        self._stalled_s += stalled_s
        total_s = sum(self._runs_s)
        if len(self._runs_s) < WINDOW_RUNS or total_s < WINDOW_S:
            return self.threads
        run_s = median(self._runs_s)
        is_crowded = self._busy_s < BUSY_SHARE * total_s or self._stalled_s > STALLED_SHARE * total_s
        self._forget_runs()
        if self._reference_s is not None:
            self._judge(run_s, now_s)
        elif now_s >= self._quiet_until_s:
            self._maybe_try(run_s, is_crowded, now_s)
        return self.threads

    def _judge(self, run_s: float, now_s: float) -> None:
        assert self._reference_s is not None
        if run_s < GAIN * self._reference_s:
            self._kept, self._pause_s = self.threads, FIRST_PAUSE_S
        else:
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            self._goes_down = not self._goes_down
        self._quiet_until_s = now_s + self._pause_s
        self._end_trial(self._kept)

    def _maybe_try(self, run_s: float, is_crowded: bool, now_s: float) -> None:
        if not is_crowded and self.threads == self.most:
            self._pause_s = FIRST_PAUSE_S
            self._goes_down = True
            return
        can_go_down = is_crowded and self.threads > 1
        can_go_up = self.threads < self.most
        goes_down = can_go_down and (self._goes_down or not can_go_up)
        self._reference_s = run_s
        self.threads += -1 if goes_down else 1

    def _end_trial(self, threads: int) -> None:
        self.threads, self._reference_s = threads, None
        self._forget_runs()
