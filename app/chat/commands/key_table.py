"""Which key does what: the commands' own keys, and those that the settings give instead.

Owns the names of keys, how they are shown, and what happens where two commands want the same one. Knows nothing of
what commands do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from app.chat.commands.command import Command
from app.chat.commands.registry import COMMANDS, command_of, nearest_name

_SHOWN = {
    "escape": "Esc",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "backspace": "Backspace",
    "ctrl": "Ctrl",
    "alt": "Alt",
    "shift": "Shift",
    "super": "Super",
}
_MODIFIERS = ("ctrl", "alt", "super", "hyper", "meta")
# Without these keys nobody can write, send or leave.
_RESERVED = ("enter", "tab", "backspace", "delete", "space", "ctrl+c", "ctrl+j", "ctrl+m", "ctrl+i", "ctrl+h")
_RESERVED_ARROWS = ("up", "down", "left", "right")


@dataclass(frozen=True, kw_only=True)
class KeyTable:
    """The keys of each command, by its name. `notes`: what of the settings could not be followed."""

    keys: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...] = ()

    def keys_of(self, command: Command) -> tuple[str, ...]:
        """The keys, as Textual names them."""
        return self.keys.get(command.name, ())

    def shown(self, command: Command) -> str:
        """The keys as a person reads them; nothing where there are none."""
        return ", ".join(map(shown_key, self.keys_of(command)))

    def hint(self, name: str) -> str:
        """How this command is best called: its first key, or its slash word."""
        keys = self.keys.get(name, ())
        return shown_key(keys[0]) if keys else f"/{name}"


def shown_key(key: str) -> str:
    """A key as a person reads it: Ctrl+N."""
    parts = key.split("+")
    return "+".join(_SHOWN.get(part, part.capitalize()) for part in parts)


def key_table(chosen: Mapping[str, tuple[str, ...]] | None = None, commands: Iterable[Command] = COMMANDS) -> KeyTable:
    """The commands' keys with the chosen ones in place of theirs; a chosen key is taken from whoever had it.

    chosen: keys by the command's name; no keys at all frees the command of its own.
    """
    notes: list[str] = []
    accepted: dict[str, tuple[str, ...]] = {}
    takers: dict[str, str] = {}
    for name, keys in (chosen or {}).items():
        if command_of(name) is None:
            near = nearest_name(name)
            notes.append(f"[keys] {name}: there is no such command" + (f" (did you mean {near}?)" if near else ""))
            continue
        good: list[str] = []
        for key in map(_normal, keys):
            if (fault := _fault_of(key)) or key in takers:
                notes.append(f"[keys] {name}: {key} {fault or f'is given to {takers[key]} already'}")
            else:
                takers[key] = name
                good.append(key)
        if good or not keys:
            accepted[name] = tuple(good)
    table: dict[str, tuple[str, ...]] = {}
    for command in commands:
        own = accepted.get(command.name)
        if own is None:
            own = tuple(key for key in command.keys if key not in takers)
        table[command.name] = own
    return KeyTable(keys=table, notes=tuple(notes))


def _normal(key: str) -> str:
    parts = [part.strip().lower() for part in key.split("+")]
    names = {"control": "ctrl", "esc": "escape", "option": "alt", "pgup": "pageup", "pgdn": "pagedown"}
    return "+".join(names.get(part, part) for part in parts)


def _fault_of(key: str) -> str:
    """Why a key can't be had, or nothing."""
    *modifiers, last = key.split("+")
    if key in _RESERVED or key in _RESERVED_ARROWS:
        return "is needed for writing"
    if not last or any(modifier not in (*_MODIFIERS, "shift") for modifier in modifiers):
        return "is no key (write ctrl+n, alt+e, f5)"
    if len(last) == 1 and not any(modifier in _MODIFIERS for modifier in modifiers):
        return "is needed for writing (with ctrl or alt it can be had)"
    if len(last) > 1 and last not in _KNOWN:
        return "is no key (write ctrl+n, alt+e, f5)"
    return ""


_KNOWN = frozenset(
    (
        *_RESERVED_ARROWS,
        *("escape", "enter", "tab", "space", "backspace", "delete", "insert", "home", "end", "pageup", "pagedown"),
        *(f"f{number}" for number in range(1, 25)),
        *("slash", "backslash", "comma", "full_stop", "minus", "plus", "equals_sign", "semicolon", "question_mark"),
        *("left_square_bracket", "right_square_bracket", "underscore", "circumflex_accent", "at"),
    )
)
