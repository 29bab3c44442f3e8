"""What is measured: kinds of tests, and the grid of loads and tests that a plan stands for.

Owns the names and the order.  Does not know how a test is run.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

from runtime.adapters import AdapterChoice
from runtime.benchmark.prompt_sets import PromptSet
from runtime.devices.binding import Activations, CacheType
from runtime.options import (
    DEFAULT_KERNEL_FOLDER,
    DEFAULT_VRAM_MARGIN_BYTES,
    MAX_CONTEXT_SIZE,
    MAX_SEQUENCES,
    DeviceChoice,
    EngineOptions,
)
from runtime.sampling_options import SamplingOptions
from runtime.speculation.options import SpeculationOptions
from runtime.validation import check_integer

TestKind = Literal["prefill", "decode", "verify", "parallel", "generate", "guess"]

MAX_REPEATS = 10_000
MAX_ANSWER_TOKENS = 1_000_000
_FEW_TOKENS = 64  # of verify and parallel tests when no decode test says how many


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One test.

    prefill: prompt_tokens in chunks.  decode: output_tokens one by one.  verify: output_tokens, `width` in each pass,
    logits of all.  parallel: output_tokens of `width` sequences, all in one pass.  generate: a prompt and its answer
    through the engine, with sampling.  guess: every prompt of a set, answered with output_tokens at most at a
    temperature, with the guesses of `draft` and without.  Before each, `depth` tokens stand in the cache.
    """

    test: TestKind
    prompt_tokens: int = 0
    output_tokens: int = 0
    width: int = 1
    depth: int = 0
    draft: str = ""
    prompt_set: str = ""
    temperature: float = 0.0

    @property
    def name(self) -> str:
        """As it stands in tables, without the depth."""
        match self.test:
            case "prefill":
                return f"prefill {self.prompt_tokens}"
            case "decode":
                return f"decode {self.output_tokens}"
            case "verify" | "parallel":
                return f"{self.test} {self.width}"
            case "generate":
                return f"generate {self.prompt_tokens}+{self.output_tokens}"
            case "guess":
                return f"{self.prompt_set} x {self.output_tokens}, temp {self.temperature:g}, {self.draft}"

    @property
    def label(self) -> str:
        """With the depth."""
        return f"{self.name} @ {self.depth}" if self.depth else self.name

    @property
    def num_passes(self) -> int:
        """Runs of the device that a repeat of a verify test times."""
        return max(1, self.output_tokens // self.width)

    @property
    def num_positions(self) -> int:
        """Positions of a sequence that it needs."""
        tokens = self.num_passes * self.width if self.test == "verify" else self.output_tokens
        return self.depth + self.prompt_tokens + tokens


@dataclass(frozen=True, kw_only=True)
class GuessingPlan:
    """What guessing is measured with.  Refuses values that make no sense with OptionError.

    draft: what guesses, in words; options: how.  temperatures: all sets are answered at each.
    """

    draft: str
    options: SpeculationOptions
    sets: tuple[PromptSet, ...]
    temperatures: tuple[float, ...] = (0.0,)
    answer_tokens: int = 128

    def __post_init__(self) -> None:
        flag = "--answer-tokens"
        check_integer("a number of tokens", self.answer_tokens, low=2, high=MAX_ANSWER_TOKENS, flag=flag)
        for temperature in self.temperatures:
            SamplingOptions(temperature=temperature)  # refuses what is none
        assert self.sets and all(one.prompts for one in self.sets) and self.temperatures


@dataclass(frozen=True, kw_only=True)
class BenchPlan:
    """A grid.  Refuses values that make no sense with OptionError.

    prompts, outputs: tokens of prefill and decode tests, 0: none.  threads: None stands for the default.  verify:
    tokens a pass; parallel: sequences.  has_generate: whether a test through the engine is made, with the first prompt
    and output.  most_gpu_layers, least_cpu_experts: see EngineOptions.  guessing: what guesses are measured with, if
    they are.  adapters:
    LoRA adapters of every load.
    """

    prompts: tuple[int, ...] = (512,)
    outputs: tuple[int, ...] = (128,)
    depths: tuple[int, ...] = (0,)
    repeats: int = 5
    threads: tuple[int | None, ...] = (None,)
    batch_sizes: tuple[int, ...] = (512,)
    cache_types_k: tuple[CacheType, ...] = ("f16",)
    cache_types_v: tuple[CacheType, ...] = ("f16",)
    activations: tuple[Activations, ...] = ("balanced",)
    gpu_layers: tuple[int | Literal["auto", "all"], ...] = ("auto",)
    most_gpu_layers: int | None = None
    cpu_experts: tuple[int | Literal["auto", "all"], ...] = ("auto",)
    least_cpu_experts: int = 0
    vram_margin_bytes: int = DEFAULT_VRAM_MARGIN_BYTES
    device: DeviceChoice = "auto"
    isa: str = "auto"
    verify: tuple[int, ...] = ()
    parallel: tuple[int, ...] = ()
    has_generate: bool = True
    guessing: GuessingPlan | None = None
    kernel_folder: Path = DEFAULT_KERNEL_FOLDER
    adapters: tuple[AdapterChoice, ...] = ()

    def __post_init__(self) -> None:
        named = {"--n-prompt": self.prompts, "--n-gen": self.outputs, "--n-depth": self.depths}
        for flag, numbers in named.items():
            for number in numbers:
                check_integer("a number of tokens", number, low=0, high=MAX_CONTEXT_SIZE, flag=flag)
        assert self.batch_sizes, "a grid has at least one of everything"
        for width in self.verify:
            check_integer("a number of tokens a pass", width, low=2, high=min(self.batch_sizes), flag="--verify")
        for width in self.parallel:
            check_integer("a number of sequences", width, low=2, high=MAX_SEQUENCES, flag="--parallel")
        check_integer("repeats", self.repeats, low=1, high=MAX_REPEATS, flag="--repetitions")
        self.loads()

    def workloads(self) -> tuple[Workload, ...]:
        """The tests of each load, those of lower depth first."""
        tests: list[Workload] = []
        few = max(self.outputs, default=0) or _FEW_TOKENS
        for depth in sorted(set(self.depths)):
            tests += [Workload(test="prefill", prompt_tokens=number, depth=depth) for number in self.prompts if number]
            tests += [Workload(test="decode", output_tokens=number, depth=depth) for number in self.outputs if number]
            tests += [
                Workload(test="verify", output_tokens=max(few, width), width=width, depth=depth)
                for width in self.verify
            ]
            tests += [Workload(test="parallel", output_tokens=few, width=width, depth=depth) for width in self.parallel]
        if self.has_generate and any(self.prompts) and max(self.outputs, default=0) > 1:
            prompt = next(number for number in self.prompts if number)
            output = next(number for number in self.outputs if number > 1)
            tests.append(Workload(test="generate", prompt_tokens=prompt, output_tokens=output))
        return tuple(tests) + self._guessing_workloads()

    def _guessing_workloads(self) -> tuple[Workload, ...]:
        plan = self.guessing
        if plan is None:
            return ()
        return tuple(
            Workload(
                test="guess",
                output_tokens=plan.answer_tokens,
                draft=plan.draft,
                prompt_set=prompts.name,
                temperature=temperature,
            )
            for temperature in plan.temperatures
            for prompts in plan.sets
        )

    def loads(self) -> tuple[EngineOptions, ...]:
        """The ways in which each model is loaded; room for every test is in each."""
        workloads = self.workloads()
        most_sequences = max([1, *self.parallel])
        most_outputs = max([1, most_sequences, *self.verify])
        on_device = [workload for workload in workloads if workload.test != "guess"]
        context_size = max((workload.num_positions for workload in on_device), default=1)
        grid = product(
            self.gpu_layers,
            self.cpu_experts,
            self.activations,
            self.cache_types_k,
            self.cache_types_v,
            self.batch_sizes,
            self.threads,
        )
        return tuple(
            EngineOptions(
                context_size=context_size,
                threads=threads,
                batch_size=batch_size,
                cache_type_k=type_k,
                cache_type_v=type_v,
                activations=activations,
                isa=self.isa,
                device=self.device,
                gpu_layers=gpu_layers,
                most_gpu_layers=self.most_gpu_layers,
                cpu_experts=cpu_experts,
                least_cpu_experts=self.least_cpu_experts,
                vram_margin_bytes=self.vram_margin_bytes,
                kernel_folder=self.kernel_folder,
                adapters=self.adapters,
                max_sequences=most_sequences,
                max_outputs=most_outputs,
            )
            for gpu_layers, cpu_experts, activations, type_k, type_v, batch_size, threads in grid
        )
