"""The parser of the command line: flags in full, and for what it does not know the nearest that it does.

Owns how a wrong command line is refused.  Does not know which commands and flags there are (cli.py).
"""

from __future__ import annotations

import argparse
import difflib
import sys
from typing import NoReturn

from app.errors import EXIT_USAGE, UsageError

# What other programs for local models call a command, and its name here.
_ELSEWHERE = {
    "run": "chat",
    "cli": "chat",
    "completion": "generate",
    "perplexity": "eval",
    "ls": "models list",
    "list": "models list",
    "search": "models list",
    "pull": "models pull",
    "download": "models pull",
    "show": "models info",
    "rm": "models remove",
    "delete": "models remove",
}

_SHORT = 2  # letters of -m: too few to look like another


def unknown_flag(flag: str, parser: argparse.ArgumentParser, whole: argparse.ArgumentParser) -> UsageError:
    """What to say about a word that the parser of a command left over.  whole: the parser of all commands."""
    if not flag.startswith("-"):
        return UsageError(f"{flag!r} is one word too many.", hint=f"`{parser.prog} --help` shows what there is.")
    return UsageError(f"There is no {flag} here.", hint=_nearest(flag.split("=")[0], parser, whole))


def _nearest(text: str, parser: argparse.ArgumentParser, whole: argparse.ArgumentParser) -> str:
    """A flag that begins so, one that is elsewhere, a command of that name, or one that looks alike."""
    known, commands = _flags(parser), _commands(whole)
    begun = [name for name in known if name.startswith(text)]
    elsewhere = [f"`{command} {text}`" for command, other in commands.items() if text in _flags(other)]
    as_command = [f"`{command}`" for command in commands if command.split()[-1] == text.strip("-")]
    alike = difflib.get_close_matches(text, known, 1) if len(text) > _SHORT else []
    alike_before = difflib.get_close_matches(text, _flags(whole), 1) if len(text) > _SHORT else []
    if begun or (alike and not elsewhere and not as_command):
        return f"did you mean {(begun or alike)[0]}? Flags can't be abbreviated."
    meant = elsewhere or as_command or [f"`{whole.prog} {name}`" for name in alike_before]
    return f"did you mean {' or '.join(meant)}?" if meant else f"`{parser.prog} --help` shows every flag."


def _flags(parser: argparse.ArgumentParser) -> list[str]:
    return [name for action in parser._actions for name in action.option_strings]


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Every command by its words: `tandem models list`."""
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word in action.choices.values():
                found |= {word.prog: word, **_commands(word)}
    return found


class Parser(argparse.ArgumentParser):
    """A parser that refuses abbreviations and names the nearest command."""

    def __init__(self, *arguments: object, **keywords: object) -> None:
        super().__init__(*arguments, **{**keywords, "allow_abbrev": False})  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        hint = f"`{self.prog} --help` shows every flag."
        if message.endswith(": expected one argument"):
            flag = message.removesuffix(": expected one argument").split()[-1].split("/")[-1]
            hint = f"a value that begins with - is written {flag}=-..."
        self._refuse(message, hint)

    def _check_value(self, action: argparse.Action, value: str) -> None:
        if action.option_strings or action.choices is None or value in action.choices:
            super()._check_value(action, value)
            return
        words = list(action.choices)
        meant = [f"{self.prog} {word}" for word in difflib.get_close_matches(value, words, 1)]
        if value in _ELSEWHERE:
            meant = [f"tandem {_ELSEWHERE[value]}"]
        hint = f"did you mean `{meant[0]}`?" if meant else f"`{self.prog} --help` says what they do."
        self._refuse(f"There is no `{self.prog} {value}`: it knows {', '.join(words)}.", hint)

    def _refuse(self, message: str, hint: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(EXIT_USAGE, f"tandem: {message}\nhint: {hint}\n")
