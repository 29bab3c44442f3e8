"""The bytes that a pass reads, as someone sees them who watches a loaded model."""

from __future__ import annotations

from pathlib import Path

from tiny_models import write_tiny_model

from runtime.device_speed import pass_reads
from runtime.options import EngineOptions


def test_a_pass_reads_the_weights_and_what_stands_before(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf")
    reads = pass_reads(path, EngineOptions(threads=1))
    first, second, later = (reads.bytes_at(position) for position in (0, 1, 101))
    assert first > 0
    assert second > first
    assert later - second == 100 * (second - first)
    small = pass_reads(path, EngineOptions(threads=1, cache_type_k="q8_0", cache_type_v="q8_0"))
    assert small.bytes_at(101) < later
