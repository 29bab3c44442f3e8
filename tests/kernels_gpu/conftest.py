"""The GPU's tests are for systems that can have such a GPU.

macOS has neither NVIDIA's compiler nor a driver, and the emulator finds shared memory as Linux libraries lay it out.
"""

from __future__ import annotations

import sys

collect_ignore_glob = ["test_*.py"] if sys.platform == "darwin" else []
