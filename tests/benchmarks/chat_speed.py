"""How fast the chat is beside `generate`, and how soon a key is seen while a prompt is read: run by hand, quietly.

    python tests/benchmarks/chat_speed.py MODEL [--tokens 2000] [--forbid 0,2]

Owns the pseudo terminal (which emulates nothing: whatever the chat draws is taken and thrown away) and the reading of
figures from what was drawn. Both ways get one prompt and one seed; the ends of a reply are forbidden, so that both
write as many tokens.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
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
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
PROMPT = "Explain how a bicycle works, in Markdown with headings, lists, a table and code examples in Python."
COLUMNS, LINES = 100, 32
KEYS = "αβγδεζηθικλμνξοπρστυφχψω"
KEY_INTERVAL_S = 0.11
_STYLES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_RATE = re.compile(r"([0-9.]+) tok(?:ens)?/s")
_USED = re.compile(r"([0-9,]+) of [0-9,]+")


class Screen:
    """A chat in a terminal that nobody looks at."""

    def __init__(self, arguments: Sequence[str], folder: str) -> None:
        self._process, self._master = _started([sys.executable, "-m", "app", "chat", *arguments], folder)
        self._tail = b""

    def type(self, text: str) -> None:
        """Presses keys."""
        os.write(self._master, text.encode())

    def until(self, holds: Callable[[str], bool], what: str, timeout_s: float) -> float:
        """Takes what is drawn until something holds of it (since the last call); returns how long that took."""
        began_s = time.perf_counter()
        self._tail = b""
        while time.perf_counter() - began_s < timeout_s:
            if select.select([self._master], [], [], 0.05)[0]:
                self._tail = (self._tail + os.read(self._master, 65536))[-300_000:]
                if holds(_STYLES.sub("", self._tail.decode("utf-8", "replace"))):
                    return time.perf_counter() - began_s
        raise SystemExit(f"never came: {what}")

    @property
    def screen_cpu_s(self) -> float:
        """Processor time of the chat's first thread, which draws; Linux knows it."""
        number = self._process.pid
        fields = Path(f"/proc/{number}/task/{number}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """Leaves the chat."""
        self._process.send_signal(signal.SIGTERM)
        end_s = time.perf_counter() + 10
        while self._process.poll() is None and time.perf_counter() < end_s:
            if select.select([self._master], [], [], 0.05)[0]:
                try:
                    os.read(self._master, 65536)
                except OSError:
                    break
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


def chat_rate(model: str, flags: Sequence[str], folder: str) -> tuple[float, float, list[tuple[int, float]]]:
    """Tokens a second of the chat over the whole reply, the share of one processor that drawing took meanwhile, and
    the tokens a second that it showed on the way, by tokens used."""
    screen = Screen([model, *flags], folder)
    shown: dict[int, float] = {}
    ended = re.compile(r"([0-9.]+) tok(?:ens)?/s · (?:first token|TTFT)")

    def is_over(text: str) -> bool:
        writing = text.rpartition("writing")[2]
        if (rate := _RATE.search(writing)) and (used := _USED.search(writing)):
            shown[int(used.group(1).replace(",", ""))] = float(rate.group(1))
        return bool(ended.search(text[-20_000:]))

    try:
        screen.until(lambda text: "window" in text, "a loaded model", 300)
        before_s = screen.screen_cpu_s
        screen.type(PROMPT + "\r")
        took_s = screen.until(is_over, "the end of the reply", 600)
        share = (screen.screen_cpu_s - before_s) / took_s
        tail = _STYLES.sub("", screen._tail.decode("utf-8", "replace"))
        return float(ended.findall(tail)[-1]), share, sorted(shown.items())
    finally:
        screen.close()


def key_echoes_ms(model: str, flags: Sequence[str], folder: str, prompt_words: int) -> list[float]:
    """Milliseconds from a key to its letter on the screen, while a long prompt is read."""
    screen = Screen([model, *flags], folder)
    try:
        screen.until(lambda text: "window" in text, "a loaded model", 300)
        pasted = " ".join(f"word{number}" for number in range(prompt_words))
        screen.type(f"\x1b[200~{pasted}\x1b[201~")
        time.sleep(1)
        screen.type("\r")
        screen.until(lambda text: "reading" in text, "the prompt being read", 60)
        echoes: list[float] = []
        for key in KEYS:
            time.sleep(KEY_INTERVAL_S)
            screen.type(key)
            echoes.append(1000 * screen.until(lambda text, key=key: key in text, f"the key {key}", 10))
            if "writing" in screen._tail.decode("utf-8", "replace"):
                break
        return echoes
    finally:
        screen.close()


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--forbid", default="0,2", help="ids that end a reply")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--prompt-words", type=int, default=1800)
    parser.add_argument("--only", choices=("rate", "echo"))
    arguments = parser.parse_args()
    forbidden = [part for number in arguments.forbid.split(",") for part in ("-l", f"{number}-inf")]
    flags = ["-n", str(arguments.tokens), "--seed", "1", *forbidden]
    with tempfile.TemporaryDirectory() as folder:
        if arguments.only != "echo":
            pairs = []
            for _ in range(arguments.repeats):
                plain, num_tokens = generate_rate(arguments.model, flags)
                chat, share, shown = chat_rate(arguments.model, flags, folder)
                pairs.append(chat / plain)
                print(
                    f"generate {plain:.0f} tokens/s ({num_tokens} tokens), chat {chat:.0f} ({100 * chat / plain:.0f} %)"
                )
                print(f"  the screen's thread took {100 * share:.0f} % of one processor")
                steps = [shown[len(shown) * part // 8] for part in range(8)] if len(shown) >= 8 else shown
                print("  shown on the way: " + ", ".join(f"{rate:.0f} at {used}" for used, rate in steps))
            print(f"chat / generate: {100 * median(pairs):.0f} % (median of {len(pairs)})")
        if arguments.only != "rate":
            echoes = key_echoes_ms(arguments.model, ["-n", "1"], folder, arguments.prompt_words)
            print(
                f"key echo while the prompt is read: median {median(echoes):.0f} ms, worst {max(echoes):.0f} ms "
                f"({len(echoes)} keys)"
            )


if __name__ == "__main__":
    main()
