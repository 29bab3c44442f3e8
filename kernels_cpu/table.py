"""Byte offsets of the words that the executor's threads share: the team block and the steps of a program.

Owns the layout only; executor.py explains the protocol, team.py and binding.py fill the words in from Python.
"""

from __future__ import annotations

STEP_BYTES = 128
KERNEL, OPERANDS, FIXED, PER_CHUNK, COUNT_AT, WAITS, CHUNKS, WAIT_TARGET = range(0, 64, 8)
TICKET, DONE = 64, 72
DONE_AT = 80  # address of the phase's DONE word, in its last step

TEAM_BYTES = 1024
PROGRAM, THREADS = 0, 8
CANCEL = 128
JOB = 192
INSIDE = 256
PARKED = 320
STOP = 384
STALLED_NS = 448  # waited for chunks whose thread the system took away, all threads together
MUTEX = 512  # a pthread mutex
SIGNAL = 768  # a pthread condition
