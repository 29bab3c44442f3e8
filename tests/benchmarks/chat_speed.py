"""How fast the chat is beside `generate`, and how soon a key is seen while a prompt is read: run by hand, quietly.

    python tests/benchmarks/chat_speed.py MODEL [--tokens 2000] [--forbid 0,2]

Owns the pseudo terminal (which emulates nothing while the chat is measured: what it draws is kept) and the reading of
figures from what was drawn, by an emulated terminal, afterwards. Both ways get one prompt and one seed; the ends of a
reply are forbidden, so that both write as many tokens.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import random
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import pyte

ROOT = Path(__file__).parents[2]
PROMPT = "Explain how a bicycle works, in Markdown with headings, lists, a table and code examples in Python."
COLUMNS, LINES = 100, 32
KEYS = "αβγδεζηθικλμνξοπρστυφχψωбгджзиклмнптфцчшщъыьэюяბგდევზთიკლმნოპჟრსტუ"
_KEY_PAUSES_S = (0.04, 0.14)  # at random, or all keys would meet the same moment of a drawing
_SEARCHED_BYTES = 4000
_STYLES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_RATE = re.compile(r"([0-9.]+) tok(?:ens)?/s")
_USED = re.compile(r"([0-9,]+) of [0-9,]+")
# "reading" becomes "writing": only the letters that differ are drawn.
_WRITING = "writ"
_STILL_S = 2.0  # the status line changes several times a second while a reply is written


class Screen:
    """A chat in a terminal that nobody looks at: what it draws is kept, and only the latest of it is searched."""

    def __init__(self, arguments: Sequence[str], folder: str, bytes_per_s: float | None = None) -> None:
        """`bytes_per_s`: so slowly the terminal takes what is drawn."""
        self._process, self._master = _started([sys.executable, "-m", "app", "chat", *arguments], folder)
        self._bytes_per_s = bytes_per_s
        self.drawn: list[tuple[float, bytes]] = []

    def type(self, text: str) -> None:
        """Presses keys."""
        os.write(self._master, text.encode())

    def until(self, holds: Callable[[str], bool], what: str, timeout_s: float) -> float:
        """Takes what is drawn until something holds of the latest of it; returns how long that took."""
        began_s = time.perf_counter()
        latest = b""
        while time.perf_counter() - began_s < timeout_s:
            if piece := self._take():
                latest = latest[-_SEARCHED_BYTES:] + piece
                if holds(_STYLES.sub("", latest.decode("utf-8", "replace"))):
                    return time.perf_counter() - began_s
        raise SystemExit(f"never came: {what}")

    def rest(self, duration_s: float) -> None:
        """Takes what is drawn for a while."""
        end_s = time.perf_counter() + duration_s
        while (left_s := end_s - time.perf_counter()) > 0:
            self._take(left_s)

    def until_still(self, timeout_s: float) -> float:
        """Takes what is drawn until nothing is drawn any more; returns how long something was."""
        began_s = last_s = time.perf_counter()
        while (now_s := time.perf_counter()) - last_s < _STILL_S:
            if now_s - began_s > timeout_s:
                raise SystemExit("never came: the end of the reply")
            if self._take():
                last_s = time.perf_counter()
        return last_s - began_s

    def status_lines(self) -> list[str]:
        """The line at the foot, after each drawing. Emulates a terminal, so call it when nothing is measured."""
        screen = pyte.Screen(COLUMNS, LINES)
        stream = pyte.ByteStream(screen)
        lines: list[str] = []
        for _, piece in self.drawn:
            stream.feed(piece)
            lines.append(screen.display[-1])
        return lines

    def _take(self, timeout_s: float = 0.05) -> bytes:
        if not select.select([self._master], [], [], timeout_s)[0]:
            return b""
        try:
            piece = os.read(self._master, 65536 if self._bytes_per_s is None else 256)
        except OSError as fault:
            raise SystemExit("the chat has ended") from fault
        self.drawn.append((time.perf_counter(), piece))
        if self._bytes_per_s is not None:
            time.sleep(len(piece) / self._bytes_per_s)
        return piece

    def drawings(self, since_s: float) -> list[float]:
        """When something was drawn since then; what came within two milliseconds is one drawing."""
        times = [at_s for at_s, _ in self.drawn if at_s >= since_s]
        return [at_s for before_s, at_s in zip([0.0, *times], times, strict=False) if at_s - before_s > 0.002]

    @property
    def screen_cpu_s(self) -> float:
        """Processor time of the chat's first thread, which draws; Linux knows it."""
        number = self._process.pid
        fields = Path(f"/proc/{number}/task/{number}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def is_running(self) -> bool:
        """Whether the chat has not ended."""
        return self._process.poll() is None

    def close(self) -> None:
        """Leaves the chat."""
        if self.is_running:
            self._process.send_signal(signal.SIGTERM)
        end_s = time.perf_counter() + 10
        try:
            while self.is_running and time.perf_counter() < end_s:
                self._take()
        except SystemExit:
            pass
        self._process.kill()
        self._process.wait()
        os.close(self._master)


def _started(command: Sequence[str], folder: str) -> tuple[subprocess.Popen[bytes], int]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {**os.environ, "XDG_DATA_HOME": folder, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=environment, cwd=ROOT, start_new_session=True
    )
    os.close(slave)
    return process, master


def generate_rate(model: str, flags: Sequence[str]) -> tuple[float, int]:
    """Tokens a second of `generate`, and how many tokens it wrote."""
    command = [sys.executable, "-m", "app", "generate", "-m", model, "-p", PROMPT, "--json", *flags]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    timings = found["timings"]
    return timings["decode_tokens_per_s"], timings["output_tokens"]


@dataclass(frozen=True, kw_only=True)
class Written:
    """A reply as the chat wrote it: tokens a second over the whole, the processor time of the thread that draws, how
    often and how much was drawn, and the tokens a second that were shown on the way, by tokens used."""

    tokens_per_s: float
    screen_share: float
    drawings_per_s: float
    longest_gap_s: float
    bytes_per_s: float
    shown: list[tuple[int, float]]


def chat_reply(model: str, flags: Sequence[str], folder: str, bytes_per_s: float | None = None) -> Written:
    """Has the chat write a reply and waits for its end."""
    screen = Screen([model, *flags], folder, bytes_per_s)
    try:
        screen.until(lambda text: "window" in text, "a loaded model", 300)
        screen.rest(1)
        screen.type(PROMPT + "\r")
        screen.until(lambda text: _WRITING in text, "the reply's first words", 120)
        before_s, began_s = screen.screen_cpu_s, time.perf_counter()
        took_s = screen.until_still(600)
        share = (screen.screen_cpu_s - before_s) / took_s
        status = screen.status_lines()
        rate = _RATE.search(status[-1])
        if rate is None or "writing" in status[-1]:
            raise SystemExit(f"the reply did not end: {status[-1]}")
        drawings = screen.drawings(began_s)
        num_bytes = sum(len(piece) for at_s, piece in screen.drawn if at_s >= began_s)
        return Written(
            tokens_per_s=float(rate.group(1)),
            screen_share=share,
            drawings_per_s=len(drawings) / took_s,
            longest_gap_s=max(after_s - before_s for before_s, after_s in pairwise(drawings)),
            bytes_per_s=num_bytes / took_s,
            shown=_rates_shown(status),
        )
    finally:
        screen.close()


def _rates_shown(status: Sequence[str]) -> list[tuple[int, float]]:
    shown: dict[int, float] = {}
    for line in status:
        if "writing" in line and (rate := _RATE.search(line)) and (used := _USED.search(line)):
            shown[int(used.group(1).replace(",", ""))] = float(rate.group(1))
    return sorted(shown.items())


def key_echoes_ms(model: str, flags: Sequence[str], folder: str, prompt_words: int) -> dict[str, list[float]]:
    """Milliseconds from a key to its letter on the screen: with nothing else to do, while a long prompt is read, and
    while the reply to it is written."""
    screen = Screen([model, *flags], folder)
    try:
        screen.until(lambda text: "window" in text, "a loaded model", 300)
        screen.rest(1)
        echoes = {"idle": _echoes_ms(screen, KEYS)}
        screen.type("\x7f" * len(KEYS))
        screen.rest(2)
        pasted = " ".join(f"word{number}" for number in range(prompt_words))
        screen.type(f"\x1b[200~{pasted}\x1b[201~")
        screen.rest(1)
        screen.type("\r")
        screen.until(lambda text: "reading" in text, "the prompt being read", 60)
        echoes["reading the prompt"] = _echoes_ms(screen, KEYS, until=_WRITING)
        screen.type("\x7f" * len(KEYS))
        screen.until(lambda text: _WRITING in text, "the reply's first words", 600)
        echoes["writing the reply"] = _echoes_ms(screen, KEYS)
        return echoes
    finally:
        screen.close()


def _echoes_ms(screen: Screen, keys: str, until: str = "never") -> list[float]:
    echoes: list[float] = []
    for key in keys:
        screen.rest(random.uniform(*_KEY_PAUSES_S))
        if any(until.encode() in piece for _, piece in screen.drawn[-20:]):
            break
        screen.type(key)
        echoes.append(1000 * screen.until(lambda text, key=key: key in text, f"the key {key}", 10))
    return echoes


def _spread(times_ms: Sequence[float]) -> str:
    ordered = sorted(times_ms)
    if not ordered:
        return "no key was in time"
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return f"median {median(ordered):.0f} ms, p95 {p95:.0f} ms, worst {ordered[-1]:.0f} ms ({len(ordered)} keys)"


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--forbid", default="0,2", help="ids that end a reply")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--prompt-words", type=int, default=1800)
    parser.add_argument("--only", choices=("rate", "echo"))
    parser.add_argument("--terminal-bytes", type=float, help="a terminal that takes so many bytes a second")
    arguments = parser.parse_args()
    forbidden = [part for number in arguments.forbid.split(",") for part in ("-l", f"{number}-inf")]
    flags = ["-n", str(arguments.tokens), "--seed", "3", "--temp", "0.8", *forbidden]
    with tempfile.TemporaryDirectory() as folder:
        if arguments.only != "echo":
            _measure_rates(arguments, flags, folder)
        if arguments.only != "rate":
            echoes = key_echoes_ms(arguments.model, flags, folder, arguments.prompt_words)
            for meanwhile, times_ms in echoes.items():
                print(f"key echo, {meanwhile}: {_spread(times_ms)}", flush=True)


