"""What the status line says while the chat goes on: the figures as they change.

Owns the figures. Knows the screen through `ChatView` only, and asks nobody.
"""

from __future__ import annotations

from dataclasses import replace

from app.chat.active_reply import ActiveReply
from app.chat.engine_port import ReplyFigures
from app.chat.status import StatusFigures
from app.chat.view import ChatView


class StatusKeeper:
    """Tells the screen what changed, and nothing where nothing did."""

    def __init__(self, view: ChatView) -> None:
        self._view = view
        self._figures = StatusFigures()

    def tell(self, **changes: object) -> None:
        """Some figures are other than before."""
        figures = replace(self._figures, **changes)
        if figures != self._figures:
            self._figures = figures
            self._view.show_status(figures)

    def tell_progress(self, reply: ActiveReply) -> None:
        """How far the reply has come."""
        if not reply.has_begun:
            done, total = reply.prefill or (0, 0)
            share = f" {100 * done // total} %" if total else ""
            self.tell(activity=f"reading{share}", used_tokens=reply.used_tokens or None)
        else:
            self.tell(
                activity="stopping" if reply.is_stopping else "writing",
                tokens_per_s=reply.speed.tokens_per_s,
                used_tokens=reply.used_tokens,
            )

    def tell_end(self, figures: ReplyFigures) -> None:
        """What the whole reply took."""
        self.tell(
            activity="",
            tokens_per_s=figures.tokens_per_s or None,
            ttft_s=figures.ttft_s or None,
            used_tokens=figures.prompt_tokens + figures.reply_tokens,
            reused_tokens=figures.reused_tokens,
        )
