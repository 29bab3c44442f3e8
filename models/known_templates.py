"""Chat templates that are known good: the SHA-256 of those whose renderings are compared with a reference in the tests.

Owns the list alone.  These render in this process, all others in a child (template_process.py).
"""

from __future__ import annotations

KNOWN_GOOD = frozenset(
    (
        # SmolLM2-135M-Instruct
        "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788",
        # Qwen2.5-Coder-0.5B-Instruct
        "cd8e9439f0570856fd70470bf8889ebd8b5d1107207f67a5efb46e342330527f",
        # Qwen2.5-Coder-1.5B-Instruct
        "d5495a1e5db0611132a97e46a65dbb64a642a499421228b9c8b93229097fa9a4",
    )
)
