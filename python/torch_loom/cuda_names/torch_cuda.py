# SPDX-License-Identifier: BSD-3-Clause
"""The module ``torch.cuda``, answered by ``torch.loom`` where its own code cannot answer."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import torch.cuda.nvtx
import torch.cuda.profiler

from .. import device as devices, loom, memory, nvtx
from .._utils import DeviceLike, _get_device_index
from .changes import Changes
from .context import is_on
from .native import visible_devices

__all__ = ["CAPABILITY", "DeviceProperties", "apply"]

CAPABILITY = (8, 0)
"""What devices claim to be: the first generation with bfloat16 and TF32, before any with 8 bit
floats, so that programs take no branch for what loom does not have."""

# Same name, same meaning. torch.cuda's own code stays where it works on top of these and of
# torch._C._cuda_*; torch.compile follows loom's functions for streams.
_FROM_LOOM = (
    "Event",
    "MemPool",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "_exchange_device",
    "_get_generator",
    "_get_rng_state_offset",
    "_is_in_bad_fork",
    "_lazy_init",
    "_maybe_exchange_device",
    "_set_rng_state_offset",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_memory_used",
    "device_of",
    "empty_cache",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "get_sync_debug_mode",
    "graph_pool_handle",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_current_stream_capturing",
    "is_initialized",
    "list_gpu_processes",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "memory_usage",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "set_sync_debug_mode",
    "stream",
    "synchronize",
    "use_mem_pool",
    "utilization",
)


@dataclass(frozen=True)
class DeviceProperties:
    """What ``torch.cuda.get_device_properties`` returns. The unknown has the values of an A100."""

    name: str
    total_memory: int
    multi_processor_count: int
    L2_cache_size: int
    major: int = CAPABILITY[0]
    minor: int = CAPABILITY[1]
    gcnArchName: str = ""  # noqa: N815  # PyTorch's name
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    max_threads_per_block: int = 1024
    max_threads_per_multi_processor: int = 2048
    regs_per_multiprocessor: int = 65536
    shared_memory_per_block: int = 48 << 10
    shared_memory_per_block_optin: int = 163 << 10
    shared_memory_per_multiprocessor: int = 164 << 10
    warp_size: int = 32
    clock_rate: int = 1_000_000
    memory_clock_rate: int = 1_000_000
    memory_bus_width: int = 64
    pci_bus_id: int = 0
    pci_device_id: int = 0
    pci_domain_id: int = 0
    uuid: str = "00000000-0000-0000-0000-000000000000"


def device_count() -> int:
    """Return how many devices a program sees."""
    return visible_devices()


device_count._dynamo_marked_constant = True  # type: ignore[attr-defined]


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """Describe a device of loom as one of CUDA."""
    index = _get_device_index(device, optional=True)
    if not 0 <= index < torch.cuda.device_count():
        raise AssertionError("Invalid device id")  # as torch.cuda
    found = devices.get_device_properties(index)
    return DeviceProperties(
        name=found.name,
        total_memory=found.total_memory,
        multi_processor_count=found.core_count,
        L2_cache_size=found.l2_cache,
        uuid=f"00000000-0000-0000-0000-{index:012d}",
    )


def _note_first_use() -> None:
    # What torch.utils.checkpoint and others read before they save the state of generators.
    if is_on():
        torch.cuda._initialized = True


def _lazy_call(call: Any, **_: Any) -> None:
    devices._lazy_call(call)


def _record_memory_history(enabled: Any = "all", *args: Any, **named: Any) -> None:
    if isinstance(enabled, bool):  # the older form
        enabled = "all" if enabled else None
        named = {"max_entries": named.get("trace_alloc_max_entries", 1)}
        args = ()
    known = ("context", "stacks", "max_entries", "device", "clear_history")
    memory._record_memory_history(
        enabled,
        *args,
        **{name: value for name, value in named.items() if name in known},
    )


def _memory_snapshot(mempool_id: Any = None, include_traces: bool = True) -> list[dict[str, Any]]:
    segments = memory.memory_snapshot()
    if mempool_id is None:
        return segments
    return [s for s in segments if tuple(s.get("segment_pool_id", ())) == tuple(mempool_id)]


def _dump_snapshot(filename: str = "dump_snapshot.pickle", *_: Any, **__: Any) -> None:
    memory._dump_snapshot(filename)


def _set_allocator_settings(env: str) -> None:
    torch._C._accelerator_setAllocatorSettings(env)


class _Ranges:
    """What ``torch.cuda.nvtx`` calls."""

    rangePushA = staticmethod(nvtx.range_push)  # noqa: N815  # NVIDIA's names
    rangePop = staticmethod(nvtx.range_pop)  # noqa: N815
    rangeStartA = staticmethod(nvtx.range_start)  # noqa: N815
    rangeEnd = staticmethod(nvtx.range_end)  # noqa: N815
    markA = staticmethod(nvtx.mark)  # noqa: N815

    @staticmethod
    def deviceRangeStart(message: str, stream: int) -> int:  # noqa: N802
        return nvtx.range_start(message)

    @staticmethod
    def deviceRangeEnd(range_id: int, stream: int) -> None:  # noqa: N802
        nvtx.range_end(range_id)


class _Runtime:
    """What ``torch.cuda.cudart()`` returns: the calls that mean something here."""

    cudaError = SimpleNamespace(success=0)  # noqa: N815  # NVIDIA's names

    @staticmethod
    def cudaProfilerStart() -> int:  # noqa: N802
        return 0

    @staticmethod
    def cudaProfilerStop() -> int:  # noqa: N802
        return 0

    @staticmethod
    def cudaMemGetInfo(device: int) -> tuple[int, int]:  # noqa: N802
        return memory.mem_get_info(device)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"torch.cuda.cudart(): expected one of cudaMemGetInfo, cudaProfilerStart and "
            f"cudaProfilerStop, got {name}: loom has no CUDA runtime. Use torch.cuda's functions"
        )


def _cuda_stream(stream: torch.Stream) -> int:
    return stream.stream_id


def apply(changes: Changes) -> None:
    """Let ``torch.cuda`` and its modules answer."""
    cuda = torch.cuda
    modules = (cuda, cuda.memory, cuda.random, cuda.streams, cuda.graphs)
    answers: dict[str, Any] = {name: getattr(loom, name) for name in _FROM_LOOM}
    answers |= {
        "_CudaDeviceProperties": DeviceProperties,
        "_cudart": _Runtime(),
        "device_count": device_count,
        "_dump_snapshot": _dump_snapshot,
        "_get_device_properties": get_device_properties,
        "_lazy_call": _lazy_call,
        "_record_memory_history": _record_memory_history,
        "_set_allocator_settings": _set_allocator_settings,
        "_snapshot": lambda device=None, *_, **__: memory._snapshot(device),
        "get_device_properties": get_device_properties,
        "has_magma": True,  # torch's tests take it for: there are decompositions
        "memory_snapshot": _memory_snapshot,
    }
    for name, answer in answers.items():
        for module in modules:
            if name in vars(module) or module is cuda:
                changes.set(module, name, answer)
    changes.set(cuda.nvtx, "_nvtx", _Ranges())
    changes.set(cuda, "_initialized", devices.is_initialized())
    devices._lazy_call(_note_first_use)
    # What libraries of NVIDIA take for streams: the number of the stream, and no pointer.
    changes.set(loom.Stream, "cuda_stream", property(_cuda_stream))
