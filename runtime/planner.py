"""The choice of context size and number of GPU layers that memory allows, and what to say when it allows none.

Owns the search.  Does not know models or devices: it asks a function what a setting would cost.  That price never
falls with a larger context or, on the GPU, with more layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from models.transfers import size_text
from runtime.devices.binding import PAGE_SIZE, CacheType
from runtime.errors import CapacityError, DeviceError
from runtime.memory import DeviceBill, MemoryBill

DEFAULT_CONTEXT_SIZE = 8192
# Below this a default would be of no use to anyone.
MIN_DEFAULT_CONTEXT_SIZE = 256
# Each keeps keys and values in fewer bits than the one before.
_CACHE_TYPES: tuple[CacheType, ...] = ("f16", "q8_0", "q4_0")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What memory depends on.  gpu_layers: so many of the last layers, and the head with them unless there are none.

    cpu_experts: of so many of the first layers the experts are on the CPU in any case.
    """

    context_size: int
    gpu_layers: int
    cache_type_k: CacheType
    cache_type_v: CacheType
    cpu_experts: int = 0


Price = Callable[[Setting], MemoryBill]
"""What a setting costs.  Raises DeviceError for what a device can't run."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What was asked for.  context_size None: the least of what was trained, 8192 and what fits.

    gpu_layers None: as many of num_layers as fit, and of most_layers if that is less.  can_use_gpu: whether there is a
    GPU.  expert_layers: how many of the first layers hold all experts, 0 where there are none; cpu_experts: of so many
    the experts stay on the CPU; moves_experts: of more, where more layers fit so (only with gpu_layers None).
    """

    trained_context_size: int
    num_layers: int
    context_size: int | None = None
    gpu_layers: int | None = 0
    most_layers: int | None = None
    can_use_gpu: bool = False
    cache_type_k: CacheType = "f16"
    cache_type_v: CacheType = "f16"
    expert_layers: int = 0
    cpu_experts: int = 0
    moves_experts: bool = False

    def setting(self, context_size: int, gpu_layers: int) -> Setting:
        """With the types that were asked for."""
        return Setting(
            context_size=context_size,
            gpu_layers=gpu_layers,
            cache_type_k=self.cache_type_k,
            cache_type_v=self.cache_type_v,
            cpu_experts=self.cpu_experts,
        )


def choose(wish: Wish, price: Price) -> MemoryBill:
    """The bill for what was asked for, or for the best that fits where that was left open.

    The context comes first: layers fill what it leaves.  Raises CapacityError, with the nearest settings that fit, when
    nothing does.
    """
    bill = nearest_bill(wish, price)
    if not bill.fits:
        raise too_large(bill, wish, price)
    return bill


def nearest_bill(wish: Wish, price: Price) -> MemoryBill:
    """The same, or the bill of the least that was asked for when that does not fit."""
    wanted = wish.context_size or min(wish.trained_context_size, DEFAULT_CONTEXT_SIZE)
    bill = _with_context(wish, wanted, price)
    if bill.fits:
        return bill
    smallest = min(wanted, MIN_DEFAULT_CONTEXT_SIZE)
    if wish.context_size is None:
        found = _largest_context(smallest, wanted, lambda size: _with_context(wish, size, price))
        if found is not None:
            return found
        return _with_context(wish, smallest, price)
    return bill


def largest_context(wish: Wish, gpu_layers: int, price: Price, *, most: int) -> int | None:
    """The largest context of whole pages up to `most` with which everything fits; None when not even a page does."""
    found = _largest_context(
        min(PAGE_SIZE, most), most, lambda size: price(wish.setting(size, gpu_layers)), includes_most=True
    )
    return None if found is None else found.context_size


def most_layers(wish: Wish, context_size: int, price: Price, *, most: int) -> MemoryBill:
    """The bill with as many layers on the GPU as it can spare memory for, up to `most`; the CPU may yet lack room."""
    bill = price(wish.setting(context_size, 0))
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        tried = _priced(wish.setting(context_size, middle), price)
        part = tried.on("gpu") if tried is not None else None
        if tried is not None and (part is None or part.fits):
            low, bill = middle, tried
        else:
            high = middle - 1
    return bill


def least_cpu_experts(wish: Wish, context_size: int, gpu_layers: int, price: Price) -> MemoryBill | None:
    """The bill with so many layers on the GPU, and as few layers' experts on the CPU as let it fit; None if none do."""
    low, high, best = wish.cpu_experts, wish.expert_layers, None
    while low <= high:
        middle = (low + high) // 2
        tried = _priced(replace(wish, cpu_experts=middle).setting(context_size, gpu_layers), price)
        part = tried.on("gpu") if tried is not None else None
        if tried is not None and (part is None or part.fits):
            high, best = middle - 1, tried
        else:
            low = middle + 1
    return best if best is not None and best.fits else None


def experts_flag(wish: Wish, bill: MemoryBill) -> str:
    """What chooses a bill's experts on the CPU."""
    return "--cpu-moe" if bill.cpu_experts >= wish.expert_layers else f"--n-cpu-moe {bill.cpu_experts}"


