"""Operands of kernels: named 64-bit words in one block of memory for each step of a bound program.

Owns the layouts that kernels and the binding share.  Every word is an address, a count, or a float32's bits.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from models.program import Weighing


@dataclass(frozen=True)
class Layout:
    """The words of one kernel's operands, in order."""

    names: tuple[str, ...]

    def offset(self, name: str) -> int:
        """Bytes from the start of the operands to the word called `name`."""
        return 8 * self.names.index(name)

    def fill(self, values: Mapping[str, int]) -> list[int]:
        """The words in order; a missing or unknown name is our own bug."""
        if set(values) != set(self.names):
            raise AssertionError(f"operands differ: {sorted(set(values) ^ set(self.names))}")
        return [int(values[name]) for name in self.names]


def float_word(value: float) -> int:
    """A float32's bits as a word."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


# count: address of the word that holds the number of rows (tokens, or wanted outputs); scale: float32 bits
PRODUCT = Layout(
    ("weights", "num_blocks", "group_bytes", "records", "out", "out_stride", "num_groups", "groups_per_chunk",
     "bias", "scale", "mode", "count", "tokens_per_chunk")
)  # fmt: skip

# source_blocks: blocks of a row (elements for float formats); group_stride: bytes between groups written
PACK = Layout(
    ("source", "row_bytes", "num_rows", "source_blocks", "out", "group_stride", "groups_per_chunk", "zeros")
)  # fmt: skip

# source: packed groups, source_group_bytes each; num_pieces: of 64 columns; group_stride: bytes between groups written
REQUANTIZE = Layout(
    ("source", "source_group_bytes", "num_pieces", "out", "group_stride", "num_groups", "groups_per_chunk")
)

# num_blocks: packed blocks of a row (columns for float formats); scale: float32 bits
EMBED = Layout(("weights", "num_blocks", "group_bytes", "token_ids", "out", "out_stride", "scale"))

# single, double: where records of one and of two terms go (0: not wanted); num_blocks: blocks of 32 columns;
# heads: of a row, each normalised by itself; own_bytes: between the weights (and biases) of two heads; bias 0: none
NORMALIZE = Layout(
    (
        "x",
        "x_stride",
        "weight",
        "width",
        "epsilon",
        "out",
        "out_stride",
        "add",
        "single",
        "double",
        "num_blocks",
        "count",
        "heads",
        "bias",
        "own_bytes",
        "is_centred",
    )
)
QUANTIZE = Layout(("x", "x_stride", "width", "num_blocks", "blocks_per_chunk", "single", "double", "count"))
SEPARATE = Layout(("x", "x_stride", "first", "first_stride", "second", "second_stride", "run", "num_runs"))

# runs: int32 [run][first token, tokens, state to go on from (-1: none), state to leave]; states: of this layer, each of
# state_bytes.  before, after: 0, or what inputs and results are multiplied by; weight: float32 [input][channels]
CONVOLVE = Layout(
    ("x", "x_stride", "before", "before_stride", "after", "after_stride", "out", "out_stride", "weight", "num_inputs",
     "channels", "channels_per_chunk", "has_silu", "runs", "states", "state_bytes")
)  # fmt: skip

# The same runs and states; offset: bytes from a state's begin to its matrices, float32 [head][key_dim][value_dim].
# rate, shift: float32 [head]; scale: float32, of queries
DELTA = Layout(
    ("x", "x_stride", "decay", "decay_stride", "learn", "learn_stride", "out", "out_stride", "rate", "shift", "epsilon",
     "scale", "num_heads", "num_key_heads", "key_dim", "value_dim", "runs", "states", "state_bytes", "offset",
     "is_grouped")
)  # fmt: skip
SELECT = Layout(("x", "x_stride", "outputs", "out", "out_stride", "width"))

# q_norm, k_norm, angles 0: none.  angles: float32 [position][cosines, then sines][dimensions / 2].
# temperature: float32, and temperature_length: see models.program.Temperature; length 0: none.
ROTATE = Layout(
    ("q", "q_stride", "k", "k_stride", "v", "v_stride", "heads_per_kv", "num_kv_heads", "head_dim", "q_norm", "k_norm",
     "epsilon", "angles", "dimensions", "is_neighbours", "norms_after", "temperature", "temperature_length",
     "positions", "slots", "page_tables", "table_stride", "cache", "page_bytes", "head_bytes")
)  # fmt: skip

# tiles: int32 [tile][first token, tokens, slot]; spans: address of the word that says into how many spans a tile's
# keys are split among chunks (0: not split); partial: float32 [token][head][span][head_dim + 16].
# soft_cap: float32, 0: none; sinks: float32 a head, 0: none
ATTEND = Layout(
    ("q", "q_stride", "out", "out_stride", "heads_per_kv", "num_kv_heads", "head_dim", "scale", "window", "tiles",
     "positions", "page_tables", "table_stride", "cache", "page_bytes", "head_bytes", "spans", "partial", "soft_cap",
     "sinks")
)  # fmt: skip

# x: float32 rows; weights packed as [group][column][lane]
PRODUCT_FLOATS = Layout(
    ("weights", "num_columns", "group_bytes", "x", "x_stride", "out", "out_stride", "num_groups", "groups_per_chunk",
     "bias", "scale", "mode", "count", "tokens_per_chunk")
)  # fmt: skip
CAP = Layout(("x", "x_stride", "width", "cap"))
WEIGH = Layout(("x", "x_stride", "width", "by", "by_stride"))
SCALE = Layout(("x", "x_stride", "width", "weight"))
GATE = Layout(("gate", "gate_stride", "up", "up_stride", "width", "mode"))

# route: 32-bit words [token][num_used experts, then weights, then pairs]; starts: int32 [experts + 1], the first pair
# of each; pair_tokens: int32 [pair]; num_pairs: address of the word that holds their number
# weighing: index in WEIGHINGS; preference, expert_scale: float32 [expert], 0: none; scale: float32
WEIGHINGS: tuple[Weighing, ...] = ("softmax", "softmax_of_all", "sigmoid", "normalized_sigmoid")
CHOOSE = Layout(
    ("scores", "scores_stride", "num_experts", "num_used", "route", "route_stride", "weighing", "preference",
     "expert_scale", "scale")
)  # fmt: skip
GROUP = Layout(("route", "route_stride", "num_experts", "num_used", "count", "starts", "pair_tokens"))
GATHER = Layout(("source", "count", "target", "num_pairs", "num_blocks", "pair_tokens"))
GATHER_FLOATS = Layout(("source", "source_stride", "target", "target_stride", "width", "pair_tokens"))
# records: of the pairs, or their float32 rows; record_bytes: between two of them; num_groups: of an expert
EXPERT_PRODUCT = Layout(
    ("weights", "num_blocks", "group_bytes", "num_groups", "groups_per_chunk", "starts", "records", "record_bytes",
     "num_pairs", "out", "out_stride", "bias", "bias_stride")
)  # fmt: skip
MIX = Layout(("route", "route_stride", "num_used", "y", "y_stride", "out", "out_stride", "width", "add"))

# data: what is read, chunk_bytes of it by each chunk; out: 64 bytes a chunk, for a result that nobody uses
PROBE_READ = Layout(("data", "chunk_bytes", "out"))
PROBE_COMPUTE = Layout(("rounds", "out"))


def probe_chains(lanes: int) -> int:
    """Accumulators of a compute probe: more than latency times throughput, few enough for the level's registers."""
    return 12 if lanes == 16 else 8
