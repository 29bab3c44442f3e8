"""Products on the emulated tensor cores, Turing's and newer ones', against gguf.quants in float64."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_device import EmulatedDevice
from gguf import GGMLQuantizationType, quants
from gpu_bench import PLACES, Array, Bench, Place, bench, make_records
from tiny_models import random_rows

from kernels_gpu.layout import PLANE_FORMATS, defines_for
from kernels_gpu.repacking import repack
from models.formats import FORMATS

TERMS = {name: 1 + idx % 2 for idx, name in enumerate(PLANE_FORMATS)}
TURING = ("-U__CUDA_ARCH__", "-D__CUDA_ARCH__=750")
STORE, ADD = 0, 1


def product(stand: Bench, format_name: str, x: Array, raw: Array, before: Array, mode: int) -> tuple[Array, Array]:
    """The kernel's answer, and the float64 values of x that it had."""
    (count, columns), rows = x.shape, len(raw)
    records, values = make_records(x, TERMS[format_name], count + 1)
    out = stand.put(before)
    bias = np.arange(rows, dtype=np.float32)
    stand.run(
        "prefill.cu", "product_prefill", stand.put(repack(format_name, raw, columns)), rows, columns // 32,
        stand.put(records), count + 1, count, stand.put(bias), 0.75, mode, out, before.shape[1],
        grid=(-(-rows // 64), -(-count // 64)), block=128, defines=defines_for(format_name, TERMS[format_name]),
    )  # fmt: skip
    return stand.get(out, before.shape), values


@pytest.mark.parametrize(
    ("format_name", "flags"), [*((name, ()) for name in PLANE_FORMATS), ("Q4_K", TURING), ("Q6_K", TURING)]
)
def test_a_product_on_tensor_cores_equals_the_oracle(format_name: str, flags: tuple[str, ...]) -> None:
    rows, count = 70, 67
    columns = 512 if FORMATS[format_name].block_elements == 256 else 288
    raw = random_rows(format_name, (rows, columns), np.random.default_rng(1), std=columns**-0.5)
    weights = quants.dequantize(raw, GGMLQuantizationType(FORMATS[format_name].ggml_id)).astype(np.float64)
    x = np.random.default_rng(2).standard_normal((count, columns)).astype(np.float32)
    before = np.random.default_rng(3).standard_normal((count, rows + 2)).astype(np.float32)
    stand = Bench(EmulatedDevice(order="shuffled", extra_flags=flags))
    found, values = product(stand, format_name, x, raw, before, ADD)
    expected = before.astype(np.float64)
    expected[:, :rows] += 0.75 * (values @ weights.reshape(rows, columns).T + np.arange(rows))
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=3e-5)


@pytest.mark.parametrize("place", PLACES)
def test_the_cut_of_a_prompt_changes_no_bit(place: Place) -> None:
    rows, columns, count = 20, 256, 70
    raw = random_rows("Q4_K", (rows, columns), np.random.default_rng(1), std=columns**-0.5)
    x = np.random.default_rng(2).standard_normal((count, columns)).astype(np.float32)
    stand = bench(place)

    def done(part: Array) -> Array:
        return product(stand, "Q4_K", part, raw, np.full((len(part), rows), np.nan, np.float32), STORE)[0]

    pieces = [done(x[:1]), done(x[1:9]), done(x[9:])]
    np.testing.assert_array_equal(np.concatenate(pieces), done(x))
