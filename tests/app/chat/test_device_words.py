"""The device panel's figures: what passes tell, and how it reads at a given width."""

from dataclasses import replace

import pytest

from app.chat.device_words import DeviceFigures, device_lines, sparkline
from app.chat.engine_port import MemoryUse, Spent
from app.chat.model_port import Bill
from app.chat.model_words import fit_words
from app.chat.pass_log import PassFigures, PassLog
from app.chat.plain_text import columns_of

MB = 10**6
FULL = DeviceFigures(
    memory=(MemoryUse(device="CPU", weights_bytes=103 * MB, kv_bytes=189 * MB, workspace_bytes=12 * MB),),
    passes=PassFigures(
        ms_a_token=5.0,
        ms_a_pass=10.0,
        tokens_a_pass=2.0,
        acceptance=0.75,
        num_drafted=8,
        token_times_ms=(5.0, 4.0, 15.0),
    ),
    read_bytes_a_pass=240 * MB,
    limit_bytes_per_s=30e9,
)


def test_a_pass_ends_with_the_models_own_token() -> None:
    log = PassLog()
    log.begin()
    log.add("a", num_tokens=1, is_guessed=False, num_drafted=0, at_s=1.0)
    log.add("b", num_tokens=1, is_guessed=True, num_drafted=4, at_s=1.010)
    log.add("c", num_tokens=1, is_guessed=True, num_drafted=0, at_s=1.010)
    log.add("d", num_tokens=1, is_guessed=False, num_drafted=0, at_s=1.012)
    log.add("e", num_tokens=1, is_guessed=False, num_drafted=0, at_s=1.020)
    log.add("", num_tokens=0, is_guessed=False, num_drafted=0, at_s=1.5)
    figures = log.figures
    assert figures.ms_a_token == pytest.approx(5.0)
    assert figures.ms_a_pass == pytest.approx(10.0)
    assert figures.token_times_ms == pytest.approx((4.0, 8.0))
    assert (figures.acceptance, figures.num_drafted) == (0.5, 4)
    assert figures.tokens_a_pass == pytest.approx(5 / 3)
    assert [(piece.text, piece.is_guessed) for piece in log.pieces][:3] == [("a", False), ("b", True), ("c", True)]


def test_the_time_between_two_replies_is_no_pass() -> None:
    log = PassLog()
    log.add("a", num_tokens=1, is_guessed=False, num_drafted=0, at_s=1.0)
    log.begin()
    log.add("b", num_tokens=1, is_guessed=False, num_drafted=0, at_s=100.0)
    assert log.figures == PassFigures()
    assert [piece.text for piece in log.pieces] == ["b"]


def test_what_a_token_takes_on_each_device_leaves_the_prompt_out() -> None:
    log = PassLog()
    for start_ms in (0.0, 5000.0):  # reading a prompt takes long
        log.begin()
        for index in range(3):
            spent = Spent(cpu_ms=start_ms + 4.0 * index, gpu_ms=2.0 * index, transfer_ms=0.5 * index)
            log.add("a", num_tokens=1, is_guessed=False, num_drafted=0, at_s=start_ms + index, spent=spent)
        assert log.figures.spent_a_token == Spent(cpu_ms=4.0, gpu_ms=2.0, transfer_ms=0.5)
    memory = (*FULL.memory, MemoryUse(device="RTX 9", weights_bytes=50 * MB, own_bytes=310 * MB))
    passes = replace(FULL.passes, spent_a_token=log.figures.spent_a_token)
    lines = device_lines(replace(FULL, passes=passes, memory=memory), 80)
    assert lines[1] == "Where   CPU 4.0 · GPU 2.0 · copies 0.5 ms"
    place = lines.index("RTX 9   360.0 MB")
    assert lines[place + 1 : place + 3] == [" weights 50.0 MB", " driver 310.0 MB"]


def test_all_that_is_known_is_said() -> None:
    assert device_lines(FULL, 80) == [
        "Speed   5.0 ms a token · 200.0 tokens/s",
        "Reads   240.0 MB a pass · 24.0 GB/s",
        "Limit   80 % of 30.0 GB/s, as measured",
        "CPU     304.0 MB",
        " weights 103.0 MB",
        " KV     189.0 MB",
        " work   12.0 MB",
        "Draft   75 % accepted · 2.00 tokens a pass",
        "Times   4.0 to 15.0 ms, median 5.0",
        "▃▃█",
    ]
    assert device_lines(FULL, 80, is_plain=True) == device_lines(FULL, 80)[:-1]
    assert all(columns_of(line) <= 20 for line in device_lines(FULL, 20))


def test_a_limit_that_is_none_is_not_called_one() -> None:
    assert (
        device_lines(replace(FULL, limit_bytes_per_s=20e9), 80)[2] == "Limit   above the 20.0 GB/s that were measured"
    )


def test_what_is_not_known_is_not_said() -> None:
    assert device_lines(DeviceFigures(), 80) == ["Speed   measured when a reply is written"]
    assert device_lines(DeviceFigures(draft="off: it does not pay"), 80)[-1] == "Draft   off: it does not pay"


def test_the_picture_shows_the_latest_and_is_as_wide_as_may_be() -> None:
    assert sparkline([9.0, 1.0, 1.0], 2) == "▃▃"
    assert sparkline([2.0] * 9 + [20.0], 10) == "▃" * 9 + "█"


def test_a_fit_says_what_the_card_takes() -> None:
    bill = Bill(needed_bytes=MB, available_bytes=2 * MB, fits=True, context_size=8192)
    assert fit_words(bill) == "fits, 8,192 context"
    assert fit_words(replace(bill, gpu_layers=28)) == "fits, 8,192 context, 28 layers on the GPU"
    assert fit_words(None) == "…"