def _measure_rates(arguments: argparse.Namespace, flags: Sequence[str], folder: str) -> None:
    """Both in turn, the plain one before and after: memory of a machine that others share changes its speed."""
    ratios: list[float] = []
    before, num_tokens = generate_rate(arguments.model, flags)
    for _ in range(arguments.repeats):
        chat = chat_reply(arguments.model, flags, folder, arguments.terminal_bytes)
        after, num_tokens = generate_rate(arguments.model, flags)
        plain = (before + after) / 2
        ratios.append(chat.tokens_per_s / plain)
        print(
            f"generate {before:.1f} and {after:.1f} tokens/s ({num_tokens} tokens), between them the chat "
            f"{chat.tokens_per_s:.1f} ({100 * ratios[-1]:.0f} %)"
        )
        print(
            f"  drawn {chat.drawings_per_s:.1f} times a second, longest gap {1000 * chat.longest_gap_s:.0f} ms, "
            f"{chat.bytes_per_s / 1000:.1f} kB/s; its thread took {100 * chat.screen_share:.1f} % of a processor"
        )
        shown = chat.shown
        steps = [shown[len(shown) * part // 8] for part in range(8)] if len(shown) >= 8 else shown
        print("  shown on the way: " + ", ".join(f"{rate:.0f} at {used}" for used, rate in steps), flush=True)
        before = after
    print(f"chat / generate: {100 * median(ratios):.0f} % (median of {len(ratios)})", flush=True)


if __name__ == "__main__":
    main()
