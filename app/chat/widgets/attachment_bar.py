"""The lines above the input that say what goes with the message."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from app.chat.attachments import Attachment
from app.chat.plain_text import one_line


class AttachmentBar(Static):
    """One line for each attachment; takes no room while there is none."""

    DEFAULT_CSS = """
    AttachmentBar {
        height: auto;
        max-height: 6;
        padding: 0 1;
        display: none;
        color: $text-muted;
        text-wrap: nowrap;
        text-overflow: ellipsis;
        &.-shown { display: block; }
    }
    """

    def __init__(self) -> None:
        super().__init__(Content(""))

    def show(self, attachments: Sequence[Attachment]) -> None:
        """Shows these in place of those before."""
        self.set_class(bool(attachments), "-shown")
        lines = [attachment_line(attachment) for attachment in attachments]
        if lines:
            lines[-1] += "  (/drop takes it out)"
        self.update(Content("\n".join(lines)))


def attachment_line(attachment: Attachment) -> str:
    """What is attached, in one line."""
    return f"+ {one_line(attachment.name)} · {attachment.size_words}"
