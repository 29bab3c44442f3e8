"""What a caller may choose: when a model is loaded, and for each generation.

Owns names, defaults and ranges.  Does not know command lines, settings files or how a choice is carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from models.chat_template import RESERVED_VARIABLES, THINKING_VARIABLES
from runtime.adapters import AdapterChoice
from runtime.constraints import OutputConstraint
from runtime.devices.binding import Activations, CacheType
from runtime.errors import OptionError
from runtime.sampling import SamplingOptions
from runtime.speculation.options import SpeculationOptions
from runtime.validation import check_choice, check_integer

ACTIVATIONS = get_args(Activations)
CACHE_TYPES = get_args(CacheType)
ISA_LEVELS = ("auto", "avx512", "avxvnni", "avx2", "neon", "portable")

DEFAULT_KERNEL_FOLDER = Path("~/.cache/tandem/kernels")

DEVICES = ("auto", "cpu", "gpu")
GPU_LAYERS = ("auto", "all")
CPU_EXPERTS = ("auto", "all")
DEFAULT_VRAM_MARGIN_BYTES = 512 * 2**20

MAX_CONTEXT_SIZE = 2**24
MAX_GPU_LAYERS = 2**16
MAX_VRAM_MARGIN_BYTES = 2**50
MAX_THREADS = 2**16
MAX_BATCH_SIZE = 2**16
MAX_SEQUENCES = 1024
MAX_TOKENS = 2**31 - 1
MAX_LOGPROBS = 10_000
MAX_STOPS = 256

DeviceChoice = Literal["auto", "cpu", "gpu"] | int
PrefillProgress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How a model is loaded.  Refuses values that make no sense with OptionError.

    context_size: positions a sequence may have; None: the least of what was trained, 8192 and what fits in memory.
    threads: None: one for each fast core.  batch_size: tokens a step, the size of a prefill chunk.
    max_sequences: generations that share a step; more wait.  max_outputs: rows of logits a step.
    activations: how inputs of products are rounded.  isa: the instruction set, for tests and comparisons.
    kernel_folder: where compiled kernels are kept from one run to the next.
    speculation: guessing the next tokens ahead, and with what.
    device: "cpu" uses no GPU, "gpu" refuses to go without, "auto" takes one if there is one, the one with most memory
    free; a number: that one, as the driver counts, or none at all.  gpu_layers: so many of
    the last layers, and the head, on the GPU; "auto": as many as fit; numbers beyond the model's mean all.
    cpu_experts: of so many of the first layers the experts stay on the CPU, though the rest of a layer is on the GPU;
    "auto": where gpu_layers is "auto" too and not everything fits, those of as few layers as must.
    most_gpu_layers, least_cpu_experts: "auto" takes no more, leaves no fewer, though it would fit.
    vram_margin_bytes: of the GPU's memory, what stays free for others.
    adapters: LoRA adapters that change the model (not the one that guesses), all at once.
    chat_template: the name of a template that answers are going to ask for: loading refuses one that there is not.
    chat_template_file: a Jinja template that takes the place of the model's own.
    """

    context_size: int | None = None
    threads: int | None = None
    batch_size: int = 512
    cache_type_k: CacheType = "f16"
    cache_type_v: CacheType = "f16"
    activations: Activations = "balanced"
    isa: str = "auto"
    kernel_folder: Path = DEFAULT_KERNEL_FOLDER
    max_sequences: int = 1
    max_outputs: int = 32
    speculation: SpeculationOptions = field(default_factory=SpeculationOptions)
    device: DeviceChoice = "auto"
    gpu_layers: int | Literal["auto", "all"] = "auto"
    cpu_experts: int | Literal["auto", "all"] = "auto"
    most_gpu_layers: int | None = None
    least_cpu_experts: int = 0
    vram_margin_bytes: int = DEFAULT_VRAM_MARGIN_BYTES
    adapters: tuple[AdapterChoice, ...] = ()
    chat_template: str | None = None
    chat_template_file: Path | None = None

    def __post_init__(self) -> None:
        if self.context_size is not None:
            check_integer("context_size", self.context_size, low=1, high=MAX_CONTEXT_SIZE, flag="--ctx-size")
        if self.threads is not None:
            check_integer("threads", self.threads, low=1, high=MAX_THREADS, flag="--threads")
        check_integer("max_sequences", self.max_sequences, low=1, high=MAX_SEQUENCES, flag="--parallel")
        check_integer("batch_size", self.batch_size, low=self.max_sequences, high=MAX_BATCH_SIZE, flag="--batch-size")
        check_integer("max_outputs", self.max_outputs, low=self.max_sequences, high=MAX_BATCH_SIZE)
        check_choice("cache_type_k", self.cache_type_k, CACHE_TYPES, flag="--cache-type-k")
        check_choice("cache_type_v", self.cache_type_v, CACHE_TYPES, flag="--cache-type-v")
        check_choice("activations", self.activations, ACTIVATIONS, flag="--activations")
        self._check_device()
        self._check_gpu_layers()
        experts = self.cpu_experts
        is_number = isinstance(experts, int) and not isinstance(experts, bool) and 0 <= experts <= MAX_GPU_LAYERS
        if experts not in CPU_EXPERTS and not is_number:
            expected = f"a whole number from 0 to {MAX_GPU_LAYERS}, auto or all"
            raise OptionError(option="cpu_experts", flag="--n-cpu-moe", value=experts, expected=expected)
        if self.most_gpu_layers is not None:
            check_integer("most_gpu_layers", self.most_gpu_layers, low=0, high=MAX_GPU_LAYERS)
        check_integer("least_cpu_experts", self.least_cpu_experts, low=0, high=MAX_GPU_LAYERS)
        check_integer(
            "vram_margin_bytes", self.vram_margin_bytes, low=0, high=MAX_VRAM_MARGIN_BYTES, flag="--vram-margin"
        )
        check_choice("isa", self.isa, ISA_LEVELS, flag="--isa")

    @property
    def asks_for_gpu(self) -> bool:
        """Whether nothing is to be loaded without a GPU."""
        return self.device == "gpu" or isinstance(self.device, int) or self.gpu_layers not in ("auto", 0)

    def _check_device(self) -> None:
        is_number = isinstance(self.device, int) and not isinstance(self.device, bool) and self.device >= 0
        if self.device not in DEVICES and not is_number:
            expected = f"{', '.join(DEVICES)}, or the number of a GPU, as `tandem doctor` counts them"
            raise OptionError(option="device", flag="--device", value=self.device, expected=expected)

    def _check_gpu_layers(self) -> None:
        layers = self.gpu_layers
        is_number = isinstance(layers, int) and not isinstance(layers, bool) and 0 <= layers <= MAX_GPU_LAYERS
        if layers not in GPU_LAYERS and not is_number:
            expected = f"a whole number from 0 to {MAX_GPU_LAYERS}, auto or all"
            raise OptionError(option="gpu_layers", flag="--gpu-layers", value=layers, expected=expected)
        if (self.device == "cpu" and layers not in ("auto", 0)) or (self.asks_for_gpu and layers == 0):
            expected = f"layers on the device that --device {self.device} names, or no such flag"
            raise OptionError(option="gpu_layers", flag="--gpu-layers", value=layers, expected=expected)


