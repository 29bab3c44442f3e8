"""The room can be imported where there is neither a driver nor CuPy, and costs little until it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_module_imports_without_cupy_and_without_the_compiler() -> None:
    names = sorted(f"kernels_gpu.{path.stem}" for path in (ROOT / "kernels_gpu").glob("*.py") if path.stem[0] != "_")
    program = (
        "import sys, importlib\n"
        "sys.modules['cupy'] = None\n"
        f"[importlib.import_module(name) for name in {names}]\n"
        "from kernels_gpu.nvrtc import load_nvrtc\n"
        "print(load_nvrtc.cache_info().currsize, 'numba' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "0 False\n"
    assert "kernels_gpu.cupy_device" in names
