"""Rows and environments of a bench that nobody made, a stand-in for llama-bench, and a model without a device.

Owns figures that tests can recognise.  Does not know formats.
"""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fake_device import FakeBinding, make_limits
from tiny_models import byte_pair_vocabulary

from models.vocabulary import load_vocabulary
from runtime.benchmark.loading import LoadedModel
from runtime.benchmark.results import DeviceShare, Environment, PeerRatio, Row, Setting, SpeculationFigures
from runtime.benchmark.statistics import Spread
from runtime.benchmark.workloads import Workload
from runtime.devices.costs import LayerCost, MachineLimits, RowCost, StepCosts
from runtime.engine import EngineDescription
from runtime.options import EngineOptions

SETTING = Setting(
    engine="tandem",
    variant="",
    model="A Model",
    model_file="a-model-q4_k_m.gguf",
    model_fingerprint="f00d",
    model_size_bytes=1_000_000,
    threads=2,
    batch_size=512,
    cache_type_k="f16",
    cache_type_v="f16",
    activations="balanced",
    isa="avx512",
)
SHARE = DeviceShare(
    device="cpu",
    moved_bytes_per_token=97e6,
    byte_multiply_adds_per_token=216e6,
    float_multiply_adds_per_token=1e6,
    read_bytes_per_s=36e9,
    byte_multiply_adds_per_s=460e9,
    float_multiply_adds_per_s=118e9,
    limit_tokens_per_s=371.0,
    limit_share=0.81,
    limited_by="memory",
)
RATIO = PeerRatio(
    peer="llama.cpp",
    variant="--repack 0",
    ratio=Spread(median=2.0, least=1.9, most=2.1, deviation=0.05),
    ratio_samples=(1.9, 2.0, 2.1),
)
GUESSES = SpeculationFigures(
    plain_tokens_per_s=150.0,
    plain_tokens_per_s_samples=(149.0, 150.0, 151.0),
    ratio=Spread(median=2.0, least=1.9, most=2.1, deviation=0.05),
    ratio_samples=(1.9, 2.0, 2.1),
    prompt_ratios=(0.97, 3.25),
    answers=6,
    same_answers=6,
    drafted=40,
    accepted=30,
    acceptance_by_position=(0.875, 0.5),
    rounds=10,
    plain_tokens=12,
    tokens_per_round=4.0,
    draft_ms_per_token=1.25,
    verify_ms_per_token=2.5,
    wait_ms_per_token=1.75,
    reasons=("guesses do not pay",),
)
GUESSING = Workload(test="guess", output_tokens=64, draft="small", prompt_set="edits", temperature=0.8)
DECODE = Workload(test="decode", output_tokens=128)
ENVIRONMENT = Environment(
    tandem="0.1.0",
    versions={"python": "3.11.7", "numpy": "2.4.6"},
    machine={
        "cpu_name": "A Processor",
        "isa": "avx512",
        "num_cores": 2,
        "memory_total_bytes": 2**34,
        "huge_pages": "madvise",
    },
    options={"models": ["a-model-q4_k_m.gguf"], "repeats": 3},
    date="2026-01-02T03:04:05+00:00",
    load_start=0.1,
    load_end=1.9,
)
COSTS = StepCosts(
    tokens=RowCost(weight_bytes=1000, byte_multiply_adds=500, float_multiply_adds=0),
    outputs=RowCost(weight_bytes=100, byte_multiply_adds=50, float_multiply_adds=0),
    embedding_bytes=10,
    layers=(LayerCost(position_bytes=4, multiply_adds_per_position=2, window=None),),
)
LIMITS = MachineLimits(read_bytes_per_s=1e6, byte_multiply_adds_per_s=1e6, float_multiply_adds_per_s=1e6)


