"""Markdown that grows piece by piece stands in the end, and on the way, as if it had been drawn at once."""

import random
from collections.abc import Iterable, Iterator

import pytest
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Offset, Region
from textual.selection import Selection

from app.chat.markdown_rules import reply_parser, settled_lines
from app.chat.widgets import reply_markdown
from app.chat.widgets.reply_blocks import Block, Code, Grid, Item, Quote, Words
from app.chat.widgets.reply_markdown import ReplyMarkdown

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
    """A document that grows, and one that gets its text at once."""

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield ReplyMarkdown(classes="growing")
            yield ReplyMarkdown(classes="whole")

    @property
    def growing(self) -> ReplyMarkdown:
        return self.query_one(".growing", ReplyMarkdown)

    @property
    def whole(self) -> ReplyMarkdown:
        return self.query_one(".whole", ReplyMarkdown)


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


def contents_of(blocks: Iterable[Block]) -> Iterator[Content]:
    """Every text that stands in the blocks."""
    for block in blocks:
        match block:
            case Code():
                yield Content(block.language)
                yield block.content
            case Words():
                yield block.content
            case Grid():
                yield from (cell for row in block.rows for cell in row)
            case Item() | Quote():
                yield from contents_of(block.blocks)


def contents(document: ReplyMarkdown) -> list[Content]:
    return list(contents_of(block for piece in document.pieces for block in piece.blocks))


def plain(document: ReplyMarkdown) -> str:
    """Every text that stands in the document."""
    return "\n".join(content.plain for content in contents(document))


def standing(document: ReplyMarkdown) -> list[object]:
    """What a document shows: its pieces, their texts and styles, and every line as it is drawn."""
    styles = [(span.start, span.end, str(span.style)) for content in contents(document) for span in content.spans]
    lines = [document.render_line(y) for y in range(document.get_content_height(document.size, document.size, 60))]
    return [[piece.key for piece in document.pieces], plain(document), styles, lines]


