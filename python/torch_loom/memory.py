# SPDX-License-Identifier: BSD-3-Clause
"""Device memory: how much is used, by what, and how to give it back.

*Allocated* memory belongs to live tensors; *reserved* memory was taken from the host and is either
allocated or cached. *Scratch* memory is what kernels work in; threads keep it for the next one.
The allocator keeps reserved and scratch memory together below the device's limit; kernels get the
scratch memory that they need. All sizes are bytes. Every function may be called from any thread.
"""

import pickle
import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch

from . import _C
from ._summary import format_summary
from ._utils import DeviceLike, _get_device_index, device_name
from .device import _lazy_init

__all__ = [
    "MemPool",
    "allocation_name",
    "empty_cache",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_allocation_name",
    "set_per_process_memory_fraction",
    "use_mem_pool",
]


def empty_cache() -> None:
    r"""Give the cached memory of all devices back to the host.

    Memory of live tensors, and what another stream still uses, stays. So does scratch memory of
    threads that have a kernel under way or wait for one awake, until they go to sleep.
    """
    torch._C._accelerator_emptyCache()


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    r"""Return what :func:`memory_stats` returns, as nested dictionaries."""
    index = _get_device_index(device, optional=True)
    stats: dict[str, Any] = torch._C._accelerator_getDeviceStats(index)
    stats["scratch_bytes"] = {"all": _C._scratch_stats(index)}
    return stats


def memory_stats(device: DeviceLike = None) -> "OrderedDict[str, int]":
    r"""Return the statistics of the caching allocator, by the names that CUDA gives them.

    ``"{allocated,reserved,active,inactive_split,requested}_bytes.{all,large_pool,small_pool}.
    {current,peak,allocated,freed}"`` are bytes, ``"{allocation,segment,active,inactive_split}..."``
    numbers of blocks; ``"scratch_bytes.all..."`` are the bytes that kernels work in, beside the
    reserved ones; ``num_alloc_retries``, ``num_ooms``, ``num_sync_all_streams``,
    ``num_device_alloc`` and ``num_device_free`` count events.

    Args:
        device (torch.device or str or int, optional): the device. Default: the current device.
    """
    flat: OrderedDict[str, int] = OrderedDict()

    def flatten(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key in sorted(value):
                flatten(f"{prefix}.{key}" if prefix else key, value[key])
        else:
            flat[prefix] = value

    flatten("", memory_stats_as_nested_dict(device))
    return flat


def memory_allocated(device: DeviceLike = None) -> int:
    r"""Return the bytes in live tensors of a device."""
    return memory_stats(device)["allocated_bytes.all.current"]


def max_memory_allocated(device: DeviceLike = None) -> int:
    r"""Return the most bytes in live tensors since :func:`reset_peak_memory_stats`."""
    return memory_stats(device)["allocated_bytes.all.peak"]


def memory_reserved(device: DeviceLike = None) -> int:
    r"""Return the bytes that the allocator of a device holds, used or cached."""
    return memory_stats(device)["reserved_bytes.all.current"]


def max_memory_reserved(device: DeviceLike = None) -> int:
    r"""Return the most bytes held since :func:`reset_peak_memory_stats`."""
    return memory_stats(device)["reserved_bytes.all.peak"]


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    r"""Let the peaks of a device start again from the current values."""
    torch._C._accelerator_resetPeakStats(_get_device_index(device, optional=True))


def memory_cached(device: DeviceLike = None) -> int:
    r"""Return :func:`memory_reserved`, which was called so once."""
    return memory_reserved(device)


def max_memory_cached(device: DeviceLike = None) -> int:
    r"""Return :func:`max_memory_reserved`, which was called so once."""
    return max_memory_reserved(device)


def reset_max_memory_allocated(device: DeviceLike = None) -> None:
    r"""Do what :func:`reset_peak_memory_stats` does: all peaks start again, as in CUDA."""
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: DeviceLike = None) -> None:
    r"""Do what :func:`reset_peak_memory_stats` does: all peaks start again, as in CUDA."""
    reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    r"""Set the totals (``allocated``, ``freed``, ``num_*``) of a device back to zero."""
    torch._C._accelerator_resetAccumulatedStats(_get_device_index(device, optional=True))


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    r"""Return the free and the total bytes of a device.

    The total is ``LOOM_MEMORY_LIMIT`` or the device's share of the host's memory; free is what of
    it is neither reserved nor scratch memory.
    """
    return torch._C._accelerator_getMemoryInfo(_get_device_index(device, optional=True))


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    r"""Limit a device to a share of its memory; beyond it, ``torch.OutOfMemoryError`` is raised.

    Args:
        fraction (float): the share, more than 0 and at most 1.
        device (torch.device or str or int, optional): the device. Default: the current device.

    Raises:
        RuntimeError: when ``fraction`` is out of range.
    """
    _C._set_memory_fraction(_get_device_index(device, optional=True), fraction)


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    r"""Return the share of its memory that a device may use, 1.0 unless it was set."""
    return _C._get_memory_fraction(_get_device_index(device, optional=True))


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    r"""Return the statistics of a device as a table for people.

    Args:
        device (torch.device or str or int, optional): the device. Default: the current device.
        abbreviated (bool): whether to leave out the rows of the small and the large pool.
    """
    index = _get_device_index(device, optional=True)
    return format_summary(index, memory_stats(index), abbreviated)


def host_memory_stats() -> dict[str, int]:
    r"""Return the statistics of the pinned host memory: ``allocated_bytes`` and its like."""
    return _C._host_memory_stats()


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    r"""Return what :func:`host_memory_stats` returns, as nested dictionaries."""
    nested: dict[str, Any] = {}
    for key, value in host_memory_stats().items():
        *parts, last = key.split(".")
        place = nested
        for part in parts:
            place = place.setdefault(part, {})
        place[last] = value
    return nested


