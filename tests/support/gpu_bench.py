"""A place to try single GPU kernels on: arrays in, arrays out.

Owns the moving of arrays and the records of activations, as kernels_gpu/sources/records.cuh lays them out.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from emulated_device import ORDERS, EmulatedDevice, Order

from kernels_gpu.cupy_device import open_card
from kernels_gpu.device import Device, Region

SOURCES = Path(__file__).resolve().parents[2] / "kernels_gpu" / "sources"
Array = np.ndarray[Any, np.dtype[Any]]


Place = Order | Literal["card"]
PLACES = [*ORDERS, pytest.param("card", marks=pytest.mark.gpu)]
"""Where a case is tried: on the emulator, its lanes in three orders, and on this machine's GPU (`make test-gpu`)."""


@cache
def the_card() -> Device:
    """This machine's GPU."""
    return open_card(Path(tempfile.gettempdir()) / f"tandem-cubins-{os.getuid()}")


def device_at(place: Place) -> Device:
    return the_card() if place == "card" else EmulatedDevice(order=place)


@dataclass
class Bench:
    """A card and one kernel after another."""

    device: Device = field(default_factory=EmulatedDevice)

    def __post_init__(self) -> None:
        self.stream = self.device.new_stream()

    def put(self, array: Array) -> Region:
        """A copy on the card, in an allocation of its own so that overruns are noticed."""
        region = self.device.allocate(max(array.nbytes, 1), "a test")
        self.device.upload(region, np.ascontiguousarray(array), self.stream)
        self.stream.wait()
        return region

    def empty(self, size_bytes: int) -> Region:
        """Poisoned memory."""
        return self.put(np.full(size_bytes, 0xFF, np.uint8))

    def get(self, region: Region, shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
        """What lies there, after looking for overruns."""
        self.stream.wait()
        out = np.empty(shape, dtype)
        self.device.download(out, region, self.stream)
        self.stream.wait()
        return out

    def run(
        self,
        source: str,
        kernel: str,
        *arguments: Region | int | float | None,
        grid: tuple[int, ...],
        block: int,
        defines: Sequence[str] = (),
        shared_bytes: int = 0,
    ) -> None:
        """Launches a kernel; regions and None are pointers."""
        loaded = self.device.load(SOURCES / source, defines, [kernel])[kernel]
        self.device.launch(
            loaded,
            grid=grid,
            block=(block,),
            arguments=[_scalar(value) for value in arguments],
            stream=self.stream,
            shared_bytes=shared_bytes,
        )


def bench(place: Place) -> Bench:
    return Bench(device_at(place))


def _scalar(value: Region | int | float | None) -> np.generic:
    match value:
        case None:
            return np.uint64(0)
        case Region():
            return value.pointer
        case float():
            return np.float32(value)
        case _:
            return np.int32(value)


def record_bytes(capacity: int, columns: int, terms: int) -> int:
    """Bytes of a buffer of records."""
    return capacity * columns // 32 * (32 * terms + 12)


def make_records(x: Array, terms: int, capacity: int) -> tuple[Array, Array]:
    """The records of x [T, columns] as bytes, poisoned beyond T, and the float64 values that they stand for."""
    tokens, columns = x.shape
    units = x.reshape(tokens, -1, 32).astype(np.float32)
    most = np.abs(units).max(axis=-1, keepdims=True)
    scale = most / np.float32(127 * 256 if terms == 2 else 127)
    inverse = np.where(scale > 0, np.float32(1) / np.where(scale > 0, scale, np.float32(1)), np.float32(0))
    q = np.rint(units * inverse).astype(np.int32)
    upper = (q + 128) >> 8 if terms == 2 else q
    planes = [upper, q - 256 * upper][:terms]
    out = [np.full((capacity, columns), -1, np.int8) for _ in planes]
    for plane, codes in zip(out, planes, strict=True):
        plane[:tokens] = codes.reshape(tokens, columns)
    scales = np.full((capacity, columns // 32), -1, np.int32).view(np.float32)
    scales[:tokens] = scale[..., 0]
    sums = np.full((capacity, columns // 32, 2), -1, np.int32)
    sums[:tokens] = q.reshape(tokens, -1, 2, 16).sum(axis=-1)
    data = b"".join(part.tobytes() for part in (*out, scales, sums))
    values = q.astype(np.float64) * scale.astype(np.float64)
    return np.frombuffer(data, np.uint8), values.reshape(tokens, columns)
