"""Quality: how well a model predicts a text, and how far its answers are from those of another model or setting.

Public are plans (what is compared), session (measuring), and results.
"""

from __future__ import annotations
