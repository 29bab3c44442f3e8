"""Measuring: what a model does on this machine, how near that comes to the machine's limits, and how others compare.

Public are workloads (what is measured), session (measuring), results, comparison, statistics and peers.
"""

from __future__ import annotations
