"""Step programs in plain NumPy over dequantised weights: what every device is compared with.

Owns the mathematics of the operations, written as the definitions in models/program.py say and with no thought for
speed, and a KV cache of plain arrays.  Shares nothing with the kernel rooms; `gguf.quants` dequantises.

The functions for single operations take and give arrays of one dtype (float64 by default, float32 where a whole model
must be done in seconds); T tokens, heads of head_dim values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
from gated_products import activate, mix_experts
from recurrences import convolve, delta_rule, sigmoid

from models.gguf_file import ModelFile
from models.program import (
    Activation,
    Attend,
    Embed,
    Gate,
    GatedProject,
    MixExperts,
    Normalize,
    Operation,
    Program,
    Project,
    Rope,
    RotateAndStore,
    Scale,
    SelectOutputs,
    SoftCap,
    WeighRows,
    weights_of,
)
from models.recurrence import Convolve, DeltaRule, Recurrence, Separate

Array = np.ndarray[Any, np.dtype[Any]]


class Weights(Protocol):
    """Where an oracle reads weights."""

    def whole(self, name: str) -> Array:
        """The weight in its natural shape, floating."""
        ...

    def rows(self, name: str, indexes: Array) -> Array:
        """Some rows of a matrix."""
        ...


@dataclass(frozen=True)
class FileWeights:
    """The weights of an open file, dequantised each time they are asked for."""

    file: ModelFile

    def whole(self, name: str) -> Array:
        return self._dequantised(name, self.file.raw(name)).reshape(self.file.tensors[name].shape)

    def rows(self, name: str, indexes: Array) -> Array:
        return self._dequantised(name, self.file.raw(name)[indexes])

    def _dequantised(self, name: str, raw: Array) -> Array:
        from gguf import GGMLQuantizationType, quants

        return quants.dequantize(
            np.ascontiguousarray(raw), GGMLQuantizationType(self.file.tensors[name].format.ggml_id)
        )


@dataclass(frozen=True)
class ArrayWeights:
    """Weights given as arrays, for programs without a file."""

    arrays: Mapping[str, Array]

    def whole(self, name: str) -> Array:
        return self.arrays[name]

    def rows(self, name: str, indexes: Array) -> Array:
        return self.arrays[name][indexes]


def normalize(x: Array, weight: Array, epsilon: float, *, is_centred: bool = False) -> Array:
    """Root mean square norm over the last axis; is_centred: LayerNorm, which takes the mean off first."""
    x = x - np.mean(x, axis=-1, keepdims=True) if is_centred else x
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight


def rotate(x: Array, positions: Array, rope: Rope) -> Array:
    """x [T, heads, head_dim] turned by its positions [T].  Angles are float64 whatever x is."""
    angles = positions.astype(np.float64)[:, None, None] * np.asarray(rope.frequencies, np.float64)
    cosine = (np.cos(angles) * rope.magnitude).astype(x.dtype)
    sine = (np.sin(angles) * rope.magnitude).astype(x.dtype)
    half = rope.dimensions // 2
    if rope.pairing == "halves":
        first, second = slice(0, half), slice(half, 2 * half)
    else:
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    turned = x.copy()
    turned[..., first] = x[..., first] * cosine - x[..., second] * sine
    turned[..., second] = x[..., first] * sine + x[..., second] * cosine
    return turned


def soft_cap(x: Array, cap: float | None) -> Array:
    """cap * tanh(x / cap); x itself where there is no cap."""
    return x if cap is None else x.dtype.type(cap) * np.tanh(x / x.dtype.type(cap))


def attend(
    q: Array,
    k: Array,
    v: Array,
    positions: Array,
    *,
    scale: float,
    window: int | None,
    cap: float | None = None,
    sinks: Array | None = None,
) -> Array:
    """Causal attention of q [T, heads, d] at `positions` over k and v [S, kv_heads, d], which stand at 0 to S - 1."""
    group = q.shape[1] // k.shape[1]
    ages = positions[:, None] - np.arange(len(k))[None, :]
    visible = (ages >= 0) & (ages < (len(k) if window is None else window))
    out = np.empty_like(q)
    for head in range(q.shape[1]):
        scores = soft_cap(q[:, head] @ k[:, head // group].T * q.dtype.type(scale), cap)
        scores = np.where(visible, scores, -np.inf)
        top = scores.max(axis=1, keepdims=True)
        exponentials = np.exp(scores - top)
        total = exponentials.sum(axis=1, keepdims=True)
        if sinks is not None:
            total = total + np.exp(sinks[head] - top)
        out[:, head] = exponentials @ v[:, head // group] / total
    return out


def _normalized(operation: Normalize, x: Array, typed: Callable[[str], Array]) -> Array:
    heads = x.reshape(len(x), operation.heads or 1, -1)
    weight = np.ones(1, x.dtype) if operation.weight is None else typed(operation.weight)
    result = normalize(heads, weight, operation.epsilon, is_centred=operation.is_centred)
    return (result if operation.bias is None else result + typed(operation.bias)).reshape(x.shape)


@dataclass
class _Tokens:
    """The tokens of one run: those of a sequence stand together, ascending and without gaps."""

    ids: Array
    positions: Array
    slots: Array
    outputs: Array

    def sequences(self) -> Iterator[tuple[int, Array]]:
        """Each slot with the indexes of its tokens."""
        for slot in dict.fromkeys(self.slots.tolist()):
            yield slot, np.flatnonzero(self.slots == slot)


@dataclass
class Oracle:
    """Runs a program and keeps K and V of every slot, exactly as many positions as were fed.

    watch is called with every operation and the buffers after it; it may look and must not change them.
    activate: what gate values become where they are not those of experts.
    """

    program: Program
    weights: Weights
    dtype: type[np.floating[Any]] = np.float64
    watch: Callable[[Operation, Mapping[str, Array]], None] | None = None
    activate: Callable[[Array, Activation], Array] = activate
    _keys: dict[tuple[int, int], Array] = field(default_factory=dict)
    _values: dict[tuple[int, int], Array] = field(default_factory=dict)
    _inputs: dict[tuple[int, int], Array] = field(default_factory=dict)
    _states: dict[tuple[int, int], tuple[int, Array]] = field(default_factory=dict)

    def reset(self) -> None:
        """Forgets all sequences."""
        self._inputs.clear()
        self._states.clear()
        self._keys.clear()
        self._values.clear()

    def logits(self, token_ids: Sequence[int]) -> Array:
        """The logits [T, vocab_size] of a new sequence at every position."""
        return np.concatenate(list(self.logit_tiles([token_ids])))

    def logit_tiles(self, sequences: Sequence[Sequence[int]], *, rows: int = 64) -> Iterator[Array]:
        """Logits at every position of new sequences, one after another, `rows` at a time."""
        self.reset()
        lengths = [len(sequence) for sequence in sequences]
        yield from self.run_tiles(
            token_ids=np.concatenate([np.asarray(sequence, np.int64) for sequence in sequences]),
            positions=np.concatenate([np.arange(length) for length in lengths]),
            slots=np.repeat(np.arange(len(sequences)), lengths),
            outputs=np.arange(sum(lengths)),
            rows=rows,
        )

    def run(self, *, token_ids: Array, positions: Array, slots: Array, outputs: Array) -> Array:
        """One batch; logits [len(outputs), vocab_size].  A position fed again forgets what stood there and after it."""
        tiles = self.run_tiles(
            token_ids=token_ids, positions=positions, slots=slots, outputs=outputs, rows=len(outputs)
        )
        return np.concatenate([np.empty((0, self.program.vocab_size), self.dtype), *tiles])

    def run_tiles(
        self, *, token_ids: Array, positions: Array, slots: Array, outputs: Array, rows: int
    ) -> Iterator[Array]:
        """As `run`, `rows` logit rows at a time: all of them may not fit in memory."""
        operations = self.program.operations
        split = next(index for index, operation in enumerate(operations) if isinstance(operation, SelectOutputs))
        tokens = _Tokens(token_ids, positions, slots, outputs)
        buffers: dict[str, Array] = {}
        for operation in operations[:split]:
            self._apply(operation, buffers, tokens, self.weights.whole)
        held: dict[str, Array] = {}

        def weight(name: str) -> Array:
            if name not in held:
                held[name] = self.weights.whole(name)
            return held[name]

        for start in range(0, len(outputs), max(1, rows)):
            tile = _Tokens(token_ids, positions, slots, outputs[start : start + rows])
            for operation in operations[split:]:
                self._apply(operation, buffers, tile, weight)
            yield buffers[self.program.logits.name]

    def _apply(
        self, operation: Operation, buffers: dict[str, Array], tokens: _Tokens, weight: Callable[[str], Array]
    ) -> None:
        def typed(name: str) -> Array:
            return weight(name).astype(self.dtype, copy=False)

        match operation:
            case Embed():
                rows = self.weights.rows(operation.weight, tokens.ids).astype(self.dtype)
                buffers[operation.out.name] = rows * self.dtype(operation.scale)
            case Normalize():
                result = _normalized(operation, buffers[operation.x.name], typed)
                buffers[operation.out.name] = buffers[operation.out.name] + result if operation.add else result
            case Project():
                for part in operation.parts:
                    result = buffers[operation.x.name] @ np.atleast_2d(typed(part.weight)).T
                    if part.bias is not None:
                        result += typed(part.bias)
                    if operation.scale is not None:
                        result *= self.dtype(operation.scale)
                    buffers[part.out.name] = buffers[part.out.name] + result if operation.add else result
            case GatedProject():
                x = buffers[operation.x.name]
                gate = self.activate(x @ typed(operation.gate).T, operation.activation)
                buffers[operation.out.name] = gate * (x @ typed(operation.up).T)
            case MixExperts():
                x = buffers[operation.x.name]
                router_x = None if operation.router_x is None else buffers[operation.router_x.name]
                mixed = mix_experts(x, operation, {name: typed(name) for name in weights_of(operation)}, router_x)
                buffers[operation.out.name] = buffers[operation.out.name] + mixed if operation.add else mixed
            case Gate() | Scale() | WeighRows() | SoftCap():
                self._change(operation, buffers, typed)
            case RotateAndStore():
                self._rotate_and_store(operation, buffers, tokens, typed)
            case Attend():
                self._attend(operation, buffers, tokens, None if operation.sinks is None else typed(operation.sinks))
            case Convolve() | DeltaRule() | Separate():
                self._recur(operation, buffers, tokens, typed)
            case SelectOutputs():
                buffers[operation.out.name] = buffers[operation.x.name][tokens.outputs]
        if self.watch is not None:
            self.watch(operation, buffers)

    def _change(
        self, operation: Gate | Scale | WeighRows | SoftCap, buffers: dict[str, Array], typed: Callable[[str], Array]
    ) -> None:
        """What is done in place, element by element."""
        match operation:
            case Gate():
                gated = self.activate(buffers[operation.gate.name], operation.activation)
                if operation.up is None:
                    buffers[operation.gate.name] = gated
                    return
                up = buffers[operation.up.name][:, operation.up_start :][:, : operation.gate.width]
                buffers[operation.gate.name] = gated * up
            case Scale():
                buffers[operation.x.name] = buffers[operation.x.name] * typed(operation.weight)[0]
            case WeighRows():
                buffers[operation.x.name] = buffers[operation.x.name] * sigmoid(buffers[operation.by.name])
            case SoftCap():
                buffers[operation.x.name] = soft_cap(buffers[operation.x.name], operation.cap)

    def _rotate_and_store(
        self, operation: RotateAndStore, buffers: dict[str, Array], tokens: _Tokens, typed: Callable[[str], Array]
    ) -> None:
        head_dim = operation.cache.head_dim
        for buffer, norm in ((operation.q, operation.q_norm), (operation.k, operation.k_norm)):
            if buffer is None:
                continue
            heads = buffers[buffer.name].reshape(len(tokens.ids), -1, head_dim)
            changes: list[Callable[[Array], Array]] = []
            if norm is not None:
                changes.append(partial(normalize, weight=typed(norm), epsilon=operation.epsilon))
            if operation.rope is not None:
                changes.append(partial(rotate, positions=tokens.positions, rope=operation.rope))
            for change in reversed(changes) if operation.norms_after else changes:
                heads = change(heads)
            if operation.temperature is not None and buffer == operation.q:
                steps = tokens.positions // operation.temperature.length
                heads = heads * (1.0 + operation.temperature.scale * np.log1p(steps))[:, None, None].astype(self.dtype)
            buffers[buffer.name] = heads.reshape(len(tokens.ids), -1)
        for slot, indexes in tokens.sequences():
            for kept, buffer in ((self._keys, operation.k), (self._values, operation.v)):
                if buffer is None:
                    continue
                new = buffers[buffer.name][indexes].reshape(len(indexes), -1, head_dim)
                before = kept.get((operation.layer_idx, slot), new[:0])[: tokens.positions[indexes[0]]]
                assert len(before) == tokens.positions[indexes[0]], "a position was left out"
                kept[operation.layer_idx, slot] = np.concatenate([before, new])

    def _recur(
        self, operation: Recurrence, buffers: dict[str, Array], tokens: _Tokens, typed: Callable[[str], Array]
    ) -> None:
        match operation:
            case Convolve():
                self._convolve(operation, buffers, tokens, typed(operation.weight))
            case DeltaRule():
                self._learn(operation, buffers, tokens, typed)
            case Separate():
                runs = buffers[operation.x.name].reshape(len(tokens.ids), -1, 2, operation.run)
                for idx, part in enumerate((operation.first, operation.second)):
                    buffers[part.name] = runs[:, :, idx].reshape(len(tokens.ids), -1)

    def _convolve(self, operation: Convolve, buffers: dict[str, Array], tokens: _Tokens, weight: Array) -> None:
        state, x = operation.state, buffers[operation.x.name]
        inputs = x if operation.before is None else x * buffers[operation.before.name]
        out = np.empty_like(inputs)
        for slot, indexes in tokens.sequences():
            nothing = np.zeros((state.num_inputs, state.channels), self.dtype)
            before = self._inputs.get((operation.layer_idx, slot), nothing)
            before = before[: state.num_inputs + tokens.positions[indexes[0]]]  # what was fed again is forgotten
            rows = np.concatenate([before, inputs[indexes]])
            self._inputs[operation.layer_idx, slot] = rows
            result = convolve(rows[len(before) - state.num_inputs :], weight)
            out[indexes] = activate(result, "silu") if operation.activation == "silu" else result
        buffers[operation.out.name] = out if operation.after is None else out * buffers[operation.after.name]

    def _learn(
        self, operation: DeltaRule, buffers: dict[str, Array], tokens: _Tokens, typed: Callable[[str], Array]
    ) -> None:
        kept = operation.state
        decay = buffers[operation.decay.name] + typed(operation.shift)
        x, learn = buffers[operation.x.name], buffers[operation.learn.name]
        out = np.empty((len(x), operation.out.width), self.dtype)
        for slot, indexes in tokens.sequences():
            key, start = (operation.layer_idx, slot), int(tokens.positions[indexes[0]])
            if start == 0:
                self._states[key] = 0, np.zeros((kept.num_heads, kept.key_dim, kept.value_dim), self.dtype)
            length, state = self._states[key]
            assert length == start, "a state goes on from its own position alone"
            self._states[key] = start + len(indexes), state
            rate = typed(operation.rate)
            out[indexes] = delta_rule(operation, x[indexes], decay[indexes], learn[indexes], rate, state)
        buffers[operation.out.name] = out

    def _attend(self, operation: Attend, buffers: dict[str, Array], tokens: _Tokens, sinks: Array | None) -> None:
        q = buffers[operation.q.name].reshape(len(tokens.ids), operation.num_heads, operation.cache.head_dim)
        source = operation.layer_idx if operation.source_idx is None else operation.source_idx
        out = np.empty_like(q)
        for slot, indexes in tokens.sequences():
            out[indexes] = attend(
                q[indexes],
                self._keys[source, slot],
                self._values[source, slot],
                tokens.positions[indexes],
                scale=operation.scale,
                window=operation.cache.window,
                cap=operation.soft_cap,
                sinks=sinks,
            )
        buffers[operation.out.name] = out.reshape(len(tokens.ids), -1)
