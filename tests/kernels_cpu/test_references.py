"""Every architecture on the kernels against another implementation, and the same bits however it is fed."""

from __future__ import annotations

import pytest
import references
from cpu_models import bound, limits_of
from kernels import LEVELS, same_bits
from references import path_of, references_of, relative_error


@pytest.mark.parametrize("name", references.NAMES)
def test_kernels_give_the_logits_of_another_implementation(name: str) -> None:
    for reference in references_of(name):
        ids, context = reference.ids.tolist(), reference.context_size or 128
        with bound(path_of(name), limits=limits_of(context=context), context_size=reference.context_size) as model:
            whole = model.logits(ids)
        assert relative_error(whole, reference.logits) < 3e-3  # most of it by the cache's float16
        for level, threads, size in ((LEVELS[0], 2, 7), (LEVELS[-1], 1, 1), (LEVELS[len(LEVELS) // 2], 3, 17)):
            with bound(
                path_of(name), isa=level, threads=threads, limits=limits_of(context=context),
                context_size=reference.context_size, seed=size,
            ) as model:  # fmt: skip
                assert same_bits(model.logits(ids, size=size), whole)