@dataclass(frozen=True, kw_only=True)
class GenerateOptions:
    """How one answer is made.  Refuses values that make no sense with OptionError.

    max_tokens: None: until the context window is full.  stop: texts that end the answer, which ends before them.
    constraint: what the whole answer must look like; it ends with it, or says that it was cut ("length", "context").
    logprobs, prompt_logprobs: how many of the best tokens to report for each position (0: none); the latter computes
    the whole prompt anew.  raw: a text prompt is taken as it is, without the chat template.
    add_bos: None: as the vocabulary says; for raw text.  parse_special: whether `<|im_end|>` and the like in a prompt's
    text become control tokens; None: in raw text yes, in messages no.  enable_thinking: handed to the template.
    chat_template: the name of one of the file's templates; None: the one without a name, or `tool_use` where the
    variables have `tools`.  template_variables: others that it may read (reasoning_effort, say), JSON values by name.
    ignore_end: goes on after the model's end token.  reuse_prefix: may begin from what earlier prompts left.
    speculate: guesses may be made for it, if the engine does; they change nothing but the time.
    on_prefill(done, total): called from the engine's thread after each chunk of the prompt; must return soon.
    """

    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    constraint: OutputConstraint | None = None
    logprobs: int = 0
    prompt_logprobs: int = 0
    raw: bool = False
    add_bos: bool | None = None
    parse_special: bool | None = None
    enable_thinking: bool | None = None
    chat_template: str | None = None
    template_variables: Mapping[str, Any] = field(default_factory=dict)
    ignore_end: bool = False
    reuse_prefix: bool = True
    speculate: bool = True
    on_prefill: PrefillProgress | None = None

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            check_integer("max_tokens", self.max_tokens, low=0, high=MAX_TOKENS, flag="--predict")
        check_integer("logprobs", self.logprobs, low=0, high=MAX_LOGPROBS, flag="--logprobs")
        check_integer("prompt_logprobs", self.prompt_logprobs, low=0, high=MAX_LOGPROBS, flag="--prompt-logprobs")
        is_valid = isinstance(self.stop, tuple) and all(isinstance(text, str) and text for text in self.stop)
        if not is_valid or len(self.stop) > MAX_STOPS:
            expected = f"up to {MAX_STOPS} texts that are not empty"
            raise OptionError(option="stop", flag="--stop", value=self.stop, expected=expected)
        self._check_variables()
        if self.stop and self.constraint is not None:
            expected = "none beside a schema or grammar, which says itself where the answer ends"
            raise OptionError(option="stop", flag="--stop", value=self.stop, expected=expected)

    @property
    def leaves_thinking_open(self) -> bool:
        """Whether nothing was chosen of what tells a template to let the model think or not."""
        return self.enable_thinking is None and not any(name in self.template_variables for name in THINKING_VARIABLES)

    def _check_variables(self) -> None:
        given = self.template_variables
        is_valid = isinstance(given, Mapping) and all(isinstance(name, str) and name.isidentifier() for name in given)
        if not is_valid or any(name in RESERVED_VARIABLES for name in given):
            expected = f"a JSON object of names, none of them {' or '.join(RESERVED_VARIABLES)}, and their values"
            raise OptionError(
                option="template_variables", flag="--chat-template-kwargs", value=given, expected=expected
            )
