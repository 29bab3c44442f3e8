"""Commands that take something out of the chat, or a file into it: copy, save, export, attach."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from app.chat.attachments import Attachment, place_of, prompt_text
from app.chat.clipboard import clipboard_command, put_into_clipboard
from app.chat.code_blocks import CodeBlock, code_blocks
from app.chat.commands.command import Argument, Command
from app.chat.commands.turn_commands import NUMBER, number_of, turn_of
from app.chat.engine_port import Role
from app.chat.export import ExportError, export, write_new

if TYPE_CHECKING:
    from app.chat.screens.chat import ChatScreen


def _copy(desk: ChatScreen, argument: str) -> None:
    turn = turn_of(desk, argument, Role.ASSISTANT)
    if turn is not None:
        _copy_out(desk, prompt_text(turn.text, turn.attachments))
        desk.show_note("The reply was copied." if turn.role is Role.ASSISTANT else "The message was copied.")


def _code(desk: ChatScreen, argument: str) -> None:
    found = _block_of(desk, argument)
    if found is not None:
        block, number, how_many = found
        _copy_out(desk, block.code)
        num_lines = len(block.code.splitlines())
        size = "1 line" if num_lines == 1 else f"{num_lines:,} lines"
        desk.show_note(f"Code block {number} of {how_many} was copied: {size}.")


def _copy_out(desk: ChatScreen, text: str) -> None:
    """Puts a text into the clipboard: by the terminal (OSC 52), and by the system's own program if there is one."""
    desk.app.copy_to_clipboard(text)
    command = clipboard_command(os.environ)
    if command is not None:
        desk.run_worker(lambda: put_into_clipboard(command, text), thread=True, group="clipboard")


def _save(desk: ChatScreen, argument: str) -> None:
    first, _, rest = argument.partition(" ")
    number, name = (first, rest.strip()) if first.isdigit() and rest.strip() else ("", argument)
    found = _block_of(desk, number)
    if found is not None:
        path = place_of(name, Path.cwd())
        try:
            write_new(path, found[0].code.removesuffix("\n") + "\n")  # of a block that was cut off, too
        except ExportError as fault:
            desk.show_note(str(fault), is_warning=True)
        else:
            desk.show_note(f"Saved: {path}")


def _block_of(desk: ChatScreen, argument: str) -> tuple[CodeBlock, int, int] | None:
    """The code block of this number (none: the last) of the selected turn or the latest reply that has one."""
    turns = desk.controller.conversation.turns
    selected = [turn for turn in turns if turn.id == desk.transcript.selected_turn]
    searched = selected or [turn for turn in turns if turn.role is Role.ASSISTANT]
    blocks = next((blocks for turn in reversed(searched) if (blocks := code_blocks(turn.text))), [])
    if not blocks:
        desk.show_note("There is no code block here." if selected else "There is no code block yet.", is_warning=True)
        return None
    number = number_of(argument) if argument else len(blocks)
    if not 1 <= number <= len(blocks):
        desk.show_note(f"There is no block {argument}: blocks are counted from 1 to {len(blocks)}.", is_warning=True)
        return None
    return blocks[number - 1], number, len(blocks)


def _file_name(desk: ChatScreen) -> str:
    replies = [turn for turn in desk.controller.conversation.turns if turn.role is Role.ASSISTANT]
    blocks = next((blocks for turn in reversed(replies) if (blocks := code_blocks(turn.text))), [])
    return blocks[-1].file_name if blocks else ""


def _export(desk: ChatScreen, argument: str) -> None:
    try:
        path = export(desk.controller.conversation, argument, Path.cwd())
    except ExportError as fault:
        desk.show_note(str(fault), is_warning=True)
    else:
        desk.show_note(f"Exported: {path}")


def _attach(desk: ChatScreen, argument: str) -> None:
    desk.controller.attaching.attach_file(argument)


def _drop(desk: ChatScreen, argument: str) -> None:
    attachments = desk.controller.conversation.attachments
    number = number_of(argument) if argument else len(attachments)
    dropped: Attachment | None = desk.controller.attaching.drop(number)
    if dropped is None:
        desk.show_note(f"There is no attachment {argument or 'yet'}.", is_warning=True)


def _no_reply(desk: ChatScreen) -> str:
    return "" if desk.controller.conversation.turns else "There is no turn yet."


COPY_COMMANDS = (
    Command(
        name="copy",
        title="Copy",
        help="copy the selected turn or the latest reply, as it was written",
        handler=_copy,
        argument=NUMBER,
        keys=("alt+c",),
        refusal=_no_reply,
    ),
    Command(
        name="code",
        title="Copy code",
        help="copy a code block of the reply, the last one or number N",
        handler=_code,
        argument=NUMBER,
        keys=("alt+k",),
        refusal=_no_reply,
    ),
    Command(
        name="save",
        title="Save code",
        help="save a code block to a new file (/save 2 FILE: the second)",
        handler=_save,
        argument=Argument(word="FILE", question="Save the code block as", initial=_file_name),
        keys=("alt+s",),
        refusal=_no_reply,
    ),
    Command(
        name="export",
        title="Export",
        help="write this conversation to a new file, .md or .json",
        handler=_export,
        argument=Argument(word="FILE", is_optional=True),
        refusal=_no_reply,
    ),
    Command(
        name="file",
        title="Attach a file",
        help="attach a text file to the message (also @FILE in it)",
        handler=_attach,
        argument=Argument(word="FILE", question="Attach the file"),
    ),
    Command(
        name="drop",
        title="Take an attachment out",
        help="take the last attachment, or number N, out of the message",
        handler=_drop,
        argument=NUMBER,
        refusal=lambda desk: "" if desk.controller.conversation.attachments else "Nothing is attached.",
    ),
)
