"""Which shapes of heads and states the kernels take.

Owns these limits and what is said of those beyond them.
"""

from __future__ import annotations

from kernels_cpu.kv_layout import SCALE_BLOCK, CacheTypes
from models.recurrence import StateLayer

MAX_HEAD_DIM = 512
MAX_TILE_ROWS = 64
MAX_KEY_DIM, MATRIX_COLUMNS = 256, 32  # of a delta rule's matrices: recurrence.py's stack space and tiles


class UnsupportedError(ValueError):
    """A program or weight that these kernels cannot run."""


def check_head(head_dim: int, layer_idx: int, cache_types: CacheTypes) -> None:
    """Whether a layer's heads fit the kernels and the cache's types."""
    if head_dim % 16 or head_dim > MAX_HEAD_DIM:
        raise UnsupportedError(
            f"layer {layer_idx} has heads of {head_dim} values; "
            f"the CPU kernels take multiples of 16 up to {MAX_HEAD_DIM}"
        )
    if cache_types.has_scales and head_dim % SCALE_BLOCK:
        raise UnsupportedError(
            f"layer {layer_idx} has heads of {head_dim} values, which do not fill blocks of {SCALE_BLOCK}: "
            "keep keys and values as f16 (-ctk f16 -ctv f16)"
        )


def check_state(state: StateLayer, layer_idx: int) -> None:
    """Whether a layer's state fits the kernels."""
    is_whole = state.channels % 16 == 0 and state.key_dim % 16 == 0 and state.value_dim % MATRIX_COLUMNS == 0
    if not is_whole or state.key_dim > MAX_KEY_DIM:
        raise UnsupportedError(
            f"layer {layer_idx} keeps a state of {state.channels} channels and matrices of {state.key_dim} x "
            f"{state.value_dim} values; the CPU kernels take multiples of 16, and matrices of a multiple of "
            f"{MATRIX_COLUMNS} columns and up to {MAX_KEY_DIM} rows"
        )


def check_group(heads_per_kv: int, layer_idx: int) -> None:
    """Whether a tile of attention has room for the query heads of a KV head."""
    if heads_per_kv > MAX_TILE_ROWS:
        raise UnsupportedError(
            f"layer {layer_idx} has {heads_per_kv} query heads for each KV head; "
            f"the CPU kernels take {MAX_TILE_ROWS} at most"
        )
