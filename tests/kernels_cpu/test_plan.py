"""What a program is planned to need: matrices, records, buffers, steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from cpu_models import KINDS, Kind, bound, limits_of
from kernels import LEVELS

from kernels_cpu import binding
from kernels_cpu.activations import Precision
from kernels_cpu.binding import OPERAND_BYTES, write_table
from kernels_cpu.isa import choose
from kernels_cpu.plan import Plan, padded_tokens
from kernels_cpu.planning import make_plan
from kernels_cpu.step_pieces import Step
from models.description import load_description
from models.gguf_file import open_model_file
from models.segments import Segment, whole

LIMITS = limits_of(tokens=64, outputs=5)
LEVEL = choose(LEVELS[0])


def planned(kind: Kind, folder: Path, precision: Precision = "balanced") -> tuple[Plan, Segment]:
    with open_model_file(kind.write(folder)) as file:
        segment = whole(load_description(file).program)
        return make_plan(segment, file.tensors, LIMITS, LEVEL, precision), segment


def steps_of(kind: Kind, folder: Path, precision: Precision = "balanced", threads: int = 2) -> list[Step]:
    """The steps that a bound model lays out."""
    found: list[Step] = []

    def spy(program: int, blocks: int, steps: list[Step], addresses: dict[str, int], header: int) -> None:
        found.extend(steps)
        write_table(program, blocks, steps, addresses, header)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binding, "write_table", spy)
        with bound(kind.write(folder), activations=precision, threads=threads, limits=LIMITS):
            return found


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_steps_fit_in_what_is_reserved_for_them(kind: Kind, tmp_path: Path) -> None:
    plan, _ = planned(kind, tmp_path)
    steps = steps_of(kind, tmp_path)
    assert 0 < len(steps) <= plan.num_steps
    assert all(8 * len(step.layout.names) <= OPERAND_BYTES for step in steps)
    assert steps[-1].waits


@pytest.mark.parametrize("precision", ["fast", "balanced", "exact"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_product_finds_its_records(kind: Kind, precision: Precision, tmp_path: Path) -> None:
    products = [step for step in steps_of(kind, tmp_path, precision) if step.kernel.startswith("product-")]
    assert products and all(step.values["records"] for step in products)
    terms = {step.kernel.rsplit("-", 1)[1] for step in products}
    # Gemma's feed-forward is sensitive, so balanced keeps two terms of its inputs too.
    balanced = {"2"} if kind.architecture == "gemma3" else {"1", "2"}
    assert terms == {"fast": {"1"}, "balanced": balanced, "exact": {"2"}}[precision]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_chunks_cover_every_row(kind: Kind, tmp_path: Path) -> None:
    for step in (step for threads in (1, 7) for step in steps_of(kind, tmp_path, threads=threads)):
        if step.kernel.startswith("product"):
            groups, per_chunk = step.values["num_groups"], step.values["groups_per_chunk"]
            assert step.fixed == -(-groups // per_chunk) and step.fixed * per_chunk >= groups
            assert step.per_chunk == step.values["tokens_per_chunk"] and step.per_chunk % 8 == 0


def test_gate_and_up_stand_together_where_they_share_a_format(tmp_path: Path) -> None:
    for kind, is_shared in ((KINDS[0], True), (KINDS[2], False)):
        plan, _ = planned(kind, tmp_path)
        pair = ("blk.0.ffn_gate.weight", "blk.0.ffn_up.weight")
        assert (pair in plan.matrices) is is_shared and ((pair[0],) in plan.matrices) is not is_shared
        kernels = [step.kernel for step in steps_of(kind, tmp_path)]
        assert ("row-gate" in kernels) is not is_shared


def test_a_tied_head_is_packed_once(tmp_path: Path) -> None:
    plan, _ = planned(KINDS[4], tmp_path)
    assert [names for names in plan.matrices if "token_embd.weight" in names] == [("token_embd.weight",)]
    assert not any("output.weight" in names for names in plan.matrices)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_only_wanted_rows_reach_the_head(kind: Kind, tmp_path: Path) -> None:
    plan, segment = planned(kind, tmp_path)
    logits, hidden = segment.program.logits, segment.program.hidden
    assert plan.areas[logits.name].rows == 5 and plan.areas[hidden.name].rows == 64
    assert {area.rows for area in plan.areas.values()} == {5, 64}


def test_room_for_records_is_for_whole_tiles() -> None:
    assert [padded_tokens(count) for count in (1, 2, 3, 4, 5, 8, 9)] == [1, 4, 4, 4, 8, 8, 12]
