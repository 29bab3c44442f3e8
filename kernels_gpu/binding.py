"""A segment of a program bound to a card: weights uploaded, buffers allocated, launches laid out; `run` does a batch.

Owns the card's memory and the graphs of one model.  Does not know sequences, sampling or text.  Nothing is allocated
after `bind`: what `plan.make_bill` says is what is taken.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Event as Flag
from typing import TYPE_CHECKING

import numpy as np

from kernels_gpu import candidates
from kernels_gpu.arena import Arena
from kernels_gpu.candidates import CandidateRoom, Candidates
from kernels_gpu.device import Device, Event, Graph, Kernel, Region
from kernels_gpu.exchange import Exchange
from kernels_gpu.launches import BatchShape, Best, Launch, Module, Places
from kernels_gpu.layout import PLANE_ALIGNMENT
from kernels_gpu.modules import SOURCES, modules_of
from kernels_gpu.plan import STEP_TOKENS, GpuBill, GpuLimits, Plan, make_bill, page_bytes, spans_for
from kernels_gpu.planning import make_plan
from kernels_gpu.precision import Precision
from kernels_gpu.steps import StepMaker
from kernels_gpu.upload import Uploader
from models.program import Rope
from models.segments import Segment

if TYPE_CHECKING:
    from models.gguf_file import ModelFile

MAX_GRAPHS = 16  # batch shapes whose launches are kept as graphs, for each run
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class GpuOptions:
    """activations: how inputs of products are rounded.  kept_candidates: how many can be found at most, 0: none."""

    activations: Precision
    kept_candidates: int = 0


@dataclass
class GpuTimes:
    """Milliseconds since the model was bound: of the card's kernels, and of copies to and from it."""

    gpu_ms: float = 0.0
    transfer_ms: float = 0.0

    def add(self, *, gpu_ms: float, transfer_ms: float) -> None:
        """A batch more."""
        self.gpu_ms += gpu_ms
        self.transfer_ms += transfer_ms


def bill(segment: Segment, file: ModelFile, limits: GpuLimits, options: GpuOptions) -> GpuBill:
    """What `bind` will allocate, without allocating it.  Raises UnsupportedError."""
    plan = make_plan(segment, file.tensors, limits, options.activations)
    return _bill(plan, segment, limits, options)


def _room(segment: Segment, limits: GpuLimits, options: GpuOptions) -> CandidateRoom | None:
    if not options.kept_candidates or not segment.has_head:
        return None
    size = segment.program.vocab_size
    most = min(options.kept_candidates, size)
    return CandidateRoom(most=most, max_rows=limits.max_outputs, vocab_size=size)


def _bill(plan: Plan, segment: Segment, limits: GpuLimits, options: GpuOptions) -> GpuBill:
    made, room = make_bill(plan, segment, limits), _room(segment, limits, options)
    return replace(made, workspace_bytes=made.workspace_bytes + room.size_bytes) if room else made


def bind(
    segment: Segment,
    file: ModelFile,
    limits: GpuLimits,
    options: GpuOptions,
    device: Device,
    progress: Progress | None = None,
) -> GpuModel:
    """Compiles what the segment needs, uploads the weights, allocates everything else; the file may be closed after it.

    progress(what, done, total): "kernels" (modules loaded) and "weights" (bytes uploaded); an exception in it ends the
    binding.  Raises GpuError and UnsupportedError; everything is given back then.
    """
    return GpuModel(segment, file, limits, options, device, progress)


