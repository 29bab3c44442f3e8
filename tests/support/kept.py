"""What stands on disk of a chat's conversations, whoever has them open.

Reads a copy: a second window would see that the first one lives, and leave its draft and its reply to it.
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

from app.chat.conversation import Conversation
from app.chat.store import Store


def kept(path: Path) -> list[Conversation]:
    """All conversations, the latest first."""
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "copy.db"
        raw, copy = sqlite3.connect(path, timeout=30), sqlite3.connect(copied)
        raw.backup(copy)
        raw.close()
        copy.close()
        store = Store(copied)
        found = [store.load(line.id) for line in store.conversations()]
        store.close()
    return [conversation for conversation in found if conversation is not None]
