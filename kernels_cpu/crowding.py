"""How many threads of a team should work while other programs want the cores too.

Owns the policy, fed with the times of runs.  Does not know threads.

On a crowded machine a thread that the system took off its core in the middle of a chunk holds all others up for a time
slice (3 ms and more), and a thread that waits politely loses its own core.  Then fewer threads get more done.  How many
is not guessed: when runs show signs of a crowd, one thread less is tried for a few runs and kept if that is faster;
later one more is tried.  The pauses between trials that changed nothing grow.  One run alone that was held up is no
sign, nor are signs that do not last, and a trial whose first runs were all slower is over: passes of many tokens are
long, so that a trial with half of the threads costs a second where signs come and go.
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
LASTING_WINDOWS = 2  # in turn that show a crowd before fewer threads are tried
LOST_RUNS = 2  # of a trial, all slower than those before it


class Crowding:
    """`threads`: how many should take part in the next run that is compared, 1 to `most`; `kept`: in any other."""

    def __init__(self, most: int) -> None:
        self.most = self.threads = self.kept = most
        self._kind: int | None = None
        self._reference_s: float | None = None  # of the runs before a trial; None: no trial goes on
        self._num_crowded = 0  # windows in turn
        self._goes_down = True
        self._pause_s = FIRST_PAUSE_S
        self._quiet_until_s = float("-inf")
        self._forget_runs()

    def _forget_runs(self) -> None:
        self._runs_s: list[float] = []
        self._idle_s: list[float] = []
        self._stalled_s: list[float] = []

    def after_run(self, kind: int, elapsed_s: float, busy_s: float, stalled_s: float, now_s: float) -> int:
        """Takes note of a run; returns `threads`.

        kind: what the run computed; only runs of one kind are compared.  busy_s: processor time of the run's starter.
        stalled_s: waiting of all threads together.
        """
        if self.most == 1:
            return 1
        if kind != self._kind:
            self._kind = kind
            self._end_trial(self.kept)
        self._runs_s.append(elapsed_s)
        self._idle_s.append(elapsed_s - busy_s)
        self._stalled_s.append(stalled_s)
        if sum(self._runs_s) < WINDOW_S or not (len(self._runs_s) >= WINDOW_RUNS or self._is_lost()):
            return self.threads
        run_s, is_crowded = median(self._runs_s), self._is_crowded()
        self._forget_runs()
        if self._reference_s is not None:
            self._judge(run_s, now_s)
        elif now_s >= self._quiet_until_s:
            self._maybe_try(run_s, is_crowded, now_s)
        return self.threads

    def _is_lost(self) -> bool:
        """Whether a trial goes on of which no run was as quick as those before it."""
        if self._reference_s is None or len(self._runs_s) < LOST_RUNS:
            return False
        return min(self._runs_s) >= self._reference_s

    def _is_crowded(self) -> bool:
        """Whether runs waited for the cores, whichever one is left out."""
        most_s = sum(self._runs_s) - max(self._runs_s)
        idle_s, stalled_s = (sum(lost_s) - max(lost_s) for lost_s in (self._idle_s, self._stalled_s))
        return idle_s > (1 - BUSY_SHARE) * most_s or stalled_s > STALLED_SHARE * most_s

    def _judge(self, run_s: float, now_s: float) -> None:
        assert self._reference_s is not None
        if run_s < GAIN * self._reference_s:
            self.kept, self._pause_s = self.threads, FIRST_PAUSE_S
        else:
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            self._goes_down = not self._goes_down
        self._quiet_until_s = now_s + self._pause_s
        self._end_trial(self.kept)

    def _maybe_try(self, run_s: float, is_crowded: bool, now_s: float) -> None:
        self._num_crowded = self._num_crowded + 1 if is_crowded else 0
        is_lasting = self._num_crowded >= LASTING_WINDOWS
        if not is_lasting and self.threads == self.most:
            if not is_crowded:
                self._pause_s = FIRST_PAUSE_S
                self._goes_down = True
            return
        can_go_down = is_lasting and self.threads > 1
        can_go_up = self.threads < self.most
        goes_down = can_go_down and (self._goes_down or not can_go_up)
        self._reference_s = run_s
        self.threads += -1 if goes_down else 1

    def _end_trial(self, threads: int) -> None:
        self.threads, self._reference_s = threads, None
        self._forget_runs()