class GpuModel:
    """A bound segment.  One thread at a time calls everything but `cancel`."""

    def __init__(
        self,
        segment: Segment,
        file: ModelFile,
        limits: GpuLimits,
        options: GpuOptions,
        device: Device,
        progress: Progress | None,
    ) -> None:
        self.segment, self.limits, self.device = segment, limits, device
        self._arenas: list[Arena] = []
        self._cancelled = Flag()
        self._stream = device.new_stream()
        self._graphs: OrderedDict[BatchShape, Graph] = OrderedDict()
        self._met: set[BatchShape] = set()
        self._uploaded: Event | None = None  # of the batch that was queued last
        self._queued: list[tuple[Event, Event, Event, Event]] = []
        self.times = GpuTimes()
        try:
            plan = make_plan(segment, file.tensors, limits, options.activations)
            self.bill = _bill(plan, segment, limits, options)
            self._build(plan, file, options, progress)
        except BaseException:
            self.close()
            raise

    def _build(self, plan: Plan, file: ModelFile, options: GpuOptions, progress: Progress | None) -> None:
        uploader = Uploader(plan, self.device, self._stream)
        uploader.place(self._arena(self.bill.weights_bytes, "the weights"))
        kv = self._arena(self.bill.kv_bytes, "the KV cache")
        workspace = self._arena(self.bill.workspace_bytes, "the workspace")
        room = _room(self.segment, self.limits, options)
        modules = modules_of(self.segment, plan, self.limits, options.activations)
        self._kernels = self._load([*modules, candidates.MODULE] if room else modules, progress)
        self._page_bytes = {
            idx: page_bytes(layer.num_kv_heads, layer.head_dim, self.limits.cache_types)
            for idx, layer in self.segment.layers.items()
        }
        self._places = places = Places(
            matrices=uploader.matrices,
            vectors=uploader.vectors,
            caches={idx: kv.take(self.limits.num_pages * size) for idx, size in self._page_bytes.items()},
            workspace={
                name: workspace.take(size)
                for name, size in {**plan.pieces(self.segment, self.limits), **(room.pieces() if room else {})}.items()
            },
        )
        self._steps = StepMaker(
            segment=self.segment, plan=plan, limits=self.limits, precision=options.activations, places=places
        )
        self.most_candidates = room.most if room else 0
        # What no kernel writes, the ends of rows that are no multiple of 32, must not be NaNs.
        self.device.clear(workspace.region, self._stream)
        uploader.upload(file, (lambda done, total: progress("weights", done, total)) if progress else None)
        for idx, rope in enumerate(plan.ropes):
            self.device.upload(self._places.workspace[f"rope {idx}"], self._angles(rope), self._stream)
            self._stream.wait()
        self._exchange = Exchange(
            self.segment, plan, self.limits, self.device, self._places.workspace, self.most_candidates
        )

    def _arena(self, size_bytes: int, purpose: str) -> Arena:
        assert size_bytes % PLANE_ALIGNMENT == 0, "a bill of uneven pieces"
        arena = Arena(self.device, size_bytes, purpose)
        self._arenas.append(arena)
        return arena

    def _load(self, modules: list[Module], progress: Progress | None) -> dict[tuple[Module, str], Kernel]:
        kernels: dict[tuple[Module, str], Kernel] = {}
        for idx, module in enumerate(modules):
            loaded = self.device.load(SOURCES / module.source, module.defines, module.kernels)
            kernels |= {(module, name): kernel for name, kernel in loaded.items()}
            if progress:
                progress("kernels", idx + 1, len(modules))
        return kernels

    def _angles(self, rope: Rope) -> np.ndarray:
        """Cosine and sine of every position and pair: in float64, then rounded."""
        phase = np.arange(self.limits.context_size)[:, None] * np.array(rope.frequencies, np.float64)
        turns = np.stack([np.cos(phase), np.sin(phase)], axis=-1) * rope.magnitude
        return turns.astype(np.float32)

    def run(
        self,
        token_ids: np.ndarray | None,
        positions: np.ndarray,
        slots: np.ndarray,
        page_tables: np.ndarray,
        outputs: np.ndarray,
        hidden: np.ndarray | None = None,
        *,
        run_idx: int = 0,
        is_prefill: bool = False,
    ) -> np.ndarray | None:
        """One run of the segment for a batch; the result is valid until the next one; None when it was cancelled.

        A run that takes tokens needs token_ids [T], another one hidden float32 [T, width].  One that gives logits
        returns them, float32 [outputs, vocabulary]; another returns the hidden state of every token, [T, width].
        is_prefill: the tokens are a prompt's; tensor cores do them, whose sums round otherwise than those of decode.
        """
        given = (token_ids, positions, slots, page_tables, outputs, hidden)
        is_begun = self.begin(*given, run_idx=run_idx, is_prefill=is_prefill)
        if not self._is_done() or not is_begun:
            return None
        if self.segment.gives_logits(run_idx):
            return self._exchange.rows(len(outputs))
        return self._exchange.hidden(0, len(positions))

    def begin(
        self,
        token_ids: np.ndarray | None,
        positions: np.ndarray,
        slots: np.ndarray,
        page_tables: np.ndarray,
        outputs: np.ndarray,
        hidden: np.ndarray | None = None,
        *,
        run_idx: int = 0,
        is_prefill: bool = False,
        first_row: int = 0,
        best: Best | None = None,
    ) -> bool:
        """Queues a batch, as `run` takes it, and returns while the card computes; False when it was cancelled.

        first_row: where its rows of the result begin, so that several batches may be queued before `finish`.  best:
        these are to come back, in place of the logits, to `finish_best`; the same for all that are queued together.
        Waits until the batch before has been taken up.
        """
        count, num_outputs, gives_logits = len(positions), len(outputs), self.segment.gives_logits(run_idx)
        assert (hidden is None) == self.segment.takes_tokens(run_idx), "a run takes tokens or the hidden state"
        if self._cancelled.is_set():
            return False
        self.device.use()
        self._wait_for_upload()
        started = self._stream.record()
        self._exchange.upload(
            token_ids, hidden, self._stream, positions=positions, slots=slots, outputs=outputs, page_tables=page_tables
        )
        self._uploaded = uploaded = self._stream.record()
        spans = spans_for(int(positions.max()), self.limits)
        shape = BatchShape(
            num_tokens=count,
            num_outputs=num_outputs if gives_logits else 0,
            spans=spans,
            run_idx=run_idx,
            is_prefill=is_prefill,
            best=best,
        )
        if not self._compute(shape):
            return False
        computed = self._stream.record()
        if gives_logits:
            self._exchange.download(num_outputs, first_row, best, self._stream)
        else:
            self._exchange.download_hidden(count, first_row, self._stream)
        self._queued.append((started, uploaded, computed, self._stream.record()))
        return True

    @property
    def last_queued(self) -> Event:
        """When the result of the run that was queued last is there."""
        return self._queued[-1][-1]

    def hidden(self, arrival: Event, first_row: int, count: int) -> np.ndarray:
        """Waits for a run that was queued; the hidden state that it left, float32 [count, width]."""
        self.device.use()
        arrival.wait()
        return self._exchange.hidden(first_row, count)

    def finish(self, num_rows: int) -> np.ndarray | None:
        """Waits for what was queued; its first rows [num_rows, width], valid until the next `begin`; None when it was
        cancelled."""
        return self._exchange.rows(num_rows) if self._is_done() else None

    def finish_best(self, num_rows: int, best: Best) -> Candidates | None:
        """The same for what was queued with `best`."""
        return self._exchange.best(num_rows, best) if self._is_done() else None

    def _is_done(self) -> bool:
        """Waits; False when it was cancelled."""
        queued, self._queued, self._uploaded = self._queued, [], None
        self.device.use()
        self._stream.wait()
        for started, uploaded, computed, downloaded in queued:
            copying_ms = uploaded.elapsed_ms(started) + downloaded.elapsed_ms(computed)
            self.times.add(gpu_ms=computed.elapsed_ms(uploaded), transfer_ms=copying_ms)
        return not self._is_cancelled()

    def _wait_for_upload(self) -> None:
        """What was copied from is free to be written again."""
        if self._uploaded is not None:
            self._uploaded.wait()

    def _compute(self, shape: BatchShape) -> bool:
        """Queues everything; False when the run was cancelled meanwhile.

        A small batch of a shape that was met before is one graph.  The first of its kind is not: a driver loads a
        kernel when it is launched first, which it can't do while a graph is recorded.
        """
        if shape.num_tokens > STEP_TOKENS or shape not in self._met:
            self._met.add(shape)
            for launch in self._launches(shape):
                if self._cancelled.is_set():
                    return False
                self._queue(launch)
            return True
        graph = self._graphs.pop(shape, None)
        if graph is None:
            while len(self._graphs) >= MAX_GRAPHS * len(self.segment.runs):
                self._graphs.popitem(last=False)
            self._stream.begin_capture()
            try:
                for launch in self._launches(shape):
                    self._queue(launch)
            finally:
                graph = self._stream.end_capture()  # also after a failure: a stream that records can't be waited for
        self._graphs[shape] = graph
        graph.launch(self._stream)
        return True

    def _launches(self, shape: BatchShape) -> list[Launch]:
        found = self._steps.launches(shape)
        if shape.best is not None:
            assert shape.best.kept <= self.most_candidates, "more candidates than there is room for"
            found += candidates.launches(
                *self._exchange.logits_on_card, shape.num_outputs, shape.best, self._places.workspace
            )
        # Without outputs the head has nothing to do, and a grid without blocks is an error.
        return [launch for launch in found if 0 not in launch.grid]

    def _queue(self, launch: Launch) -> None:
        self.device.launch(
            self._kernels[launch.module, launch.kernel],
            grid=launch.grid,
            block=(launch.block,),
            arguments=launch.arguments,
            stream=self._stream,
            shared_bytes=launch.shared_bytes,
        )

    def copy_page(self, source: int, target: int) -> None:
        """Copies one page of every layer."""
        self.device.use()
        for idx, size in self._page_bytes.items():
            cache = self._places.caches[idx]
            self.device.copy(cache.part(target * size, size), cache.part(source * size, size), self._stream)
        self._stream.wait()

    def cancel(self) -> None:
        """From any thread: the current run, or the next one, gives None."""
        self._cancelled.set()

    def clear_cancel(self) -> None:
        """Forgets a cancel that came between runs."""
        self._cancelled.clear()

    def _is_cancelled(self) -> bool:
        """Whether a cancel came; it is forgotten then."""
        was_set = self._cancelled.is_set()
        self._cancelled.clear()
        return was_set

    @property
    def reserved(self) -> GpuBill:
        """What was really allocated, by what for."""
        weights, kv, workspace = (arena.region.size_bytes for arena in self._arenas)
        return GpuBill(weights_bytes=weights, kv_bytes=kv, workspace_bytes=workspace)

    def cache_of(self, layer_idx: int) -> Region:
        """Where K and V of a layer lie."""
        return self._places.caches[layer_idx]

    def close(self) -> None:
        """Gives the memory back.  May be called twice."""
        self._graphs.clear()
        for arena in self._arenas:
            arena.close()
        self._arenas = []
