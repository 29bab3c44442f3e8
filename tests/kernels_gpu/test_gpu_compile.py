"""GPU kernels compile for every architecture, without a driver: no spills, registers and shared memory in bounds."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

import pytest
from gpu_bench import SOURCES

from kernels_gpu import cubin_cache, nvrtc
from kernels_gpu.cubin_cache import Unit, compile_unit, cubin_path, key_of
from kernels_gpu.layout import PLANE_FORMATS, defines_for
from kernels_gpu.plan import attention_defines

ARCHITECTURES = ("75", "80", "86", "89", "90", "120")
# Of 128 threads five blocks a multiprocessor fit with 102, four with 128, three with 168, two with 224.
MOST_REGISTERS = dict.fromkeys(("product_8", "gated_8"), 168) | {
    "product_1": 102,
    "product_experts": 102,
    "product_2": 128,
    "gated_2": 128,
    "gated_4": 128,
    "product_prefill": 224,
    "prefill_experts": 224,
    "attend_prompt": 168,
}
OTHERS = ("rows.cu", "head.cu", "experts.cu", "int8_rate.cu")
_USE = re.compile(r"entry function '(\w+)'.*?(\d+) bytes spill stores.*?Used (\d+) registers(?:.*?(\d+) bytes smem)?")


def units() -> list[Unit]:
    """Every format of the products, architectures taken in turn; all else for every architecture."""
    found = [
        Unit(source=SOURCES / "product.cu", defines=defines_for(name, 1 + idx % 2), architecture=architecture)
        for idx, (name, architecture) in enumerate(zip(PLANE_FORMATS, cycle(ARCHITECTURES)))
    ]
    found += [
        Unit(source=SOURCES / "product_plain.cu", defines=defines_for(name, 1), architecture=architecture)
        for name, architecture in zip(("F32", "F16", "BF16"), ARCHITECTURES[::2], strict=True)
    ]
    # Each architecture once, and the formats that mixtures of experts come in.
    some = found[: len(ARCHITECTURES)]
    mixed = [unit for unit in found if "HAS_CODE_VALUES 1" in unit.defines]
    found += [replace(unit, source=SOURCES / name) for unit in some for name in ("prefill.cu", "product_experts.cu")]
    found += [replace(unit, source=SOURCES / "prefill_experts.cu") for unit in (some[0], some[-1], *mixed)]
    found += [Unit(source=SOURCES / name, defines=(), architecture=each) for name in OTHERS for each in ARCHITECTURES]
    return found + [
        Unit(source=SOURCES / name, defines=attention_defines(types), architecture=architecture)
        for name in ("attention.cu", "attention_prompt.cu")
        for types, architectures in (
            (("f16", "f16"), ARCHITECTURES),
            (("q8_0", "q8_0"), ("75", "120")),
            (("q4_0", "q4_0"), ("80", "89")),
        )
        for architecture in architectures
    ]


@dataclass(frozen=True)
class Texts:
    """What the compiler said of a unit, and the intermediate code that it made."""

    log: str
    ptx: str


def texts_of(unit: Unit) -> Texts:
    """Kept in the system's temporary folder by the cubin's own key."""
    key = key_of(unit, nvrtc.load_nvrtc().version)
    path = Path(tempfile.gettempdir()) / f"tandem-nvrtc-{os.getuid()}" / f"{key}.json"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        compiled = compile_unit(unit)
        assert compiled.cubin[:4] == b"\x7fELF"
        path.with_suffix(".new").write_text(json.dumps({"log": compiled.log, "ptx": compiled.ptx}))
        path.with_suffix(".new").replace(path)
    return Texts(**json.loads(path.read_text()))


@pytest.fixture(scope="module")
def logs() -> dict[str, str]:
    """What ptxas said of every unit, by a name for people."""
    wanted = units()
    with ThreadPoolExecutor(2) as pool:
        texts = [made.log for made in pool.map(texts_of, wanted)]
    names = [f"{unit.source.name} {' '.join(unit.defines)} sm_{unit.architecture}" for unit in wanted]
    return dict(zip(names, texts, strict=True))


def test_no_kernel_spills_or_takes_too_much(logs: dict[str, str]) -> None:
    for unit, log in logs.items():
        found = _USE.findall(log.replace("\n", " "))
        assert found, f"{unit}: no kernels in the log"
        for kernel, spilled, registers, shared in found:
            assert int(spilled) == 0, f"{unit}: {kernel} spills {spilled} bytes"
            most = MOST_REGISTERS.get(kernel, 96)
            if kernel == "product_4" and "HAS_EXPONENTS 1" in unit and "TERMS 2" in unit:
                most = 128  # four blocks a multiprocessor
            assert int(registers) <= most, f"{unit}: {kernel} uses {registers} registers, at most {most}"
            assert int(shared or 0) <= 48 * 1024, f"{unit}: {kernel} uses {shared} bytes of shared memory"


@pytest.mark.parametrize("format_name", ["Q4_0", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"])
def test_a_unit_takes_the_loads_that_the_header_says(format_name: str) -> None:
    planes = PLANE_FORMATS[format_name]
    unit = Unit(source=SOURCES / "product.cu", defines=defines_for(format_name, 1), architecture="86")
    entry = re.search(r"\.entry product_1\(.*?\n\}", texts_of(unit).ptx, re.DOTALL)
    assert entry
    has_sums = planes.zero_point != 0 or planes.minimum_sign != 0
    narrow = [planes.high_bytes, planes.sub_bytes, planes.scale_bytes]
    pieces = [planes.low_bytes] * planes.num_low_planes + narrow + [8] * has_sums + [16, 16]
    units = 3  # two at a time, and a rest
    expected = {
        "v4.u32": units * pieces.count(16),
        "v2.u32": units * pieces.count(8),
        "u32": units * pieces.count(4),
        "u16": units * pieces.count(2),
        "s8": units * int(planes.sub_bytes == 1),
        "u8": units * int(planes.scale_bytes == 1),
        "f32": units + 2,  # a record's scale; the bias and what is added to, once a row
    }
    found = Counter(re.findall(r"ld\.global\.(\S+)", entry[0]))
    assert found == {kind: count for kind, count in expected.items() if count}
    assert entry[0].count("dp4a") == 8 * units


def test_a_cubin_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = Unit(source=SOURCES / "rows.cu", defines=(), architecture="86")
    made: list[Unit] = []

    def count(wanted: Unit) -> nvrtc.Compiled:
        made.append(wanted)
        return compile_unit(wanted)

    monkeypatch.setattr(cubin_cache, "compile_unit", count)
    path = cubin_path(unit, tmp_path / "cubins")
    assert path.read_bytes()[:4] == b"\x7fELF"
    assert cubin_path(unit, tmp_path / "cubins") == path
    assert made == [unit]
    assert [found.name for found in path.parent.iterdir()] == [path.name]


def test_a_cubin_s_name_knows_everything_it_is_made_from(tmp_path: Path) -> None:
    for path in SOURCES.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    unit = Unit(source=tmp_path / "rows.cu", defines=("ONE 1",), architecture="86")
    first = key_of(unit, (13, 0))
    others = {
        key_of(unit, (13, 1)),
        key_of(replace(unit, architecture="89"), (13, 0)),
        key_of(replace(unit, defines=("ONE 2",)), (13, 0)),
    }
    (tmp_path / "portable.cuh").write_text("// another\n")
    others.add(key_of(unit, (13, 0)))
    assert len(others | {first}) == 5


def test_a_refused_source_comes_with_the_log(tmp_path: Path) -> None:
    (tmp_path / "wrong.cu").write_text("nonsense here;\n")
    with pytest.raises(nvrtc.CompileError, match=r"wrong\.cu could not be compiled.*nonsense"):
        compile_unit(Unit(source=tmp_path / "wrong.cu", defines=(), architecture="86"))
