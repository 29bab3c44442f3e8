"""Lowers attention to launches: a few tokens in pieces of the context, a prompt on tensor cores.

Owns their grids (see attention.cu, attention_prompt.cu).
"""

from __future__ import annotations

from collections.abc import Iterator

from kernels_gpu.device import Region
from kernels_gpu.launch_pieces import LaunchPieces
from kernels_gpu.launches import Launch, launch
from kernels_gpu.layout import UNIT
from kernels_gpu.modules import attention_module, prompt_attention_module
from kernels_gpu.product_steps import WARPS, tiles
from models.program import Attend, Rope, RotateAndStore

ATTENTION_THREADS = 128
HEADS_OF_BLOCK = 4  # query heads that one block of `attend` does
PROMPT_ROWS = 32  # tokens times heads of a block of attend_prompt


class AttentionSteps:
    """The launches of one such operation.  tokens_at_once: of one launch of `attend`."""

    def __init__(self, pieces: LaunchPieces, tokens_at_once: int) -> None:
        self._pieces, self._tokens_at_once = pieces, tokens_at_once
        self._module = attention_module(pieces.limits)

    def _angles(self, rope: Rope | None) -> tuple[Region | None, int, int]:
        if rope is None:
            return None, 0, 0
        pieces = self._pieces
        region = pieces.places.workspace[f"rope {pieces.plan.ropes.index(rope)}"]
        return region, rope.dimensions, int(rope.pairing == "neighbours")

    def rotate(self, operation: RotateAndStore) -> Launch:
        """Norms and rotates queries and keys, keeps keys and values."""
        pieces = self._pieces
        cache, temperature = operation.cache, operation.temperature
        warmth = (0.0, 0) if temperature is None else (float(temperature.scale), temperature.length)
        heads = operation.num_heads + 2 * cache.num_kv_heads
        assert operation.k is not None and operation.v is not None, "shared keys and values are refused (plan.py)"
        k, kv_stride = pieces.floats(operation.k)
        return launch(
            self._module, "rotate_and_store", (-(-heads // WARPS), pieces.shape.num_tokens), ATTENTION_THREADS,
            *pieces.floats(operation.q), k, pieces.floats(operation.v)[0], kv_stride, operation.num_heads,
            cache.num_kv_heads, cache.head_dim, pieces.vector(operation.q_norm), pieces.vector(operation.k_norm),
            float(operation.epsilon), *self._angles(operation.rope), *warmth, pieces.batch("positions"),
            pieces.batch("slots"), pieces.batch("page_tables"), pieces.limits.table_row,
            pieces.places.caches[operation.layer_idx],
        )  # fmt: skip

    def attend(self, operation: Attend) -> Iterator[Launch]:
        """Attention, and the records of what it gives."""
        pieces = self._pieces
        if pieces.shape.is_prefill:
            yield self._attend_prompt(operation)
            yield from pieces.quantize(operation.out)
            return
        cache, max_spans = operation.cache, pieces.limits.max_spans
        partial, area = pieces.places.workspace["partial"], pieces.area(operation.out)
        rounds = cache.head_dim % UNIT == 0
        records = [pieces.records(operation.out, terms) if rounds else None for terms in (1, 2)]
        batches = -(-operation.num_heads // cache.num_kv_heads // HEADS_OF_BLOCK)
        for first, count in tiles(pieces.shape.num_tokens, self._tokens_at_once):
            positions = pieces.batch("positions", first)
            yield launch(
                self._module, "attend", (pieces.shape.spans, cache.num_kv_heads * batches, count), ATTENTION_THREADS,
                pieces.row(operation.q, first), pieces.area(operation.q).stride,
                pieces.places.caches[operation.layer_idx], positions, pieces.batch("slots", first),
                pieces.batch("page_tables"), pieces.limits.table_row, operation.num_heads, cache.num_kv_heads,
                cache.head_dim, float(operation.scale), cache.window or 0, float(operation.soft_cap or 0.0), partial,
                max_spans,
                shared_bytes=4 * (HEADS_OF_BLOCK * cache.head_dim + 8 * ATTENTION_THREADS),
            )  # fmt: skip
            yield launch(
                self._module, "combine", (operation.num_heads, count), ATTENTION_THREADS,
                partial, max_spans, positions, operation.num_heads, cache.head_dim, cache.window or 0,
                pieces.vector(operation.sinks), pieces.row(operation.out, first), area.stride, area.units, *records,
                area.rows, first,
            )  # fmt: skip
        if not rounds:
            yield from pieces.quantize(operation.out)

    def _attend_prompt(self, operation: Attend) -> Launch:
        pieces, cache = self._pieces, operation.cache
        group = operation.num_heads // cache.num_kv_heads
        tokens = PROMPT_ROWS // min(group, HEADS_OF_BLOCK)
        grid = (-(-pieces.shape.num_tokens // tokens), cache.num_kv_heads * -(-group // HEADS_OF_BLOCK))
        return launch(
            prompt_attention_module(pieces.limits), "attend_prompt", grid, ATTENTION_THREADS,
            *pieces.floats(operation.q), pieces.places.caches[operation.layer_idx], pieces.batch("positions"),
            pieces.batch("slots"), pieces.batch("page_tables"), pieces.limits.table_row, pieces.shape.num_tokens,
            operation.num_heads, cache.num_kv_heads, cache.head_dim, float(operation.scale), cache.window or 0,
            float(operation.soft_cap or 0.0), pieces.vector(operation.sinks), *pieces.floats(operation.out),
        )  # fmt: skip
