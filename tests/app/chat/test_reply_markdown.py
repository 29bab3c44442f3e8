"""Markdown that grows piece by piece stands in the end, and on the way, as if it had been drawn at once."""

import random

import pytest
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Label
from textual.widgets._markdown import MarkdownBlock, MarkdownBullet

from app.chat.markdown_rules import reply_parser, settled_lines
from app.chat.widgets.code_fence import CodeFence
from app.chat.widgets.reply_markdown import ReplyMarkdown
from app.chat.widgets.reply_table import TableGrid

WORDS = [
    *("alpha", "beta", "gamma", "x[0]", "[/]", "[bold]", "[red]text[/red]", "`code`", "**strong**", "*em*", "~~gone~~"),
    *(
        "a_b_c",
        "5*3*2",
        "<b>html</b>",
        "<br/>",
        "https://example.org/a_b",
        "[link](http://x.org/[y])",
        "![image](p.png)",
    ),
    *(
        "日本語",
        "العربية",
        "naïve",
        "👩‍👩‍👧",
        "&amp;",
        "&lt;",
        "\\*",
        "`",
        "``",
        "*",
        "_",
        "$5",
        "{curly}",
        "|",
        "#",
        "1.",
        "-",
    ),
    *(">", "+", "=", "---", "```", "~~~", "[ref]", "[ref]:", "no"),
]
COUNTED = ("alpha", "beta", "gamma", "naïve", "日本語", "hello", "note", "indented")
DOCUMENTS = 200


class Stage(App[None]):
    """A document that grows."""

    def compose(self) -> ComposeResult:
        with VerticalScroll() as stage:
            stage.display = False  # What stands where is tested elsewhere; laying it out takes most of the time.
            yield ReplyMarkdown()


def words(rng: random.Random, most: int = 8) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, most)))


def a_fence(rng: random.Random, indent: str = "") -> str:
    mark = rng.choice(["```", "~~~", "````"])
    info = rng.choice(["", "python", "c++", "nonsense", "json title=x"])
    body = [rng.choice(["def f(x):", "    return x[0]", "", "\tindented", "# [/] [bold]", "- item", "| a | b |", "``"])]
    body += [rng.choice(["x = {'a': [1]}", "", "---", "> no quote", "</div>"]) for _ in range(rng.randint(0, 4))]
    closing = [mark] if rng.random() < 0.85 else []
    return "\n".join(indent + line for line in [mark + info, *body, *closing])


def a_list(rng: random.Random) -> str:
    lines: list[str] = []
    number = rng.randint(1, 9)
    is_ordered = rng.random() < 0.5
    for _ in range(rng.randint(1, 5)):
        bullet = f"{number}." if is_ordered else rng.choice("-*+-")
        lines.append(f"{bullet} {words(rng, 4)}")
        indent = " " * (len(bullet) + 1)
        extra = rng.random()
        if extra < 0.2:
            lines.append(f"{indent}- {words(rng, 3)}")
        elif extra < 0.3:
            lines += ["", indent + words(rng, 3), ""]
        elif extra < 0.4:
            lines += [a_fence(rng, indent)]
        elif extra < 0.5:
            lines.append(f"{indent}---")
        elif extra < 0.6:
            lines.append("")
        number += 1
    return "\n".join(lines)


def a_table(rng: random.Random) -> str:
    columns = rng.randint(1, 4)

    def row() -> str:
        num_cells = columns + (rng.random() < 0.2)
        return "| " + " | ".join(words(rng, 3) for _ in range(num_cells)) + " |"

    return "\n".join([row(), "|" + "---|" * columns, *(row() for _ in range(rng.randint(0, 4)))])


def a_document(rng: random.Random) -> str:
    blocks = [
        rng.choice(
            [
                lambda: words(rng),
                lambda: words(rng) + "\n" + words(rng),
                lambda: "#" * rng.randint(1, 7) + " " + words(rng, 4),
                lambda: words(rng, 3) + "\n" + rng.choice(["===", "---"]),
                lambda: "> " + words(rng) + "\n" + rng.choice(["> ", ""]) + words(rng, 3),
                lambda: "    indented " + words(rng, 3),
                lambda: rng.choice(["---", "***", "<div>\nhello\n</div>", "[ref]: http://x.org", "<!-- note -->"]),
                lambda: a_fence(rng),
                lambda: a_list(rng),
                lambda: a_table(rng),
            ]
        )()
        for _ in range(rng.randint(1, 4))
    ]
    return "".join(block + rng.choice(["\n\n", "\n\n", "\n", "\n\n\n"]) for block in blocks)[: rng.choice([-1, None])]


def pieces(rng: random.Random, text: str) -> list[str]:
    num_cuts = min(len(text) - 1, rng.randint(2, 7))
    cuts = sorted(rng.sample(range(1, len(text)), num_cuts)) if len(text) > 2 else []
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def label_text(label: Label) -> tuple[str, object]:
    """A label's text and colours."""
    content = label.content
    assert isinstance(content, Content)
    return content.plain, content.spans


def parts_of(widget: Widget) -> list[Widget]:
    """The children of a widget that stands, or those that it would have."""
    return list(widget.children) if widget.is_attached else [*widget._pending_children, *widget.compose()]


