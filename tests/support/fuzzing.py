"""Damaged models and adapters, one a seed, through all that is read of them: header, tensors, vocabulary, template.

Run as a script it is the process that is watched: python fuzzing.py FOLDER FIRST COUNT SECONDS prints a JSON report.
With a first seed of one's own it looks for new faults: python tests/support/fuzzing.py /tmp/fuzz 100000 99999 600
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import struct
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

import numpy as np
from template_features import CHATS, FEATURES
from tiny_models import Tensor, VocabularyKind, gguf_bytes, write_tiny_model

from models.adapters import read_adapter
from models.chat_encoding import ChatEncoder
from models.chat_template import ChatTemplate, Message, load_chat_templates, template_sources
from models.description import load_description
from models.errors import ModelError
from models.gguf_file import open_model_file
from models.template_process import SandboxLimits, TemplateProcess
from models.template_variables import variables_of
from models.vocabulary import load_vocabulary

KINDS: tuple[VocabularyKind, ...] = ("byte_pair", "sentence_pieces")
CASE_S = 5.0  # a damaged file takes milliseconds
LIMITS = SandboxLimits(time_s=1.0, memory_bytes=512 << 20, max_characters=1 << 20)
TEMPTING = (0, 1, 9, 255, 2**16, 2**20, 2**31, 2**32 - 1, 2**42, 2**63 - 1, 2**63, 2**64 - 1)
TEXTS = ("", "the fox 123\n\n  über 你好 😀<|im_end|>", b"\xff\xfe half \xe2\x82", "\ufdd0 \x00\x1b[2J", "a" * 300)
WORDS = ("", " ", "a", "Ġ", "\u2581", "<0x0A>", "<|im_end|>", "</s>", "a b", "\x00", "\x1b[2J", "\udc80", "é" * 40)
PIECES = (
    *(
        "{{",
        "}}",
        "{%",
        "%}",
        "{#",
        "-",
        "'",
        '"',
        "(",
        ")",
        "[",
        "]",
        "|",
        "~",
        ".",
        ",",
        " if ",
        " else ",
        " for m in ",
    ),
    *("messages", "m.content", "[::-1]", "10**9", "range(99999999)", "__class__", "_x", "loop.previtem", "namespace("),
    *(
        "raise_exception('no')",
        "tojson",
        "{% endfor %}",
        "{% endif %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ),
    *("'a' * 9999999", "{{ 9 ** 9 ** 9 }}", "{% set x = [0] * 99999999 %}", "{% include '/etc/passwd' %}", "\ufdd0"),
    *("{% for a in range(9999) %}", "cycler", "lipsum()", "joiner", "dict(a=1)", "strftime_now('%c')", "\x00", "é"),
)


class TooSlow(BaseException):
    """A case that takes far more than its time."""


class Watch:
    """What this process may not do while it reads damaged models."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.is_on = False
        self.reached: list[str] = []
        sys.addaudithook(self._look)

    def _look(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.is_on:
            return
        if event == "open" and isinstance(arguments[0], str) and not self._may_be_opened(*arguments):
            self.reached.append(f"open {arguments[0]!r}")
        elif event in ("os.system", "socket.connect", "os.remove", "os.rename", "shutil.rmtree", "os.mkdir"):
            self.reached.append(f"{event} {arguments!r}")
        elif event == "subprocess.Popen" and Path(arguments[1][-2]).name != "template_child.py":
            self.reached.append(f"{event} {arguments[1]!r}")

    def _may_be_opened(self, path: str, mode: str | None, flags: int) -> bool:
        is_read = flags & (os.O_WRONLY | os.O_RDWR) == 0 if isinstance(flags, int) else True
        is_ours = path.startswith(self.folder) or path == os.devnull
        is_library = is_read and path.endswith((".py", ".pyc", ".so"))
        return is_ours or is_library


class Case:
    """A damaged model in the folder, the same for the same seed."""

    def __init__(self, folder: Path, process: TemplateProcess) -> None:
        self.path = folder / "damaged.gguf"
        self.process = process
        self.whole: list[bytes] = []
        for kind in KINDS:
            path = write_tiny_model(folder / f"{kind}.gguf", vocabulary=kind)
            self.whole.append(path.read_bytes())
        keys = {"general.type": "adapter", "general.architecture": "llama", "adapter.type": "lora"}
        halves = [
            Tensor(name=f"blk.0.attn_q.weight.lora_{half}", ggml_id=0, shape=shape, data=bytes(4 * 64))
            for half, shape in (("a", (2, 32)), ("b", (32, 2)))
        ]
        self.adapter = gguf_bytes({**keys, "adapter.lora.alpha": 16.0}, halves)

    def run(self, seed: int) -> str:
        """What became of it: read or refused."""
        rng = random.Random(seed)
        try:
            match seed % 5:
                case 0 | 1:
                    self.path.write_bytes(_changed_bytes(self.whole[seed % 5], rng))
                    self._read_file()
                case 2:
                    self._read_metadata(rng)
                case 3:
                    self._render(rng)
                case _:
                    self.path.write_bytes(_changed_bytes(self.adapter, rng))
                    read_adapter(self.path)
        except ModelError as error:
            text = str(error)
            assert text and "\x1b" not in text and len(text) < 2000, f"a message that is none: {text[:300]!r}"
            return "refused"
        return "read"

    def _read_file(self) -> None:
        with open_model_file(self.path) as file:
            dict(file.metadata)
            self._use_words(file.metadata)
            load_description(file)
            _ = file.fingerprint, [file.raw(name).sum() for name in file.tensors]

    def _read_metadata(self, rng: random.Random) -> None:
        with open_model_file(self.path.with_name(f"{rng.choice(KINDS)}.gguf")) as file:
            metadata = dict(file.metadata)
        for _ in range(rng.randint(1, 3)):
            key = rng.choice([key for key in metadata if key.startswith("tokenizer")] + ["tokenizer.ggml.pre"])
            metadata[key] = _changed_value(metadata.get(key, ""), rng)
        self._use_words(metadata)

    def _use_words(self, metadata: Any) -> None:
        vocabulary = load_vocabulary(metadata)
        for text in TEXTS:
            for parse_special in (False, True):
                ids = vocabulary.encode(text, add_special=True, parse_special=parse_special)
                assert all(0 <= token_id < vocabulary.size for token_id in ids)
                vocabulary.decode(ids)
        _ = vocabulary.fingerprint, vocabulary.end_ids, vocabulary.notes
        template = next(iter(load_chat_templates(metadata, vocabulary).values()), None)
        for source in template_sources(metadata).values():
            variables_of(source)
        source = None if template is None else ChatTemplate(template.source, {}, process=self.process)
        ChatEncoder(vocabulary, source).encode([Message(role="user", content="the <|im_end|> fox")])

    def _render(self, rng: random.Random) -> None:
        source = rng.choice(list(FEATURES.values()))
        for _ in range(rng.randint(1, 6)):
            at, gone = rng.randrange(len(source) + 1), rng.choice((0, 0, 1, 2, 20))
            source = source[:at] + "".join(rng.choices(PIECES, k=rng.randint(0, 3))) + source[at + gone :]
        messages = [Message(role=turn["role"], content=turn["content"]) for turn in CHATS["turns"]["messages"]]
        ChatTemplate(source, {"bos_token": "<s>"}, process=self.process).render(messages)


def _changed_bytes(data: bytes, rng: random.Random) -> bytes:
    header = min(data.find(b"output_norm.weight") + 400, len(data)) if b"output_norm.weight" in data else len(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(min(header, len(data)))
        new, gone = rng.choice(
            (
                (bytes([data[at] ^ 1 << rng.randrange(8)]), 1),
                (struct.pack("<Q", rng.choice(TEMPTING)), 8),
                (struct.pack("<I", rng.choice(TEMPTING) & 0xFFFFFFFF), 4),
                (b"", rng.randrange(1, 40)),
                (rng.randbytes(rng.randrange(1, 40)), 0),
                (rng.choice(WORDS).encode("utf-8", "surrogateescape"), rng.randrange(4)),
            )
        )
        data = data[:at] + new + data[at + gone :]
    return data[: rng.randrange(len(data))] if rng.random() < 0.05 else data


def _changed_value(value: Any, rng: random.Random) -> Any:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list) and value and rng.random() < 0.85:
        value = list(value)
        for _ in range(rng.choice((1, 3, 30))):
            at = rng.randrange(len(value))
            other = rng.choice(value)
            value[at] = rng.choice((other, other, rng.choice(WORDS) if isinstance(other, str) else rng.randint(-9, 9)))
        if rng.random() < 0.2:
            del value[rng.randrange(len(value)) :]
        return value
    return rng.choice(
        (
            *WORDS,
            True,
            False,
            -1,
            0,
            3,
            2**31,
            2**64 - 1,
            float("nan"),
            float("inf"),
            [],
            [""],
            [1, 2],
            [[1]],
            "llama",
            "gpt2",
        )
        + ("gemma4", "qwen2", "falcon", "kimi-k2", "{{ messages }}", "{% for m in messages %}{{ m }}{% endfor %}")
    )


def _stop(*_: object) -> NoReturn:
    raise TooSlow


def peak_bytes() -> int:
    """The most memory this process had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    """Runs the seeds until the time is over."""
    folder, first, count, seconds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    process = TemplateProcess(LIMITS)
    case, watch = Case(folder, process), Watch(folder)
    signal.signal(signal.SIGALRM, _stop)
    outcomes: dict[str, int] = {"read": 0, "refused": 0}
    failures: list[str] = []
    for seed in range(5):
        case.run(seed)  # loads what is loaded but once
    base, deadline = peak_bytes(), time.monotonic() + seconds
    for seed in range(first, first + count):
        if time.monotonic() > deadline:
            break
        signal.setitimer(signal.ITIMER_REAL, CASE_S)
        watch.is_on = True
        try:
            outcomes[case.run(seed)] += 1
        except BaseException as error:  # the libraries' panics are no Exceptions
            failures.append(f"seed {seed}: {type(error).__name__}: {''.join(traceback.format_exc()[-1500:])}")
        watch.is_on = False
        signal.setitimer(signal.ITIMER_REAL, 0)
    process.close()
    report = {"failures": failures, "reached": watch.reached, "growth_bytes": peak_bytes() - base, **outcomes}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
