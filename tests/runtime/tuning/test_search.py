"""Which settings tuning tries and keeps, against machines whose speed is a formula."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.benchmark.statistics import spread_of
from runtime.tuning.samples import Stage, TuneSample, TuneSetting
from runtime.tuning.search import NOISE_SHARE, ROUNDING_SHARE, Search, TuneSpace, thread_counts

START = TuneSetting(gpu_layers=0, threads=4, batch_size=512, cache_type_k="f16", cache_type_v="f16")
SPACE = TuneSpace(
    threads=(1, 2, 3, 4), cache_types=(("f16", "f16"), ("q8_0", "q8_0")), batch_sizes=(128, 256, 512, 1024)
)


class Machine:
    """Measures by a formula: tokens/s of decode and of the prompt for a setting; None: it does not fit."""

    def __init__(self, speed: Callable[[TuneSetting], tuple[float, float] | None]) -> None:
        self.asked: list[TuneSetting] = []
        self._speed = speed

    def __call__(self, stage: Stage, setting: TuneSetting) -> TuneSample | None:
        self.asked.append(setting)
        rates = self._speed(setting)
        if rates is None:
            return None
        return TuneSample(stage=stage, setting=setting, decode=spread_of([rates[0]]), prompt=spread_of([rates[1]]))


def searched(machine: Machine, space: TuneSpace = SPACE, start: TuneSetting = START) -> Search:
    search = Search(space, start, machine)
    search.run()
    return search


def test_each_stage_keeps_the_best_of_the_one_before() -> None:
    def speed(setting: TuneSetting) -> tuple[float, float]:
        decode = 100 - 10 * abs(setting.threads - 2) + (20 if setting.cache_type_k == "q8_0" else 0)
        return decode, 1000 - 500 * (setting.batch_size != 256)

    machine = Machine(speed)
    search = searched(machine)
    assert search.best is not None
    best = TuneSetting(gpu_layers=0, threads=2, batch_size=256, cache_type_k="q8_0", cache_type_v="q8_0")
    assert search.best.setting == best
    assert [stage for stage, _ in search.curves] == ["threads", "cache", "batch"]
    curves = dict(search.curves)
    assert [sample.setting.threads for sample in curves["threads"]] == [1, 2, 3, 4]
    assert {sample.setting.threads for sample in curves["cache"]} == {2}
    assert [sample.setting.batch_size for sample in curves["batch"]] == [128, 256, 512, 1024]
    again = [setting for setting in set(machine.asked) if machine.asked.count(setting) > 1]
    assert START in again and best not in again, "only what is given up is measured again"


def test_what_gains_less_than_noise_changes_nothing() -> None:
    search = searched(Machine(lambda setting: (100 * (1 + NOISE_SHARE / 2 * (setting != START)), 1000)))
    assert search.best is not None and search.best.setting == START


def test_keys_in_fewer_bits_must_gain_more_than_that() -> None:
    for gain, kept in ((1 + NOISE_SHARE * 2, "f16"), (1 + ROUNDING_SHARE * 1.5, "q8_0")):
        search = searched(
            Machine(lambda setting, gain=gain: (100 * (gain if setting.cache_type_k == "q8_0" else 1), 1e9))
        )
        assert search.best is not None and search.best.setting.cache_type_k == kept


def test_a_machine_that_was_busy_for_a_while_does_not_mislead() -> None:
    asked = 0

    def speed(setting: TuneSetting) -> tuple[float, float]:
        nonlocal asked
        asked += 1
        return (50 if asked == 1 else 100), 1000  # something else ran during the first measurement

    search = searched(Machine(speed))
    assert search.best is not None and search.best.setting == START
    assert search.best.decode.median == 100


def test_settings_that_do_not_fit_are_passed_over() -> None:
    search = searched(Machine(lambda setting: None if setting.threads > 2 else (setting.threads, 100)))
    assert search.best is not None and search.best.setting.threads == 2
    assert [sample.setting.threads for sample in dict(search.curves)["threads"]] == [1, 2]
    nothing = searched(Machine(lambda setting: None))
    assert nothing.best is None and nothing.curves == ()


def test_what_is_fixed_is_not_varied_and_one_setting_is_measured_all_the_same() -> None:
    machine = Machine(lambda setting: (1, 1))
    search = searched(machine, TuneSpace())
    assert machine.asked == [START] and search.best is not None


@given(st.integers(1, 80), st.data())
def test_the_knee_is_found_among_all_numbers_of_layers(most: int, data: st.DataObject) -> None:
    peak = data.draw(st.integers(0, most))
    slopes = st.floats(0.05, 1)
    up, down = data.draw(slopes), data.draw(slopes)

    def speed(setting: TuneSetting) -> tuple[float, float]:
        distance = setting.gpu_layers - peak
        return 1000 * 2 ** -(down * distance if distance > 0 else -up * distance), 1e9

    machine = Machine(speed)
    search = searched(machine, TuneSpace(most_gpu_layers=most), replace(START, gpu_layers=most))
    assert search.best is not None
    assert search.best.answer_tokens_per_s * (1 + NOISE_SHARE) ** 2 >= 1000 * 0.99
    assert len(set(machine.asked)) <= 6 + 2 * most.bit_length()


def test_experts_are_moved_where_all_layers_are() -> None:
    def speed(setting: TuneSetting) -> tuple[float, float] | None:
        if setting.cpu_experts + 2 * setting.gpu_layers < 20:  # as if few layers were slow
            return 10 + setting.gpu_layers, 1e9
        return 100 + 4 * setting.cpu_experts, 1e9

    space = TuneSpace(most_gpu_layers=10, cpu_experts=(4, 6, 8, 10))
    search = searched(Machine(speed), space, replace(START, gpu_layers=10, cpu_experts=4))
    assert search.best is not None
    assert (search.best.setting.gpu_layers, search.best.setting.cpu_experts) == (10, 10)
    curves = dict(search.curves)
    assert [sample.setting.cpu_experts for sample in curves["experts"]] == [4, 6, 8, 10]
    assert {sample.setting.cpu_experts for sample in curves["layers"]} == {4}
    alone = searched(Machine(lambda setting: (100 - setting.gpu_layers, 1e9)), space, replace(START, cpu_experts=4))
    assert "experts" not in dict(alone.curves), "without layers on a card there is nothing to move"


def test_an_interrupt_leaves_what_was_measured() -> None:
    def speed(setting: TuneSetting) -> tuple[float, float]:
        if setting.threads == 3:
            raise KeyboardInterrupt
        return 10 + setting.threads, 100

    search = Search(SPACE, START, Machine(speed))
    with pytest.raises(KeyboardInterrupt):
        search.run()
    assert search.best is not None and search.best.setting.threads == 4
    assert [sample.setting.threads for sample in dict(search.curves)["threads"]] == [1, 2, 4]


def test_an_interrupt_while_the_best_is_measured_again_keeps_what_beat_it() -> None:
    asked: list[TuneSetting] = []

    def speed(setting: TuneSetting) -> tuple[float, float]:
        if setting in asked:
            raise KeyboardInterrupt
        asked.append(setting)
        return 10.0 - setting.threads, 100

    search = Search(SPACE, START, Machine(speed))
    with pytest.raises(KeyboardInterrupt):
        search.run()
    assert search.best is not None and search.best.setting.threads == 1


@pytest.mark.parametrize(
    ("default", "most", "counts"),
    [
        (1, 1, (1,)),
        (2, 2, (1, 2)),
        (4, 8, (2, 3, 4, 5, 8)),
        (8, 16, (2, 4, 6, 7, 8, 9, 16)),
        (6, 20, (2, 3, 4, 5, 6, 7, 8, 16, 20)),
    ],
)
def test_numbers_of_threads_that_are_tried(default: int, most: int, counts: tuple[int, ...]) -> None:
    assert thread_counts(default, most) == counts
