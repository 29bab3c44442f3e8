"""Conversations and turns as rows of the tables, and back.

Owns which column holds what. A value that makes no sense costs that value, not its turn.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import asdict

from app.chat.attachments import Attachment
from app.chat.conversation import Conversation, Turn, TurnState
from app.chat.engine_port import ReplyFigures, Role

SqlValue = str | float | None
CONVERSATION_COLUMNS = "id, title, system, model, leaf, window_start, summary, draft, edited, edit, pinned, created_at"
TURN_COLUMNS = "id, parent, role, text, thinking, ids, vocabulary, model, state, figures, created_at, attachments"


def storable(text: str) -> str:
    """The text with half surrogates (bytes of the command line that were no UTF-8) replaced: SQLite refuses them."""
    return text.encode("utf-8", "replace").decode("utf-8")


def row_of_conversation(conversation: Conversation) -> dict[str, SqlValue]:
    """Everything but the turns and the attachments."""
    return {
        "id": conversation.id,
        "title": storable(conversation.title),
        "system": storable(conversation.system),
        "model": storable(conversation.model),
        "leaf": conversation.leaf,
        "window_start": conversation.window_start,
        "summary": storable(conversation.summary),
        "draft": storable(conversation.draft),
        "edited": conversation.edited,
        "edit": storable(conversation.edit),
        "pinned": conversation.is_pinned,
        "created_at": conversation.created_at,
    }


def conversation_of_row(row: Sequence, attachments: object) -> Conversation:
    """The conversation of a row of CONVERSATION_COLUMNS, without its turns."""
    identity, title, system, model, _, window_start, summary, draft, edited, edit, is_pinned, created_at = row
    return Conversation(
        id=identity,
        title=title,
        system=system,
        model=model,
        is_pinned=bool(is_pinned),
        window_start=window_start,
        summary=summary,
        draft=draft,
        edited=edited,
        edit=edit,
        attachments=attachments_of_text(attachments),
        created_at=created_at,
    )


def leaf_of_row(row: Sequence) -> str | None:
    """The last turn of the branch that is shown, of such a row."""
    return row[CONVERSATION_COLUMNS.split(", ").index("leaf")]


def row_of_turn(turn: Turn) -> tuple[object, ...]:
    """The values of TURN_COLUMNS."""
    return (
        turn.id,
        turn.parent,
        str(turn.role),
        storable(turn.text),
        storable(turn.thinking),
        None if turn.ids is None else array("i", turn.ids).tobytes(),
        turn.vocabulary,
        storable(turn.model),
        str(TurnState.PARTIAL if turn.state is TurnState.ELSEWHERE else turn.state),
        None if turn.figures is None else json.dumps(asdict(turn.figures)),
        turn.created_at,
        text_of_attachments(turn.attachments),
    )


def turn_of_row(row: Sequence) -> Turn:
    """The turn that a row of `turns` holds."""
    identity, parent, role, text, thinking, ids, vocabulary, model, state, figures, created_at, attachments = row
    return Turn(
        id=str(identity),
        parent=parent,
        role=Role(role) if role in set(Role) else Role.USER,
        text=str(text or ""),
        thinking=str(thinking or ""),
        ids=_ids_of_blob(ids),
        vocabulary=str(vocabulary or ""),
        model=str(model or ""),
        state=TurnState(state) if state in set(TurnState) else TurnState.FINISHED,
        created_at=created_at if isinstance(created_at, float) else 0.0,
        figures=_figures_of_text(figures),
        attachments=attachments_of_text(attachments),
    )


def _ids_of_blob(blob: object) -> tuple[int, ...] | None:
    if not isinstance(blob, bytes) or len(blob) % array("i").itemsize:
        return None
    return tuple(array("i", blob))


def text_of_attachments(attachments: Sequence[Attachment]) -> str:
    """JSON, in which half surrogates stand as escapes; empty for none: most turns have none."""
    return json.dumps([asdict(attachment) for attachment in attachments]) if attachments else ""


def attachments_of_text(text: object) -> tuple[Attachment, ...]:
    """The attachments of a row; none where it makes no sense."""
    if not isinstance(text, str) or not text:
        return ()
    try:
        return tuple(Attachment(**fields) for fields in json.loads(text))
    except (ValueError, TypeError):
        return ()


def _figures_of_text(text: object) -> ReplyFigures | None:
    if not isinstance(text, str):
        return None
    try:
        return ReplyFigures(**json.loads(text))
    except (ValueError, TypeError):
        return None
