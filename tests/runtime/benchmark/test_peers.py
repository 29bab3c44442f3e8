"""llama-bench from outside: its flags, its answer, its faults; played by a small program of our own."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest
from bench_rows import DEPTH_HELP, REPACK_HELP, write_llama_bench

from runtime.benchmark import llama_cpp_child
from runtime.benchmark.peers import LlamaBench, PeerCall, PeerError, PeerStopped, Variant, read_rates
from runtime.benchmark.workloads import Workload

# What llama-bench prints for one test with `-o json`, less a few fields; figures changed.
ANSWER = """[
  {
    "build_commit": "c0ffee",
    "build_number": 4711,
    "cpu_info": "A Processor",
    "backends": "CPU",
    "model_type": "llama 256M Q4_1",
    "n_threads": 2,
    "repack": false,
    "n_prompt": 64,
    "n_gen": 0,
    "n_depth": 0,
    "avg_ns": 938409643,
    "avg_ts": 70.462510,
    "samples_ns": [ 1106545899, 770273387 ],
    "samples_ts": [ 57.8376, 83.0874 ]
  }
]
"""

PREFILL = Workload(test="prefill", prompt_tokens=64, depth=32)
DECODE = Workload(test="decode", output_tokens=16)


def call_for(workload: Workload) -> PeerCall:
    return PeerCall(path=Path("m.gguf"), threads=2, cache_type_k="f16", cache_type_v="q8_0", workload=workload)


def command_lines(folder: Path) -> list[list[str]]:
    return [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]


def test_the_answer_is_read() -> None:
    assert read_rates(ANSWER) == [57.8376, 83.0874]
    assert read_rates(f"warning: something\n{ANSWER}") == [57.8376, 83.0874]


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("", "expected a list of one test"),
        ("llama", "expected a list of one test"),
        ("[]", "expected a list of one test"),
        ("[1]", "expected a list of one test"),
        ("[{},{}]", "expected a list of one test"),
        ("[{", "is no JSON"),
        ("[{}]", "samples_ts None"),
        ('[{"samples_ts": []}]', "samples_ts"),
        ('[{"samples_ts": [0]}]', "samples_ts"),
        ('[{"samples_ts": ["fast"]}]', "samples_ts"),
        ('[{"samples_ts": 4}]', "samples_ts"),
    ],
)
def test_an_answer_that_is_none(answer: str, sentence: str) -> None:
    with pytest.raises(PeerError, match=sentence.replace("[", r"\[")):
        read_rates(answer)


@pytest.mark.parametrize(
    ("help", "variants"),
    [
        ((), ["default"]),
        ((REPACK_HELP,), ["default", "--repack 0"]),
        (("  -nr, --no-repack   disable weight repacking\n",), ["default", "--no-repack"]),
        (("  -rtr, --run-time-repack <0|1>   (default: 0)\n",), ["default", "-rtr 1"]),
    ],
)
def test_its_help_says_which_variants_there_are(tmp_path: Path, help: tuple[str, ...], variants: list[str]) -> None:
    peer = LlamaBench([str(write_llama_bench(tmp_path, help=help))])
    assert [variant.name for variant in peer.variants] == variants
    assert peer.version == "4711 (c0ffee)"


def test_it_is_asked_for_the_same_file_threads_and_cache(tmp_path: Path) -> None:
    flags = ("  -ngl, --n-gpu-layers <n>\n", "  -nopo, --no-op-offload <0|1>\n", DEPTH_HELP, REPACK_HELP)
    peer = LlamaBench([str(write_llama_bench(tmp_path, help=flags, rates="7.5"))])
    assert peer.measure(call_for(PREFILL), peer.variants[1]) == 7.5
    assert peer.measure(call_for(DECODE), peer.variants[0]) == 7.5
    peer.measure(call_for(Workload(test="verify", output_tokens=100, width=4)), peer.variants[0])
    common = ["-t", "2", "-ctk", "f16", "-ctv", "q8_0"]
    cpu = ["-ngl", "0", "-nopo", "1"]
    assert command_lines(tmp_path)[2:] == [
        ["-m", "m.gguf", "-p", "64", "-n", "0", *common, "-r", "1", "-o", "json", "-d", "32", *cpu, "--repack", "0"],
        ["-m", "m.gguf", "-p", "0", "-n", "16", *common, "-r", "1", "-o", "json", *cpu],
        ["-m", "m.gguf", "-p", "4", "-n", "0", *common, "-r", "16", "-o", "json", *cpu],
    ]


def test_the_median_of_several_repeats_counts(tmp_path: Path) -> None:
    peer = LlamaBench([str(write_llama_bench(tmp_path, rates="1.0, 30.0, 2.0"))])
    assert peer.measure(call_for(DECODE), peer.variants[0]) == 2.0


def test_what_it_can_run(tmp_path: Path) -> None:
    peer = LlamaBench([str(write_llama_bench(tmp_path, help=()))])
    assert peer.can_run(DECODE) and not peer.can_run(PREFILL)  # it has no flag for the depth
    assert peer.can_run(Workload(test="verify", output_tokens=8, width=4))
    assert not peer.can_run(Workload(test="parallel", output_tokens=8, width=4))
    assert not peer.can_run(Workload(test="generate", prompt_tokens=8, output_tokens=8))


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        ("print('model not found', file=sys.stderr); sys.exit(1)", "ended with status 1: model not found"),
        ("sys.exit(3)", "ended with status 3: nothing"),
        ("print('hello'); sys.exit(0)", "expected a list of one test"),
    ],
)
def test_its_faults_are_sentences(tmp_path: Path, action: str, sentence: str) -> None:
    peer = LlamaBench([str(write_llama_bench(tmp_path, action=action))])
    with pytest.raises(PeerError, match=sentence):
        peer.measure(call_for(DECODE), Variant(name="default"))


def test_what_is_no_llama_bench_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="can't be run"):
        LlamaBench([str(tmp_path / "nothing")])
    with pytest.raises(PeerError, match="is no llama-bench"):
        LlamaBench([sys.executable])


def test_a_stop_ends_the_program(tmp_path: Path) -> None:
    began = tmp_path / "began"
    peer = LlamaBench([str(write_llama_bench(tmp_path, action=f"open({str(began)!r}, 'w').close(); time.sleep(600)"))])
    outcome: list[BaseException] = []

    def work() -> None:
        try:
            peer.measure(call_for(DECODE), peer.variants[0])
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while not began.exists() and thread.is_alive():
        thread.join(0.01)
    peer.stop()
    thread.join(20)
    assert not thread.is_alive() and isinstance(outcome[0], PeerStopped)
    with pytest.raises(PeerStopped):
        peer.measure(call_for(DECODE), peer.variants[0])


FAKE_LLAMA_CPP = '''
"""As much of llama_cpp as the child uses; notes what it is asked."""
import json, sys, types
from pathlib import Path

LOG = Path(__file__).with_name("llama_cpp_calls.jsonl")


class _Params:
    use_extra_bufts = True


def llama_model_default_params():
    return _Params()


class Llama:
    def __init__(self, **options):
        self.n_tokens = 0
        repacks = sys.modules["llama_cpp"].llama_cpp.llama_model_default_params().use_extra_bufts
        self._note({"repacks": repacks, **options})

    def _note(self, what):
        with LOG.open("a") as log:
            print(json.dumps(what), file=log)

    def n_vocab(self):
        return 100

    def reset(self):
        self.n_tokens = 0

    def eval(self, ids):
        assert all(0 <= number < 100 for number in ids)
        self._note([self.n_tokens, len(ids)])
        self.n_tokens += len(ids)


llama_cpp = types.SimpleNamespace(llama_model_default_params=llama_model_default_params)
__version__ = "0.9.9"
'''


@pytest.fixture
def python_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LlamaBench:
    """The child in a Python that has (a stand-in for) llama_cpp."""
    (tmp_path / "llama_cpp.py").write_text(FAKE_LLAMA_CPP)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return LlamaBench([sys.executable, llama_cpp_child.__file__])


def test_a_python_with_llama_cpp_answers_like_llama_bench(python_peer: LlamaBench, tmp_path: Path) -> None:
    assert python_peer.version == "llama-cpp-python 0.9.9"
    assert [variant.name for variant in python_peer.variants] == ["default", "--repack 0"]
    assert python_peer.measure(call_for(PREFILL), python_peer.variants[0]) > 0
    loaded, *evals = [json.loads(line) for line in (tmp_path / "llama_cpp_calls.jsonl").read_text().splitlines()]
    assert (loaded["model_path"], loaded["n_threads"], loaded["n_threads_batch"]) == ("m.gguf", 2, 2)
    assert (loaded["n_ctx"], loaded["n_gpu_layers"], loaded["repacks"]) == (96, 0, True)
    assert (loaded["type_k"], loaded["type_v"], loaded["flash_attn"]) == (1, 8, True)
    assert evals == [[0, 32], [32, 64], [32, 64]]  # the depth, the warm-up, the repeat


def test_a_python_with_llama_cpp_decodes_one_by_one(python_peer: LlamaBench, tmp_path: Path) -> None:
    assert python_peer.measure(call_for(Workload(test="decode", output_tokens=3)), python_peer.variants[1]) > 0
    loaded, *evals = [json.loads(line) for line in (tmp_path / "llama_cpp_calls.jsonl").read_text().splitlines()]
    assert loaded["repacks"] is False
    assert evals == [[0, 1], [1, 1], [2, 1]] * 2


def test_a_python_without_llama_cpp_is_refused() -> None:
    with pytest.raises(PeerError, match="No module named 'llama_cpp'"):
        LlamaBench([sys.executable, llama_cpp_child.__file__])
