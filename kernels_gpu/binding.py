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

from kernels_gpu.arena import Arena
from kernels_gpu.candidates import CandidateFinder, CandidateRoom, Candidates
from kernels_gpu.device import Device, Event, Graph, Kernel, Region
from kernels_gpu.launches import BatchShape, Launch, Module, Places
from kernels_gpu.layout import PLANE_ALIGNMENT
from kernels_gpu.plan import STEP_TOKENS, GpuBill, GpuLimits, Plan, make_bill, make_plan, page_bytes, spans_for
from kernels_gpu.precision import Precision
from kernels_gpu.steps import SOURCES, StepMaker
from kernels_gpu.upload import Uploader
from models.program import Rope
from models.segments import Segment

if TYPE_CHECKING:
    from models.gguf_file import ModelFile

MAX_GRAPHS = 16  # batch shapes whose launches are kept as graphs
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class GpuOptions:
    """activations: how inputs of products are rounded.  kept_candidates: how many `best` gives, 0 for none."""

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
    if not options.kept_candidates or not segment.gives_logits:
        return None
    size = segment.program.vocab_size
    return CandidateRoom(kept=options.kept_candidates, max_rows=limits.max_outputs, vocab_size=size)


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
        self._steps = StepMaker(self.segment, file.tensors, plan, self.limits, options.activations)
        self._kernels = self._load(self._steps.modules(), progress)
        self._page_bytes = {
            idx: page_bytes(layer.num_kv_heads, layer.head_dim, self.limits.cache_types)
            for idx, layer in self.segment.layers.items()
        }
        self._steps.places = self._places = Places(
            matrices=uploader.matrices,
            vectors=uploader.vectors,
            caches={idx: kv.take(self.limits.num_pages * size) for idx, size in self._page_bytes.items()},
            workspace={name: workspace.take(size) for name, size in plan.pieces(self.segment, self.limits).items()},
        )
        room = _room(self.segment, self.limits, options)
        self._finder = None
        if room:
            taken = {name: workspace.take(size) for name, size in room.pieces().items()}
            self._finder = CandidateFinder(self.device, room, taken)
        # What no kernel writes, the ends of rows that are no multiple of 32, must not be NaNs.
        self.device.clear(workspace.region, self._stream)
        uploader.upload(file, (lambda done, total: progress("weights", done, total)) if progress else None)
        for idx, rope in enumerate(plan.ropes):
            self.device.upload(self._places.workspace[f"rope {idx}"], self._angles(rope), self._stream)
            self._stream.wait()
        self._prepare_host(plan)

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

    def _prepare_host(self, plan: Plan) -> None:
        limits, program = self.limits, self.segment.program
        tokens = limits.max_batch_tokens
        counts = {"token_ids": tokens, "positions": tokens, "slots": tokens, "outputs": limits.max_outputs}
        self._host = {name: self.device.host_array((count,), np.int32) for name, count in counts.items()}
        tables = (limits.max_sequences, limits.table_row)
        self._host["page_tables"] = self.device.host_array(tables, np.int32)
        result = program.logits if self.segment.gives_logits else program.hidden
        area = plan.areas[result.name]
        self._result_width, self._result_name = result.width, f"floats {result.name}"
        self._result = self.device.host_array((area.rows, area.stride), np.float32)
        self._hidden = self.device.host_array(
            (limits.max_batch_tokens, plan.areas[program.hidden.name].stride), np.float32
        )

    def run(
        self,
        token_ids: np.ndarray | None,
        positions: np.ndarray,
        slots: np.ndarray,
        page_tables: np.ndarray,
        outputs: np.ndarray,
        hidden: np.ndarray | None = None,
        *,
        is_prefill: bool = False,
        is_downloaded: bool = True,
    ) -> np.ndarray | None:
        """One batch; the result is valid until the next run; None when it was cancelled.

        A segment that takes tokens needs token_ids [T], another one hidden float32 [T, width].  One that gives logits
        returns them, float32 [outputs, vocabulary]; another returns the hidden state of every token, [T, width].
        is_downloaded: False leaves the logits on the card, for `best`; what is returned is then anything.
        is_prefill: the tokens are a prompt's; tensor cores do them, whose sums round otherwise than those of decode.
        """
        if not self.begin(
            token_ids, positions, slots, page_tables, outputs, hidden, is_prefill=is_prefill,
            first_row=0 if is_downloaded else None,
        ):  # fmt: skip
            self.finish(0)
            return None
        return self.finish(len(outputs) if self.segment.gives_logits else len(positions))

    def begin(
        self,
        token_ids: np.ndarray | None,
        positions: np.ndarray,
        slots: np.ndarray,
        page_tables: np.ndarray,
        outputs: np.ndarray,
        hidden: np.ndarray | None = None,
        *,
        is_prefill: bool = False,
        first_row: int | None = 0,
    ) -> bool:
        """Queues a batch, as `run` takes it, and returns while the card computes; False when it was cancelled.

        first_row: where its rows of the result begin, so that several batches may be queued before `finish`; None
        leaves them on the card.  Waits until the batch before has been taken up.
        """
        count, num_outputs = len(positions), len(outputs)
        if self._cancelled.is_set():
            return False
        self.device.use()
        self._wait_for_upload()
        started = self._stream.record()
        self._upload("positions", positions)
        self._upload("slots", slots)
        self._upload("outputs", outputs)
        self._upload("page_tables", page_tables)
        if self.segment.takes_tokens:
            assert token_ids is not None, "a segment with the embedding takes tokens"
            self._upload("token_ids", token_ids)
        else:
            assert hidden is not None, "a segment without the embedding takes the hidden state"
            self._hidden[:count, : hidden.shape[1]] = hidden
            target = self._places.workspace[f"floats {self.segment.program.hidden.name}"]
            self.device.upload(target, self._hidden[:count], self._stream)
        self._uploaded = uploaded = self._stream.record()
        spans = spans_for(int(positions.max()), self.limits)
        shape = BatchShape(num_tokens=count, num_outputs=num_outputs, spans=spans, is_prefill=is_prefill)
        if not self._compute(shape):
            return False
        computed = self._stream.record()
        rows = num_outputs if self.segment.gives_logits else count
        if rows and first_row is not None:
            target = self._result[first_row : first_row + rows]
            self.device.download(target, self._places.workspace[self._result_name], self._stream)
        self._queued.append((started, uploaded, computed, self._stream.record()))
        return True

    def finish(self, num_rows: int) -> np.ndarray | None:
        """Waits for what was queued; its first rows [num_rows, width], valid until the next `begin`; None when it was
        cancelled."""
        queued, self._queued, self._uploaded = self._queued, [], None
        self.device.use()
        self._stream.wait()
        for started, uploaded, computed, downloaded in queued:
            copying_ms = uploaded.elapsed_ms(started) + downloaded.elapsed_ms(computed)
            self.times.add(gpu_ms=computed.elapsed_ms(uploaded), transfer_ms=copying_ms)
        return None if self._is_cancelled() else self._result[:num_rows, : self._result_width]

    def _wait_for_upload(self) -> None:
        """What was copied from is free to be written again."""
        if self._uploaded is not None:
            self._uploaded.wait()

    def _upload(self, name: str, values: np.ndarray) -> None:
        host = self._host[name]
        host[: len(values)] = values
        if len(values):
            self.device.upload(self._places.workspace[name], host[: len(values)], self._stream)

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
            while len(self._graphs) >= MAX_GRAPHS:
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
        # Without outputs the head has nothing to do, and a grid without blocks is an error.
        return [launch for launch in self._steps.launches(shape) if 0 not in launch.grid]

    def _queue(self, launch: Launch) -> None:
        self.device.launch(
            self._kernels[launch.module, launch.kernel],
            grid=launch.grid,
            block=(launch.block,),
            arguments=launch.arguments,
            stream=self._stream,
            shared_bytes=launch.shared_bytes,
        )

    def best(self, rows: int) -> Candidates:
        """The best candidates of the first `rows` rows of the last run's logits."""
        assert self._finder is not None, "this model was bound without candidates"
        self.device.use()
        logits = self._places.workspace[self._result_name]
        return self._finder.find(logits, self._result.shape[1], rows, self._stream)

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

    def cache_of(self, layer_idx: int) -> Region:
        """Where K and V of a layer lie."""
        return self._places.caches[layer_idx]

    def close(self) -> None:
        """Gives the memory back.  May be called twice."""
        self._graphs.clear()
        for arena in self._arenas:
            arena.close()
        self._arenas = []
