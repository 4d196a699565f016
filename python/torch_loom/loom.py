# SPDX-License-Identifier: BSD-3-Clause
"""``torch.loom``: devices, streams, memory and random numbers of the loom device.

Names and meaning are those of :mod:`torch.cuda`, so that code written for one works on the other.
Importing the module starts nothing: threads exist from the first use of the device on. How many
cores kernels run on is what ``LOOM_THREADS`` and :func:`set_num_threads` say;
``torch.set_num_threads`` has no effect on loom.
"""

from typing import TYPE_CHECKING

import torch

from . import _C, _utils as _utils, amp, graphs, memory, nvtx, random, streams
from ._utils import DeviceLike, _get_device_index
from .amp import (
    get_amp_supported_dtype,
    get_autocast_dtype,
    is_autocast_enabled,
    is_bf16_supported,
    set_autocast_dtype,
    set_autocast_enabled,
)
from .device import (
    _at_exit as _at_exit,
    _exchange_device as _exchange_device,
    _is_in_bad_fork as _is_in_bad_fork,
    _lazy_init as _lazy_init,
    _maybe_exchange_device as _maybe_exchange_device,
    current_device,
    device,
    device_count,
    device_of,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_initialized,
    set_device,
    synchronize,
)
from .errors import is_error_stacks_enabled, set_error_stacks
from .fallback import (
    Fallback,
    fallbacks,
    get_sync_debug_mode,
    host_waits,
    reset_fallbacks,
    set_sync_debug_mode,
)
from .fusion import (
    FusedProgram,
    fusion,
    fusion_report,
    is_fusion_enabled,
    reset_fusion_report,
)
from .graphs import Graph, graph, graph_pool_handle, make_graphed_callables
from .memory import (
    MemPool,
    empty_cache,
    get_per_process_memory_fraction,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
    use_mem_pool,
)
from .monitor import device_memory_used, list_gpu_processes, memory_usage, utilization
from .random import (
    _get_generator as _get_generator,
    _get_rng_state_offset as _get_rng_state_offset,
    _set_rng_state_offset as _set_rng_state_offset,
    default_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    is_current_stream_capturing,
    set_stream,
    stream,
)
from .tensor_types import (
    BFloat16Tensor,
    BoolTensor,
    ByteTensor,
    CharTensor,
    DoubleTensor,
    FloatTensor,
    HalfTensor,
    IntTensor,
    LongTensor,
    ShortTensor,
)
from .threads import get_num_threads, set_num_threads

OutOfMemoryError = torch.OutOfMemoryError
__version__ = _C.__version__


def get_arch_list() -> list[str]:
    """Return the instruction sets that kernels use here, ``["AVX2"]`` for example."""
    return sorted({get_device_properties(index).simd for index in range(device_count())})


def is_tf32_supported() -> bool:
    """Return False: products of float32 are computed in float32."""
    return False


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Whether one device can read the other's memory: all devices of a host can."""
    return _get_device_index(device) != _get_device_index(peer_device)


def ipc_collect() -> None:
    """Do nothing: loom tensors are not shared between processes."""


__all__ = [
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "Event",
    "Fallback",
    "FloatTensor",
    "FusedProgram",
    "Graph",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "MemPool",
    "OutOfMemoryError",
    "ShortTensor",
    "Stream",
    "StreamContext",
    "amp",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_memory_used",
    "device_of",
    "empty_cache",
    "fallbacks",
    "fusion",
    "fusion_report",
    "get_amp_supported_dtype",
    "get_arch_list",
    "get_autocast_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_num_threads",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "get_sync_debug_mode",
    "graph",
    "graph_pool_handle",
    "graphs",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "host_waits",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_autocast_enabled",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_error_stacks_enabled",
    "is_fusion_enabled",
    "is_initialized",
    "is_tf32_supported",
    "list_gpu_processes",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "memory_usage",
    "nvtx",
    "random",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_fallbacks",
    "reset_fusion_report",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_autocast_dtype",
    "set_autocast_enabled",
    "set_device",
    "set_error_stacks",
    "set_num_threads",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "set_sync_debug_mode",
    "stream",
    "streams",
    "synchronize",
    "use_mem_pool",
    "utilization",
]


def _inductor_backend_init() -> None:
    # What Inductor calls, since torch 2.15, until it knows the device.
    from . import inductor

    inductor.register()


def __dir__() -> list[str]:
    return [name for name in globals() if name.startswith("__")] + __all__


# A type checker that saw it would take every misspelt name for one of the module's.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> bool:
        # torch.utils.checkpoint reads it before it saves the state of the generators.
        if name == "_initialized":
            return is_initialized()
        if name == "Scheduling":
            # Inductor looks for this class when it is first used. It gets more than it asks for,
            # and is not to register the class once more, without the rest.
            _inductor_backend_init()
        raise AttributeError(f"module 'torch.loom' has no attribute '{name}'")
