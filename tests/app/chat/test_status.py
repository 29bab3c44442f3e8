"""The status line and the lines of progress say the most that the width allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat.engine_port import LoadStep
from app.chat.load_lines import LoadLines
from app.chat.plain_text import columns_of
from app.chat.speed import SpeedMeter
from app.chat.status import StatusFigures, status_line

FULL = StatusFigures(
    model="qwen2.5-coder-1.5b",
    activity="writing",
    tokens_per_s=43.21,
    ttft_s=1.24,
    used_tokens=1234,
    context_size=8192,
    reused_tokens=1100,
)


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (
            120,
            "qwen2.5-coder-1.5b · writing · 43.2 tokens/s · first token 1.2 s · "
            "context 1,234 of 8,192 (15 %) · 1,100 reused",
        ),
        (90, "qwen2.5-coder-1.5b · writing · 43.2 tok/s · TTFT 1.2 s · ctx 1,234 of 8,192 · 1,100 reused"),
        (78, "qwen2.5-coder… · writing · 43.2 t/s · TTFT 1.2 s · ctx 15 % · 1,100 reused"),
        (60, "qwen2.5-coder… · writing · 43.2 t/s · TTFT 1.2 s · ctx 15 %"),
        (48, "qwen2.5-coder… · writing · 43.2 t/s · ctx 15 %"),
        (38, "qwen2.5-coder… · writing · 43.2 t/s"),
        (20, "writing"),
        (4, "wri…"),
    ],
)
def test_what_matters_most_stays_longest(width: int, expected: str) -> None:
    assert status_line(FULL, width) == expected


def test_what_is_not_known_is_not_said() -> None:
    assert status_line(StatusFigures(), 80) == ""
    assert status_line(StatusFigures(model="a\x1b[1m\nb", ttft_s=0.25), 80) == "a␛[1m b · first token 250 ms"


@given(
    st.builds(
        StatusFigures,
        model=st.text(),
        activity=st.sampled_from(["", "reading 12 %"]),
        tokens_per_s=st.none() | st.floats(0, 1e6),
        used_tokens=st.none() | st.integers(0, 10**7),
        context_size=st.none() | st.integers(1, 10**7),
        reused_tokens=st.none() | st.integers(0, 10**7),
    ),
    st.integers(1, 200),
)
def test_it_never_takes_more_than_the_width(figures: StatusFigures, width: int) -> None:
    line = status_line(figures, width)
    assert columns_of(line) <= width
    assert "\n" not in line


def test_progress_is_a_line_a_step() -> None:
    lines = LoadLines()
    lines.add(LoadStep(title="Downloading x", done=2 * 10**6, total=98 * 10**6, unit="bytes"))
    assert lines.lines(60) == ["• Downloading x  ░░░░░░░░░░░░░░░░░░░░ 2.0 MB of 98.0 MB"]
    lines.add(LoadStep(title="Downloading x", done=49 * 10**6, total=98 * 10**6, unit="bytes"))
    assert lines.lines(60) == ["• Downloading x  ██████████░░░░░░░░░░ 49.0 MB of 98.0 MB"]
    assert lines.lines(30) == ["• Downloading x 50 %"]
    lines.add(LoadStep(title="Reading"))
    lines.add(LoadStep(title="Compiling kernels", done=3, total=12))
    assert lines.lines(60) == [
        "✓ Downloading x 98.0 MB",
        "✓ Reading",
        "• Compiling kernels  █████░░░░░░░░░░░░░░░ 3 of 12",
    ]
    assert [len(line) for line in lines.lines(10)] == [10, 9, 10]


def test_a_download_of_unknown_size_counts() -> None:
    lines = LoadLines()
    lines.add(LoadStep(title="Downloading [x]", done=512, unit="bytes"))
    assert lines.lines(40) == ["• Downloading [x] 512 B"]


def test_speed_is_that_of_the_last_moments() -> None:
    meter = SpeedMeter()
    assert meter.tokens_per_s is None
    meter.add(1, 10.0)
    assert meter.tokens_per_s is None
    for place in range(1, 101):
        meter.add(1, 10.0 + place * 0.1)
    assert meter.tokens_per_s == pytest.approx(10.0)
    for place in range(1, 201):
        meter.add(1, 20.0 + place * 0.02)
    assert meter.tokens_per_s == pytest.approx(50.0)
    assert meter.num_tokens == 301


def test_a_pause_is_no_part_of_the_speed() -> None:
    meter = SpeedMeter()
    meter.add(1, 0.0)
    meter.add(1, 0.1)
    meter.pause()
    meter.add(1, 60.0)
    assert meter.tokens_per_s is None
    meter.add(1, 60.1)
    assert meter.tokens_per_s == pytest.approx(10) and meter.num_tokens == 4


def test_tokens_that_come_all_at_once_make_no_speed_of_their_own() -> None:
    meter = SpeedMeter()
    for place in range(5):
        meter.add(1, 10.0 + place * 1e-5)
    assert meter.tokens_per_s is None
    for step in range(1, 4):  # five tokens every two and a half seconds, longer than the span that is looked at
        for place in range(5):
            meter.add(1, 10.0 + step * 2.5 + place * 1e-5)
            assert meter.tokens_per_s is not None
            assert meter.tokens_per_s <= 2.0 + 1e-6
    assert meter.tokens_per_s == pytest.approx(2.0)
    assert meter.num_tokens == 20
