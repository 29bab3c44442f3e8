"""`tandem eval`: how good a model's numbers are, and what a setting costs in quality and gives in speed."""

from __future__ import annotations
