"""Measures `llama_cpp` (llama-cpp-python) and answers like `llama-bench -o json`: run by the Python that has it.

    PYTHON llama_cpp_child.py -m FILE -p N -n N -t N -d N -r N -ctk f16 -ctv f16 -o json [--repack 0]

Stands alone: it may import nothing of Tandem, and works with Python 3.9 and newer.  Owns that one translation.  It
calls `Llama.eval`, which has neither sampling nor text.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
import time

DEFAULTS = {"-p": "512", "-n": "0", "-t": "1", "-d": "0", "-r": "1", "-ctk": "f16", "-ctv": "f16", "-o": "json"}
USAGE = """usage: llama_cpp_child.py -m FILE [flags]
  -m, --model FILE
  -p, --n-prompt N
  -n, --n-gen N
  -d, --n-depth N
  -t, --threads N
  -r, --repetitions N
  -ctk TYPE, -ctv TYPE
  -o, --output json
  --version
"""
TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8}  # ggml's numbers


def main(words: list[str]) -> int:
    llama_cpp = importlib.import_module("llama_cpp")  # of the Python that runs this, not of Tandem's
    low_level = llama_cpp.llama_cpp
    can_repack = hasattr(low_level.llama_model_default_params(), "use_extra_bufts")
    if "--version" in words:
        print(f"llama-cpp-python {llama_cpp.__version__}")
        return 0
    if "--help" in words:
        print(USAGE + ("  --repack <0|1>\n" if can_repack else ""))
        return 0
    given = {**DEFAULTS, **dict(zip(words[::2], words[1::2]))}  # noqa: B905 -- Python 3.9
    if given.get("--repack") == "0":
        switch_repacking_off(low_level)
    samples_ns, num_tokens = measure(llama_cpp, given)
    record = {
        "samples_ns": samples_ns,
        "samples_ts": [1e9 * num_tokens / sample for sample in samples_ns],
    }
    print(json.dumps([record]))
    return 0


def switch_repacking_off(low_level) -> None:
    """Makes models load with the weights as the file has them: Llama has no argument for it."""
    make_defaults = low_level.llama_model_default_params

    def without_repacking():
        params = make_defaults()
        params.use_extra_bufts = False
        return params

    low_level.llama_model_default_params = without_repacking


def measure(llama_cpp, given: dict[str, str]) -> tuple[list[int], int]:
    """Nanoseconds of each repeat, and the tokens of one."""
    num_prompt, num_output, depth = int(given["-p"]), int(given["-n"]), int(given["-d"])
    llama = llama_cpp.Llama(
        model_path=given["-m"],
        n_ctx=depth + num_prompt + num_output,
        n_batch=512,
        n_threads=int(given["-t"]),
        n_threads_batch=int(given["-t"]),
        n_gpu_layers=0,
        flash_attn=True,  # as llama-bench chooses by itself on a CPU; other V than f16 needs it
        type_k=TYPES[given["-ctk"]],
        type_v=TYPES[given["-ctv"]],
        verbose=False,
    )
    ids = [random.randrange(llama.n_vocab()) for _ in range(depth + num_prompt + num_output)]

    def run() -> None:
        if num_prompt:
            llama.eval(ids[depth : depth + num_prompt])
        for position in range(depth + num_prompt, len(ids)):
            llama.eval(ids[position : position + 1])

    llama.reset()
    if depth:
        llama.eval(ids[:depth])
    samples_ns = []
    for repeat in range(-1, int(given["-r"])):  # the first one warms up
        llama.n_tokens = depth  # what stands behind is forgotten by the next eval
        start_ns = time.perf_counter_ns()
        run()
        if repeat >= 0:
            samples_ns.append(time.perf_counter_ns() - start_ns)
    return samples_ns, num_prompt + num_output


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
