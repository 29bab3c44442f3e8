"""Lowers attention to the executor's steps: rotating and keeping keys and values, attending (see attention.py)."""

from __future__ import annotations

from collections.abc import Iterator

from kernels_cpu import operands
from kernels_cpu.operands import float_word
from kernels_cpu.step_pieces import Step, StepPieces
from models.program import Attend, KvLayer, RotateAndStore


class AttentionSteps:
    """The steps of one such operation."""

    def __init__(self, pieces: StepPieces) -> None:
        self._pieces = pieces

    def _cache(self, layer: KvLayer, layer_idx: int | None) -> dict[str, int]:
        places = self._pieces.places
        return {
            "cache": 0 if layer_idx is None else places.caches[layer_idx],
            "page_bytes": places.cache_types.page_bytes(layer.num_kv_heads, layer.head_dim),
            "head_bytes": places.cache_types.head_bytes(layer.head_dim),
            "page_tables": places.batch["page_tables"],
            "table_stride": places.table_row_bytes,
            "positions": places.batch["positions"],
            "num_kv_heads": layer.num_kv_heads,
            "head_dim": layer.head_dim,
        }

    def rotate(self, operation: RotateAndStore) -> Step:
        """Norms and rotates queries and keys, keeps keys and values."""
        pieces = self._pieces
        cache, rope, temperature = operation.cache, operation.rope, operation.temperature
        values = {
            **pieces.floats("q", operation.q),
            **pieces.floats_or_none("k", operation.k),
            **pieces.floats_or_none("v", operation.v),
            **self._cache(cache, None if operation.k is None else operation.layer_idx),
            "heads_per_kv": operation.num_heads // cache.num_kv_heads,
            "q_norm": pieces.vector(operation.q_norm),
            "k_norm": pieces.vector(operation.k_norm),
            "epsilon": float_word(operation.epsilon),
            "angles": 0 if rope is None else pieces.places.ropes[rope],
            "dimensions": 0 if rope is None else rope.dimensions,
            "is_neighbours": int(rope is not None and rope.pairing == "neighbours"),
            "norms_after": int(operation.norms_after),
            "temperature": float_word(0.0 if temperature is None else temperature.scale),
            "temperature_length": 0 if temperature is None else temperature.length,
            "slots": pieces.places.batch["slots"],
        }
        return Step(
            kernel=f"rotate-{pieces.places.cache_names}",
            layout=operands.ROTATE,
            values=values,
            fixed=cache.num_kv_heads,
            count="num_tokens",
            per_chunk=1,
        )

    def attend(self, operation: Attend) -> Iterator[Step]:
        """Attends piece by piece, and puts together what several threads did of one token."""
        pieces = self._pieces
        cache = operation.cache
        values = {
            **pieces.floats("q", operation.q),
            **pieces.floats("out", operation.out),
            **self._cache(cache, operation.layer_idx if operation.source_idx is None else operation.source_idx),
            "heads_per_kv": operation.num_heads // cache.num_kv_heads,
            "scale": float_word(operation.scale),
            "window": cache.window or 0,
            "tiles": pieces.places.batch["tiles"],
            "spans": pieces.word("spans"),
            "partial": pieces.places.partial,
            "soft_cap": float_word(operation.soft_cap or 0.0),
            "sinks": pieces.vector(operation.sinks),
        }
        for kernel, count in (
            (f"attend-{pieces.places.cache_names}", "attend_pieces"),
            ("combine", "combine_tokens"),
        ):
            yield Step(
                kernel=kernel, layout=operands.ATTEND, values=values, fixed=cache.num_kv_heads, count=count, per_chunk=1
            )
        yield from pieces.quantize(operation.out)
