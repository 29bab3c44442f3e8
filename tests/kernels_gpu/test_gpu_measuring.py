"""What `make bench-gpu` measures: every kernel is launched as the steps launch it, and memory comes back."""

from __future__ import annotations

from emulated_device import EmulatedDevice

from kernels_gpu.measuring import CardMeter, Sizes

SMALL = Sizes(
    rows=64, columns=256, tokens=9, positions=70, num_heads=4, num_kv_heads=2, head_dim=32, spread_bytes=1 << 15,
    copied_bytes=1 << 12, blocks=2, rounds=3, repeats=2,
)  # fmt: skip


def test_every_kernel_is_measured_and_memory_given_back() -> None:
    device = EmulatedDevice()
    meter = CardMeter(device, SMALL)
    copy = meter.copy()
    assert copy.moved_bytes == 1 << 13 and copy.bytes_per_s > 0
    rate = meter.int8_rate()
    assert rate.operations == 2 * 4 * 3 * 8 * 2 * 16 * 8 * 32 and rate.operations_per_s > 0
    products = meter.products("Q4_K", 2)
    assert [found.name for found in products] == [*(f"Q4_K product_{count}" for count in (1, 2, 4, 8)), "Q4_K prompt"]
    assert products[0].moved_bytes == 64 * 256 // 32 * 18 + 64 * 4 + 256 // 32 * (64 + 12) + 4 * 64
    assert products[-1].operations == 2 * 9 * 2 * 64 * 256
    one, many = meter.attention(("f16", "q8_0"))
    assert one.operations == 4 * 128 * 70
    assert many.operations == 4 * 128 * sum(range(62, 71))
    assert all(found.elapsed_ms > 0 and found.operations_per_s > 0 for found in (*products, one, many))
    assert device.memory().free_bytes == device.total_bytes
