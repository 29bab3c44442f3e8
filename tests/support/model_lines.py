"""The lines of docs/models.md that come from recorded models alone: architectures, and where llama.cpp differs.

Owns their cells.  What our kernels give is computed by whoever asks for it (scripts/make_models_table.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oracle import FileWeights, Oracle
from peers import DIFFERENCES, peer_like_logits, peer_of
from references import NAMES, Reference, path_of, references_of, relative_error

from models.description import load_description
from models.gguf_file import open_model_file


@dataclass(frozen=True, kw_only=True)
class ArchitectureLine:
    """One tiny model, loaded for one length of contexts."""

    name: str
    reference: Reference
    architecture: str
    formats: str
    numpy_error: float
    peer_errors: tuple[float, float] | None

    def cells(self, kernel_cells: Sequence[str]) -> str:
        """As a row of the table; kernel_cells: our kernels' error, and how often they find the same token likeliest."""
        short = " (short contexts)" if self.reference.context_size else ""
        theirs = "- | -" if self.peer_errors is None else " | ".join(f"{error:.1e}" for error in self.peer_errors)
        return (
            f"| {self.name}{short} | `{self.architecture}` | {self.formats} | {self.reference.source}"
            f" | {self.numpy_error:.1e} | {' | '.join(kernel_cells)} | {theirs} |"
        )


def architecture_lines(names: Sequence[str] = NAMES) -> Iterator[ArchitectureLine]:
    """In the table's order."""
    for name in names:
        for reference in references_of(name):
            with open_model_file(path_of(name)) as file:
                description = load_description(file, context_size=reference.context_size)
                exact = Oracle(description.program, FileWeights(file)).logits(reference.ids.tolist())
            peer = None if reference.context_size else peer_of(name)
            yield ArchitectureLine(
                name=name,
                reference=reference,
                architecture=description.architecture.name,
                formats=", ".join(use.name for use in description.formats),
                numpy_error=relative_error(exact, reference.logits),
                peer_errors=None
                if peer is None
                else (relative_error(peer.plain, reference.logits), relative_error(peer.rounded, reference.logits)),
            )


def difference_lines() -> Iterator[str]:
    """Where llama.cpp computes something else than the reference."""
    for name, difference in DIFFERENCES.items():
        (reference, *_), peer = references_of(name), peer_of(name)
        assert peer is not None
        near = relative_error(peer_like_logits(name, reference.ids), peer.plain)
        yield f"- {name}: llama.cpp {difference.words} ({near:.1e} apart with that)."