@pytest.mark.parametrize("seed", range(4))
async def test_random_documents_cut_at_random_points(seed: int) -> None:
    rng = random.Random(seed)
    app = Stage()
    async with app.run_test(size=(80, 24)):
        for _ in range(DOCUMENTS // 4):
            text = a_document(rng)
            app.growing.update("")
            app.whole.update(text)
            for piece in pieces(rng, text):
                app.growing.extend(piece)
            assert app.growing.source == text
            assert standing(app.growing) == standing(app.whole), text
            shown = plain(app.growing)
            assert [shown.count(word) for word in COUNTED] == [text.count(word) for word in COUNTED], text


async def test_each_step_stands_as_if_drawn_at_once() -> None:
    text = (
        "Intro\n- a\n- b\n  1. c\n\n```py\nx = [0]\n```\n| a | b |\n|---|---|\n| 1 | [/] |\n\nEnd\n===\n# last\n* * *\n"
    )
    app = Stage()
    async with app.run_test(size=(80, 24)):
        for size in range(1, len(text) + 1):
            app.growing.extend(text[size - 1])
            app.whole.update(text[:size])
            assert standing(app.growing) == standing(app.whole), text[:size]


async def test_no_word_is_lost() -> None:
    text = (
        "one <b>two</b> <br> three\n\n<div>\nfour\n</div>\n\n[five]: http://six.org\n\n"
        "- seven\n- ***\n- eight\n\n> nine\n> ---\n> ten\n\n"
        "    eleven\n\n| twelve | thirteen |\n|---|---|\n| a | [/] |\n\n"
        "line fourteen\nline fifteen\n"
    )
    app = Stage()
    async with app.run_test(size=(80, 24)):
        app.growing.extend(text)
        shown = plain(app.growing)
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
        app.growing.extend(text)
        shown = plain(app.growing)
    assert [part for part in expected if part not in shown] == []


def pieces_drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The text of each piece that is drawn from now on."""
    drawn: list[str] = []
    draw = reply_markdown.draw

    def noting_draw(blocks, *arguments):
        drawn.append("\n".join(content.plain for content in contents_of(blocks)))
        draw(blocks, *arguments)

    monkeypatch.setattr(reply_markdown, "draw", noting_draw)
    return drawn


async def test_what_is_settled_is_never_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Stage()
    async with app.run_test(size=(80, 24)) as pilot:
        app.growing.extend("# Head\n\nfirst paragraph\n\n- a\n- b\n\n")
        await pilot.pause()
        drawn = pieces_drawn(monkeypatch)
        for piece in ("- c", " more\n", "- d\n\nlast", " words"):
            app.growing.extend(piece)
        assert set(drawn) == {"c", "c more", "d", "last", "last words", ""}
        assert plain(app.growing).endswith("last words")


@pytest.mark.parametrize("opening", ["```python\n", "```\n", "- first\n"])
async def test_a_line_more_costs_no_more_in_a_long_block(opening: str, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "- item {}\n" if opening.startswith("-") else "value_{} = 'text'\n"
    app = Stage()
    async with app.run_test(size=(80, 24)) as pilot:
        app.growing.extend(opening)
        await pilot.pause()
        drawn = pieces_drawn(monkeypatch)
        costs: list[int] = []
        for number in range(300):
            drawn.clear()
            app.growing.extend(line.format(number))
            costs.append(sum(map(len, drawn)))
        assert 0 < max(costs[150:]) <= max(costs[:150]) + 50
        app.growing.extend("```\n" if "`" in opening else "")
        app.growing.finish()
        app.whole.update(app.growing.source)
        assert standing(app.growing) == standing(app.whole)


async def test_what_is_selected_is_copied_as_it_was_written() -> None:
    paragraph = " ".join(f"word{number}" for number in range(30))
    text = f"{paragraph}\n\n- one\n  - two\n\n| a | b |\n|---|---|\n| c | d |\n\n```py\nif x:\n    y()\n```\n"
    app = Stage()
    async with app.run_test(size=(60, 40)) as pilot:
        app.growing.extend(text)
        await pilot.pause()
        everything, _ = app.growing.get_selection(Selection(None, None)) or ("", "")
        assert everything == f"{paragraph}\n\n• one\n  ▪ two\n\na\tb\nc\td\n\npy\nif x:\n    y()"
        table_line = everything.split("\n").index("c\td")
        for start, end, expected in (
            (Offset(4, 0), Offset(9, 0), "0 wor"),
            (Offset(2, 2), Offset(3, 3), "one\n  ▪"),
            (Offset(3, table_line), Offset(3, table_line), "a\tb\nc\td"),
        ):
            selection = Selection(start, end)
            assert app.growing.get_selection(selection) == (expected, "\n")
            app.screen.selections = {app.growing: selection}
            await pilot.pause()
            mark = app.screen.get_component_rich_style("screen--selection").bgcolor
            marked = [
                segment.text
                for y in range(app.growing.size.height)
                for segment in app.growing.render_line(y)
                if segment.style is not None and segment.style.bgcolor == mark
            ]
            assert marked, expected
            assert all(part.strip() in expected or "│" in part or "─" in part for part in marked)


@pytest.mark.parametrize(("last", "num_rules"), [("short", 1), ("a cell of many words " * 4, 2)])
async def test_rows_are_parted_where_a_cell_takes_several_lines(last: str, num_rules: int) -> None:
    app = Stage()
    async with app.run_test(size=(60, 40)) as pilot:
        app.growing.extend(f"| name | what |\n|---|---|\n| one | {last} |\n| two | end |\n")
        await pilot.pause()
        drawn = [
            "".join(segment.text for segment in app.growing.render_line(y)) for y in range(app.growing.size.height)
        ]
        assert sum(line.strip().startswith("├") for line in drawn) == num_rules
        assert sum("two" in line for line in drawn) == 1


async def test_a_table_with_more_columns_than_have_room_stands_as_lists() -> None:
    headers, cells = [f"name{number}" for number in range(12)], [f"value{number}" for number in range(12)]
    app = Stage()
    async with app.run_test(size=(40, 60)) as pilot:
        app.growing.extend(f"|{'|'.join(headers)}|\n|{'---|' * 12}\n|{'|'.join(cells)}|\n|{'|'.join(cells)}|\n")
        await pilot.pause()
        drawn = [
            "".join(segment.text for segment in app.growing.render_line(y)) for y in range(app.growing.size.height)
        ]
        for header, cell in zip(headers, cells, strict=True):
            assert sum(header in line.split() and cell in line.split() for line in drawn) == 2
        assert sum(line.strip().startswith("├") for line in drawn) == 1


async def test_another_theme_and_another_width_draw_anew() -> None:
    app = Stage()
    text = "# Head\n\nSome `code` and\n\n```python\nx = 1\n```\n\n> quoted words\n"
    async with app.run_test(size=(80, 24)) as pilot:
        app.growing.update(text)
        await pilot.pause()
        for theme in ("textual-light", "dracula"):
            app.theme = theme
            await pilot.pause()
            app.whole.update(text)
            assert standing(app.growing) == standing(app.whole)
        await pilot.resize_terminal(30, 24)
        await pilot.pause()
        assert app.growing.render_line(0).cell_length == app.growing.size.width < 31


def test_an_unfinished_line_settles_nothing() -> None:
    parser = reply_parser()
    assert settled_lines(parser, "a\n#") == 0
    assert settled_lines(parser, "a\n\n# b") == 0
    assert settled_lines(parser, "a\n\n# b\n") == 2
    assert settled_lines(parser, "a\n\n# b\n\nc") == 2
    assert settled_lines(parser, "") == 0


def test_a_reply_that_was_just_removed_is_drawn_as_blank() -> None:
    assert [strip.text for strip in ReplyMarkdown("words").render_lines(Region(0, 0, 4, 2))] == ["    ", "    "]