def make_row(*samples: float, workload: Workload = DECODE, setting: Setting = SETTING, **more: object) -> Row:
    """A row of Tandem's with these rates."""
    rates = samples or (290.0, 300.0, 320.0)
    row = Row(
        engine_version="0.1.0",
        setting=setting,
        workload=workload,
        tokens_per_s=sorted(rates)[len(rates) // 2],
        tokens_per_s_samples=rates,
        devices=(SHARE,),
        date="2026-01-02T03:04:05+00:00",
        load=1.5,
    )
    return replace(row, **more)  # type: ignore[arg-type]


def peer_row(*samples: float, variant: str = "default", workload: Workload = DECODE) -> Row:
    """A row of llama.cpp's."""
    setting = replace(SETTING, engine="llama.cpp", variant=variant, batch_size=None, activations=None, isa=None)
    return replace(make_row(*samples, workload=workload, setting=setting), devices=(), engine_version="b1")


class FakeProbe:
    """Limits that are known; counts how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.is_closed = False

    def measure(self, threads: int) -> MachineLimits:
        self.asked.append(threads)
        return LIMITS

    def close(self) -> None:
        self.is_closed = True


class FakeLoads:
    """Loads models without a device: call it as runtime.benchmark.loading.load_model.  `bindings` are all it made."""

    def __init__(self, prepare: Callable[[FakeBinding], None] | None = None) -> None:
        self.bindings: list[FakeBinding] = []
        self.loads: list[tuple[Path, EngineOptions]] = []
        self._prepare = prepare
        self._vocabulary = load_vocabulary(byte_pair_vocabulary())

    def __call__(self, path: Path, options: EngineOptions, progress: Callable[[str, int, int], None]) -> LoadedModel:
        progress("weights", 1, 1)
        self.loads.append((path, options))
        assert options.context_size is not None
        binding = FakeBinding(
            make_limits(
                context_size=options.context_size,
                max_sequences=options.max_sequences,
                max_batch_tokens=options.batch_size,
                max_outputs=options.max_outputs,
            )
        )
        if self._prepare is not None:
            self._prepare(binding)
        self.bindings.append(binding)
        description = EngineDescription(
            name="A Model",
            architecture="llama",
            num_parameters=1,
            formats=("Q4_0",),
            size_bytes=1000,
            trained_context_size=512,
            context_size=options.context_size,
            threads=options.threads or 1,
            path=path,
            fingerprint=f"of {path.name}",
        )
        return LoadedModel(
            binding=binding,
            description=description,
            vocabulary=self._vocabulary,
            costs=COSTS,
            device="cpu",
            isa="avx512",
            notes=("a note",),
        )


_HELP = """usage: llama-bench [options]
  --version                                   show version and build info
  -o, --output <csv|json|jsonl|md|sql>        output format
  -p, --n-prompt <n>
  -n, --n-gen <n>
  -t, --threads <n>
"""
DEPTH_HELP = "  -d, --n-depth <n>                           (default: 0)\n"
REPACK_HELP = "  --repack <0|1>                              (default: 1)\n"

_SCRIPT = """#!{python}
import json, os, sys, time
words = sys.argv[1:]
with open({log!r}, "a") as log:
    print(json.dumps(words), file=log)
if "--help" in words:
    print({help!r})
elif "--version" in words:
    print("version: 4711 (c0ffee)\\nbuilt with a compiler")
else:
    {action}
    print('[{{"build_commit": "c0ffee", "build_number": 4711, "samples_ns": [1], "samples_ts": [' + {rates!r} + ']}}]')
"""


def write_llama_bench(
    folder: Path, *, help: Sequence[str] = (DEPTH_HELP, REPACK_HELP), rates: str = "100.0", action: str = "pass"
) -> Path:
    """A program that answers like llama-bench, and notes each command line (as JSON) in calls.jsonl beside it.

    action: a statement that it executes before it answers to a measurement.
    """
    path = folder / "llama-bench"
    text = _SCRIPT.format(
        python=sys.executable, log=str(folder / "calls.jsonl"), help=_HELP + "".join(help), rates=rates, action=action
    )
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path
