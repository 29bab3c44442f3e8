"""The engine with tiny models on the real CPU device: what is promised about caches, batches, threads and memory."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_models import write_tiny_model

from models.errors import FileError
from models.gguf_file import open_model_file
from runtime.engine import Engine
from runtime.errors import CapacityError, DeviceError, OptionError
from runtime.machine import read_machine
from runtime.options import EngineOptions, GenerateOptions
from runtime.placement import place
from runtime.sampling import SamplingOptions

SEEDED = GenerateOptions(sampling=SamplingOptions(seed=4, temperature=1.5), max_tokens=12, ignore_end=True, logprobs=3)
ROOT = Path(__file__).resolve().parents[2]
PROMPT = [5 + index * 7 % 300 for index in range(150)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(
        tmp_path_factory.mktemp("models") / "tiny model ü.gguf", architecture="gemma3", format="Q4_0"
    )


@pytest.fixture(scope="module")
def engine(path: Path) -> Iterator[Engine]:
    with Engine.load(path, EngineOptions(max_sequences=4, batch_size=64, threads=2)) as engine:
        yield engine


@pytest.fixture(scope="module")
def cold_answer(path: Path) -> Iterator[Callable[[list[int]], object]]:
    """What a prompt gets alone, without a cache, on one thread."""
    with Engine.load(path, EngineOptions(threads=1)) as engine:

        def answer(prompt: list[int]) -> object:
            return essence(engine, prompt, replace(SEEDED, reuse_prefix=False))

        yield answer


def essence(engine: Engine, prompt: list[int], options: GenerateOptions = SEEDED) -> object:
    """What may not depend on anything but prompt and options: ids, and logprobs to the last bit."""
    result = engine.generate(prompt, options).result
    return result.ids, result.logprobs


@pytest.mark.parametrize(
    ("prompt", "least_reused"),
    [
        (PROMPT, 149),
        (PROMPT[:90], 89),
        (PROMPT[:64], 63),
        ([*PROMPT, 9, 10, 11], 150),
        ([*PROMPT[:70], 300, 301], 70),
    ],
)
def test_a_reused_prefix_gives_bit_for_bit_what_a_cold_run_gives(
    engine: Engine, cold_answer: Callable[[list[int]], object], prompt: list[int], least_reused: int
) -> None:
    engine.generate(PROMPT, GenerateOptions(max_tokens=1)).wait()
    assert essence(engine, prompt) == cold_answer(prompt)
    again = engine.generate(prompt, SEEDED).result
    assert again.timings.reused_tokens >= least_reused


def test_a_crowd_gives_bit_for_bit_what_each_gets_alone(
    engine: Engine, cold_answer: Callable[[list[int]], object]
) -> None:
    prompts = [PROMPT[start : start + 10 + 30 * (start % 3)] for start in range(9)]
    generations = [engine.generate(prompt, SEEDED) for prompt in prompts]
    for prompt, generation in zip(prompts, generations, strict=True):
        assert (generation.result.ids, generation.result.logprobs) == cold_answer(prompt)


def test_logprobs_of_a_prompt_agree_with_those_of_its_answer(engine: Engine) -> None:
    greedy = replace(SEEDED, sampling=SamplingOptions(temperature=0))
    result = engine.generate(PROMPT, greedy).result
    whole = engine.generate([*PROMPT, *result.ids], replace(greedy, max_tokens=0, prompt_logprobs=3)).result
    assert len(whole.prompt_logprobs) == len(PROMPT) + 12
    assert whole.prompt_logprobs[len(PROMPT) - 1 : -1] == result.logprobs
    assert [row[0][0] for row in result.logprobs] == list(result.ids)


def test_cancelling_after_a_chunk_computes_no_other(engine: Engine, cold_answer: Callable[[list[int]], object]) -> None:
    prompt = [*PROMPT, *PROMPT[::-1]]
    done: list[int] = []
    has_begun = threading.Event()

    def stop(num_done: int, total: int) -> None:
        done.append(num_done)
        has_begun.wait(30)
        generation.cancel()

    generation = engine.generate(prompt, replace(SEEDED, reuse_prefix=False, on_prefill=stop))
    has_begun.set()
    assert generation.result.finish_reason == "cancelled"
    assert done == [64]
    assert essence(engine, prompt) == cold_answer(prompt)


def test_cancelling_at_any_moment_leaves_the_next_answer_right(
    engine: Engine, cold_answer: Callable[[list[int]], object]
) -> None:
    for prompt in (PROMPT, PROMPT[20:]):
        expected = cold_answer(prompt)
        for num_chunks in range(6):
            generation = engine.generate(prompt, replace(SEEDED, max_tokens=None, reuse_prefix=False))
            for _ in zip(range(num_chunks), generation, strict=False):
                pass
            generation.cancel()
            assert essence(engine, prompt) == expected
            assert generation.is_done


def test_the_bill_before_loading_is_what_is_reserved(path: Path) -> None:
    for options in (
        EngineOptions(),
        EngineOptions(context_size=200, max_sequences=3, activations="exact", batch_size=8),
    ):
        with open_model_file(path) as file:
            placement = place(file, options, read_machine())
        with Engine.load(path, options) as engine:
            assert engine.memory == placement.bill.memory
            assert engine.context_size == placement.bill.context_size


def test_nothing_grows_while_it_answers(engine: Engine) -> None:
    long_answer = replace(SEEDED, max_tokens=None, logprobs=0)
    engine.generate([1, 2, 3], long_answer).wait()
    tracemalloc.start()
    try:
        engine.generate([1, 2, 3], long_answer).wait()
        gc.collect()  # what waits to be collected comes and goes
        after_one, _ = tracemalloc.get_traced_memory()
        for seed in range(3):
            sampling = replace(SEEDED.sampling, seed=seed)
            engine.generate([1, 2, 3], replace(long_answer, sampling=sampling)).wait()
        gc.collect()
        after_four, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after_four - after_one < 100_000  # what the prefix cache keeps of ids, at most
    assert peak - after_one < 500_000


def test_the_context_is_what_was_trained_unless_asked_otherwise(path: Path) -> None:
    with Engine.load(path) as engine:
        assert engine.context_size == engine.description.trained_context_size == 512
        assert not any("context window" in note for note in engine.notes)
    with Engine.load(path, EngineOptions(context_size=1000)) as engine:
        assert engine.context_size == 1000
        assert any("1000" in note and "512" in note for note in engine.notes)


def test_what_does_not_fit_is_refused_before_it_is_loaded(path: Path) -> None:
    small = replace(read_machine(), memory_available_bytes=1_000_000)
    with open_model_file(path) as file, pytest.raises(CapacityError, match="1.0 MB|0.9 MB|900.0 kB") as caught:
        place(file, EngineOptions(), small)
    assert caught.value.needed_bytes > caught.value.available_bytes == 900_000


def test_an_absurd_number_of_threads_is_cut_with_a_note(path: Path) -> None:
    with Engine.load(path, EngineOptions(threads=60_000)) as engine:
        assert engine.description.threads == read_machine().allowed_cpus
        assert any("60000" in note for note in engine.notes)


def test_loading_tells_its_progress_and_can_be_ended(path: Path) -> None:
    stages: list[tuple[str, int, int]] = []
    Engine.load(path, progress=lambda *step: stages.append(step)).close()
    assert stages
    assert all(0 <= done <= total for _, done, total in stages)
    assert any(done == total > 0 for _, done, total in stages)

    class Enough(Exception):
        pass

    def stop(stage: str, done: int, total: int) -> None:
        raise Enough

    with pytest.raises(Enough):
        Engine.load(path, progress=stop)


def test_a_program_may_end_in_the_middle_of_an_answer(path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from runtime import Engine; "
        f"engine = Engine.load({str(path)!r}); print(len(next(iter(engine.generate([1, 2, 3]))).token_ids))"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (child.returncode, child.stdout, child.stderr) == (0, "1\n", "")


def test_what_cannot_be_loaded_is_said(path: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError):
        Engine.load(tmp_path / "nothing.gguf")
    odd_isa = "neon" if read_machine().isa != "neon" else "avx2"
    with pytest.raises(DeviceError, match=odd_isa):
        Engine.load(path, EngineOptions(isa=odd_isa))
    with pytest.raises(OptionError, match="isa"):
        EngineOptions(isa="sparc")


def test_the_description_says_what_was_loaded(engine: Engine, path: Path) -> None:
    description = engine.description
    assert description.name == "Tiny gemma3"
    assert description.architecture == "gemma3"
    assert "Q4_0" in description.formats
    assert description.path == path
    assert description.num_parameters > 100_000