def standing(widget: Widget) -> list[object]:
    """What a tree of blocks shows: kinds, texts and styles, in order."""
    children = parts_of(widget)
    shown: list[object] = [type(widget).__name__]
    if isinstance(widget, CodeFence):
        shown += [widget.lexer, *[label_text(label) for label in children if isinstance(label, Label)]]
    elif isinstance(widget, TableGrid):
        shown += [widget.cells]
    elif isinstance(widget, MarkdownBullet):
        shown += [widget.symbol]
    elif isinstance(widget, MarkdownBlock):
        shown += [widget._content.plain, [(span.start, span.end, str(span.style)) for span in widget._content.spans]]
    return shown + [standing(child) for child in children]


def drawn_at_once(text: str) -> list[object]:
    """What a document shows that gets its whole text in one piece."""
    document = ReplyMarkdown()
    return [standing(block) for block in document._parse_markdown(reply_parser().parse(text))]


def standing_in(document: ReplyMarkdown) -> list[object]:
    """What a document shows."""
    return [standing(block) for block in document.children]


def plain(document: ReplyMarkdown) -> str:
    """Every text that stands in the document."""
    found: list[str] = []
    for widget in document.walk_children():
        if isinstance(widget, CodeFence):
            found += [str(label.content) for label in widget.query(Label)]
        elif isinstance(widget, TableGrid):
            found.extend(cell for row in widget.cells for cell in row)
        elif isinstance(widget, MarkdownBlock):
            found.append(widget._content.plain)
    return "\n".join(found)


@pytest.mark.parametrize("seed", range(4))
async def test_random_documents_cut_at_random_points(seed: int) -> None:
    rng = random.Random(seed)
    app = Stage()
    async with app.run_test(size=(80, 24)):
        growing = app.query_one(ReplyMarkdown)
        for _ in range(DOCUMENTS // 4):
            text = a_document(rng)
            await growing.update("")
            for piece in pieces(rng, text):
                await growing.extend(piece)
            assert growing.source == text
            assert standing_in(growing) == drawn_at_once(text), text
            shown = plain(growing)
            assert [shown.count(word) for word in COUNTED] == [text.count(word) for word in COUNTED], text


async def test_each_step_stands_as_if_drawn_at_once() -> None:
    text = (
        "Intro\n- a\n- b\n  1. c\n\n```py\nx = [0]\n```\n| a | b |\n|---|---|\n| 1 | [/] |\n\nEnd\n===\n# last\n* * *\n"
    )
    app = Stage()
    async with app.run_test(size=(80, 24)):
        growing = app.query_one(ReplyMarkdown)
        for size in range(1, len(text) + 1):
            await growing.extend(text[size - 1])
            assert standing_in(growing) == drawn_at_once(text[:size]), text[:size]


async def test_no_word_is_lost() -> None:
    text = (
        "one <b>two</b> <br> three\n\n<div>\nfour\n</div>\n\n[five]: http://six.org\n\n"
        "- seven\n- ***\n- eight\n\n> nine\n> ---\n> ten\n\n"
        "    eleven\n\n| twelve | thirteen |\n|---|---|\n| a | [/] |\n\n"
        "line fourteen\nline fifteen\n"
    )
    app = Stage()
    async with app.run_test(size=(80, 24)):
        document = app.query(ReplyMarkdown).first()
        await document.extend(text)
        shown = plain(document)
    expected = ["one <b>two</b> <br> three", "<div>\nfour\n</div>", "[five]: http://six.org", "[/]"]
    expected += ["seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen", "line fourteen\nline fifteen"]
    assert [text for text in expected if text not in shown] == []
    assert shown.index("seven") < shown.index("────") < shown.index("eight")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("| a | b |\n|---|---|\n| 1 | 2 | surplus |\n| `x|y` | z |\n", ["a", "b", "1", "2 | surplus", "`x", "y` | z"]),
        ("> | a |\n> |---|\n> | 1 | 2 |\n", ["a", "1 | 2"]),
        ("> " * 40 + "deep word", ["> " * 40 + "deep word"]),
        ("\n".join("  " * depth + f"- item{depth}" for depth in range(40)), ["- item0", "- item39"]),
    ],
)
async def test_text_that_markdown_leaves_out_is_shown(text: str, expected: list[str]) -> None:
    app = Stage()
    async with app.run_test(size=(80, 24)):
        document = app.query_one(ReplyMarkdown)
        await document.extend(text)
        shown = plain(document)
    assert [part for part in expected if part not in shown] == []


async def test_what_is_settled_is_never_drawn_again() -> None:
    app = Stage()
    async with app.run_test(size=(80, 24)):
        document = app.query(ReplyMarkdown).first()
        await document.extend("# Head\n\nfirst paragraph\n\n- a\n- b\n\n")
        head, paragraph = document.children[:2]
        rows = list(document.children[2].children)
        for piece in ("- c", " more\n", "- d\n\nlast", " words"):
            await document.extend(piece)
        assert list(document.children[:2]) == [head, paragraph]
        assert list(document.children[2].children)[:2] == rows
        assert plain(document).endswith("last words")


def test_an_unfinished_line_settles_nothing() -> None:
    parser = reply_parser()
    assert settled_lines(parser, "a\n#") == 0
    assert settled_lines(parser, "a\n\n# b") == 0
    assert settled_lines(parser, "a\n\n# b\n") == 2
    assert settled_lines(parser, "a\n\n# b\n\nc") == 2
    assert settled_lines(parser, "") == 0