def _with_context(wish: Wish, context_size: int, price: Price) -> MemoryBill:
    if wish.gpu_layers is not None:
        return price(wish.setting(context_size, wish.gpu_layers))
    most = wish.num_layers if wish.most_layers is None else min(wish.num_layers, wish.most_layers)
    found = most_layers(wish, context_size, price, most=most if wish.can_use_gpu else 0)
    if not wish.moves_experts or not wish.can_use_gpu or found.gpu_layers == most:
        return found
    return _without_experts(wish, found, most, price)


def _without_experts(wish: Wish, found: MemoryBill, most: int, price: Price) -> MemoryBill:
    """A bill with more layers on the GPU than were found to fit whole, for the experts of some stay behind, or that.

    Of its experts a token uses a few, of the rest of a layer everything, and keys and values besides: what a card has
    room for is better spent on the latter.
    """
    kept = least_cpu_experts(wish, found.context_size, most, price)
    if kept is not None:
        return kept
    bare = replace(wish, cpu_experts=wish.expert_layers)
    fewer = most_layers(bare, found.context_size, price, most=most)
    return fewer if fewer.gpu_layers > found.gpu_layers and fewer.fits else found


def _largest_context(
    smallest: int, largest: int, bill_of: Callable[[int], MemoryBill], *, includes_most: bool = False
) -> MemoryBill | None:
    """The bill of the largest number of positions, in whole pages beyond the smallest, that fits below the largest."""
    best = bill_of(smallest)
    if not best.fits:
        return None
    if includes_most and (bill := bill_of(largest)).fits:
        return bill
    low, high = smallest // PAGE_SIZE, -(-largest // PAGE_SIZE)
    while high - low > 1:
        middle = (low + high) // 2
        bill = bill_of(middle * PAGE_SIZE)
        if bill.fits:
            low, best = middle, bill
        else:
            high = middle
    return best


def _priced(setting: Setting, price: Price) -> MemoryBill | None:
    """None for what a device can't run."""
    try:
        return price(setting)
    except DeviceError:
        return None


def too_large(bill: MemoryBill, wish: Wish, price: Price) -> CapacityError:
    """What to say about a bill that does not fit."""
    device = next(device for device in bill.devices if not device.fits)
    budget = device.budget_bytes or 0
    nearest = list(_nearest(bill, wish, price))
    advice = (
        f"What fits: {', or '.join(nearest)}."
        if nearest
        else "Choose a smaller context size or a smaller model, or close other programs."
    )
    return CapacityError(
        f"{_described(bill, device)} {size_text(device.total_bytes)} ({device}), and {_where(device)} can spare "
        f"{size_text(budget)}. {advice}",
        needed_bytes=device.total_bytes,
        available_bytes=budget,
    )


def _described(bill: MemoryBill, device: DeviceBill) -> str:
    layers = f"{bill.gpu_layers} {'layer' if bill.gpu_layers == 1 else 'layers'}"
    if device.kind == "gpu":
        return f"With a context of {bill.context_size} tokens, {layers} and the head take"
    rest = f" and {layers} on the GPU" if bill.gpu_layers else ""
    return f"With a context of {bill.context_size} tokens{rest}, the model takes"


def _where(device: DeviceBill) -> str:
    return "this machine" if device.kind == "cpu" else f"the {device.name}"


def _nearest(bill: MemoryBill, wish: Wish, price: Price) -> Iterator[str]:
    """Flags of settings that fit, each changing as little as it can."""
    context_size, layers = bill.context_size, bill.gpu_layers
    wish = replace(wish, cpu_experts=max(wish.cpu_experts, bill.cpu_experts))
    if wish.can_use_gpu:
        other = most_layers(wish, context_size, price, most=wish.num_layers)
        if other.fits and other.gpu_layers != layers:
            yield f"-ngl {other.gpu_layers}"
        experts = least_cpu_experts(wish, context_size, layers, price) if wish.expert_layers and layers else None
        if experts is not None:
            yield experts_flag(wish, experts)
    smaller = largest_context(wish, layers, price, most=context_size)
    if smaller is not None and smaller >= MIN_DEFAULT_CONTEXT_SIZE:
        yield f"-c {smaller}"
    for cache_type in _smaller_types(wish):
        packed = replace(wish, cache_type_k=cache_type, cache_type_v=cache_type)
        try:
            size = largest_context(packed, layers, price, most=context_size)
        except DeviceError:  # heads that do not fill a block, or a device without such keys
            continue
        if size is not None and size > max(smaller or 0, MIN_DEFAULT_CONTEXT_SIZE - 1):
            shorter = "" if size == context_size else f"-c {size} with "
            yield f"{shorter}-ctk {cache_type} -ctv {cache_type}"
            if size == context_size:
                return


def _smaller_types(wish: Wish) -> tuple[CacheType, ...]:
    """Types in fewer bits than the larger of those that were asked for."""
    return _CACHE_TYPES[min(map(_CACHE_TYPES.index, (wish.cache_type_k, wish.cache_type_v))) + 1 :]
