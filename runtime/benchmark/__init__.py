"""Measuring: what a model does on this machine, how near that comes to the machine's limits, and how others compare.

These are its public names.  Reading and comparing results (results.py, comparison.py, statistics.py) needs no NumPy.
"""

from __future__ import annotations
