"""Writes tests/data/templates.json.gz: what Hugging Face's renderer makes of chat templates.

Run it where `transformers` is installed: python scripts/make_template_golden.py FOLDER, with a folder of *.jinja files
(the texts of published templates stay where they are: their renderings are kept as hashes, those of our own small
templates whole).  With --check it lets Tandem render the folder, and compares with what is written.
"""

from __future__ import annotations

import copy
import gzip
import json
import sys
from collections.abc import Callable
from datetime import datetime, tzinfo
from hashlib import sha256
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "tests" / "data" / "templates.json.gz"
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from template_features import CHATS, FEATURES, NOW, TOKENS  # noqa: E402

Render = Callable[[str, dict[str, Any]], str]


def short_hash(text: str) -> str:
    """What is kept of a text."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def hugging_face() -> Render:
    """Renders as `apply_chat_template` does, at a fixed time."""
    from transformers.utils import chat_template_utils

    class Fixed(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Fixed:
            return cls.fromisoformat(NOW)

    chat_template_utils.datetime = Fixed

    def render(source: str, variables: dict[str, Any]) -> str:
        chat = copy.deepcopy(variables)
        messages = chat.pop("messages")
        return chat_template_utils.render_jinja_template([messages], chat_template=source, **TOKENS, **chat)[0][0]

    return render


def tandem() -> Render:
    """Renders as Tandem does."""
    from models.template_sandbox import Renderer, RenderRequest

    renderer = Renderer()

    def render(source: str, variables: dict[str, Any]) -> str:
        whole = {**TOKENS, "tools": None, "documents": None, **copy.deepcopy(variables)}
        return renderer.render(RenderRequest(source=source, variables=whole, now=NOW, max_characters=1 << 24))

    return render


def renderings(source: str, render: Render) -> dict[str, str | None]:
    """Every chat through a template; None where it refuses or fails."""
    found: dict[str, str | None] = {}
    for name, variables in CHATS.items():
        try:
            found[name] = render(source, variables)
        except Exception:  # of any kind: the templates are not ours
            found[name] = None
    return found


def hashes(folder: Path, render: Render) -> dict[str, Any]:
    """By the template's SHA-256: its name, and the hash of each rendering."""
    result: dict[str, Any] = {}
    for path in sorted(folder.glob("*.jinja")):
        source = path.read_bytes().decode().removesuffix("\n")  # which the renderer leaves out as well
        found = renderings(source, render)
        short = {name: None if text is None else short_hash(text) for name, text in found.items()}
        result[sha256(source.encode()).hexdigest()] = {"name": path.stem, "renderings": short}
    return result


def main() -> int:
    """Writes or checks."""
    is_check = sys.argv[1] == "--check"
    folder = Path(sys.argv[-1])
    if is_check:
        written = json.loads(gzip.decompress(TARGET.read_bytes()))["published"]
        found = hashes(folder, tandem())
        wrong = [entry["name"] for key, entry in found.items() if written.get(key) != entry]
        print(f"{len(found)} templates x {len(CHATS)} chats: {len(wrong)} differ {wrong}")
        return 1 if wrong else 0
    render = hugging_face()
    content = {
        "published": hashes(folder, render),
        "own": {name: renderings(source, render) for name, source in FEATURES.items()},
    }
    TARGET.write_bytes(gzip.compress(json.dumps(content, ensure_ascii=False).encode(), 9, mtime=0))
    print(f"{TARGET}: {len(content['published'])} published templates, {TARGET.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
