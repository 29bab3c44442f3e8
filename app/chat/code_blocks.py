"""The code blocks of a reply, as they were written.

Owns finding them. Knows Markdown through the parser that draws replies, so that both see the same blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.chat.markdown_rules import reply_parser

_ENDINGS = {
    "python": "py", "py": "py", "javascript": "js", "js": "js", "typescript": "ts", "ts": "ts", "bash": "sh",
    "sh": "sh", "shell": "sh", "rust": "rs", "go": "go", "c": "c", "cpp": "cpp", "c++": "cpp", "java": "java",
    "html": "html", "css": "css", "json": "json", "yaml": "yaml", "toml": "toml", "sql": "sql", "markdown": "md",
    "ruby": "rb", "kotlin": "kt", "swift": "swift", "csharp": "cs", "xml": "xml",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CodeBlock:
    """One block: what the fence names as its language, and the code."""

    language: str
    code: str

    @property
    def file_name(self) -> str:
        """A name for a file of it."""
        return f"code.{_ENDINGS.get(self.language.lower(), 'txt')}"


def code_blocks(text: str) -> list[CodeBlock]:
    """The blocks in the order in which they stand, those inside lists and quotations too."""
    return [
        CodeBlock(language=(token.info.split() or [""])[0], code=token.content)
        for token in reply_parser().parse(text)
        if token.type in ("fence", "code_block")
    ]
