"""The chart of a bench: which panels there are, and what its bars are called."""

from __future__ import annotations

from dataclasses import replace

from bench_rows import SETTING, make_row, peer_row

from app.bench.chart import panels
from runtime.benchmark.workloads import Workload

PREFILL = Workload(test="prefill", prompt_tokens=512)


def test_panels_are_the_kinds_of_tests() -> None:
    drawn = panels((make_row(), peer_row(140.0, 150.0, 160.0), make_row(1800.0, workload=PREFILL)))
    assert [panel.title for panel in drawn] == ["Decode, tokens/s", "Prompt, tokens/s"]
    assert [(bar.label, bar.series, bar.limit) for bar in drawn[0].bars] == [
        ("decode 128, 2 threads, tandem", "tandem", 371.0),
        ("decode 128, 2 threads, llama.cpp default", "llama.cpp default", None),
    ]
    assert drawn[0].most == 320.0


def test_labels_tell_what_differs() -> None:
    others = [
        {"model_file": "b.gguf"},
        {"activations": "fast"},
        {"batch_size": 64},
        {"cache_type_k": "q8_0"},
    ]
    for other, word in zip(others, ["b", "fast", "batch 64", "q8_0/f16"], strict=True):
        (panel,) = panels([make_row(), make_row(setting=replace(SETTING, **other))])
        assert panel.bars[1].label == f"decode 128, 2 threads, {word}"
    (panel,) = panels([make_row()])
    assert panel.bars[0].label == "decode 128, 2 threads"
