"""Measuring which settings are fastest for one model on this machine."""