def reset_peak_host_memory_stats() -> None:
    r"""Let the peaks of the pinned host memory start again from the current values."""
    _C._reset_peak_host_memory_stats()


def reset_accumulated_host_memory_stats() -> None:
    r"""Set the totals of the pinned host memory back to zero."""
    _C._reset_accumulated_host_memory_stats()


def set_allocation_name(tensor: torch.Tensor, name: str) -> None:
    r"""Name the memory of a loom tensor.

    The name stands in memory snapshots and in messages about stray accesses, and is saved with the
    tensor by :func:`torch.save`.

    Args:
        tensor (Tensor): a loom tensor; its views share the name.
        name (str): at most 256 bytes, no control characters; an empty name takes the name away.

    Raises:
        RuntimeError: when ``tensor`` is not on loom.
        ValueError: when ``name`` is too long or has control characters.
    """
    _C._set_allocation_name(tensor, name)


def allocation_name(tensor: torch.Tensor) -> str:
    r"""Return the name of the memory of a loom tensor, ``""`` when it has none."""
    return _C._allocation_name(tensor)


class MemPool:
    r"""A pool of device memory of its own, for :func:`use_mem_pool`.

    Memory that was taken from the pool goes back to it, and to the system when the pool is gone and
    :func:`empty_cache` is called. The arguments are accepted for code written for CUDA.

    Args:
        allocator (optional): must be ``None``: pools take their memory from loom's allocator.
        use_on_oom (bool): accepted; a pool keeps its memory to itself.
        no_split (bool): accepted; segments are split as anywhere.

    Raises:
        ValueError: when there is an ``allocator``.
    """

    def __init__(
        self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False
    ) -> None:
        if allocator is not None:
            raise ValueError(
                f"torch.{device_name()}.MemPool: expected allocator=None, got {allocator!r}: pools "
                "take their memory from loom's allocator"
            )
        self._id = _C._graph_pool_handle()
        self._devices: list[int] = []  # a reference to the pool of each, as often as it is there

    def __del__(self) -> None:
        for index in getattr(self, "_devices", ()):
            _C._release_pool(index, self._id)

    @property
    def id(self) -> tuple[int, int]:
        r"""The id of the pool, as graphs take it."""
        return self._id

    def use_count(self) -> int:
        r"""Return 1 and one for each time that the pool was used: each keeps its memory."""
        return 1 + len(self._devices)

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        r"""Return the segments of the pool, of all devices."""
        return [
            segment
            for segment in memory_snapshot()
            if tuple(segment["segment_pool_id"]) == self._id
        ]


@contextmanager
def use_mem_pool(pool: MemPool, device: DeviceLike = None) -> Iterator[None]:
    r"""Context manager in which the calling thread's tensors of a device come from a pool.

    Args:
        pool (MemPool): the pool.
        device (torch.device or str or int, optional): the device. Default: the current device.
    """
    index = _get_device_index(device, optional=True)
    _lazy_init()
    _C._begin_allocate_to_pool(index, pool.id)
    pool._devices.append(index)
    try:
        yield
    finally:
        _C._end_allocate_to_pool(index, pool.id)


def memory_snapshot() -> list[dict[str, Any]]:
    r"""Return the segments of all devices with their blocks, as :mod:`torch.cuda` has them."""
    segments: list[dict[str, Any]] = _snapshot()["segments"]
    return segments


def _snapshot(device: DeviceLike = None) -> dict[str, Any]:
    r"""Return segments and, where it is recorded, history, in the form of the memory visualiser.

    Args:
        device (torch.device or str or int, optional): accepted for code written for CUDA; the
            snapshot covers all devices.
    """
    return _C._memory_snapshot()


def _dump_snapshot(filename: str = "dump_snapshot.pickle") -> None:
    r"""Write :func:`_snapshot` to a file that https://pytorch.org/memory_viz reads."""
    with Path(filename).open("wb") as file:
        pickle.dump(_snapshot(), file)


def _record_memory_history(
    enabled: Literal["state", "all"] | None = "all",
    context: Literal["state", "alloc", "all"] | None = "all",
    stacks: Literal["python", "all"] = "python",
    max_entries: int = sys.maxsize,
    device: DeviceLike = None,
    clear_history: bool = False,
) -> None:
    r"""Start or stop recording the history of allocations, of all devices.

    Args:
        enabled (str, optional): ``None`` stops, anything else starts recording.
        context (str, optional): ``None`` records no stacks.
        stacks (str): ``"all"`` records C++ frames beside those of Python.
        max_entries (int): how many entries are kept for each device; older ones are dropped.
        device (torch.device or str or int, optional): accepted for code written for CUDA.
        clear_history (bool): whether to drop what was recorded before.

    Raises:
        ValueError: when an argument has another value than those above.
    """
    choices: tuple[tuple[str, object, tuple[object, ...]], ...] = (
        ("enabled", enabled, (None, "state", "all")),
        ("context", context, (None, "state", "alloc", "all")),
        ("stacks", stacks, ("python", "all")),
    )
    for name, value, allowed in choices:
        if value not in allowed:
            raise ValueError(
                f"torch.{device_name()}.memory._record_memory_history: expected {name} in "
                f"{allowed}, got {value!r}"
            )
    if clear_history:
        _C._record_memory_history(0, False, False)
    if enabled is None:
        max_entries = 0
    elif enabled == "state":
        max_entries = min(max_entries, 1 << 20)
    _C._record_memory_history(max_entries, context is not None, stacks == "all")
