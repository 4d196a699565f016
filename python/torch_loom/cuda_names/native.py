# SPDX-License-Identifier: BSD-3-Clause
"""The functions ``torch._C._cuda_*``, which builds of PyTorch without CUDA do not have.

The code of ``torch.cuda`` calls them, and so do functions that a program imported from there before
loom took the name.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from .. import _C, device as devices, memory, streams
from .changes import Changes

__all__ = ["apply", "visible_devices"]


def visible_devices() -> int:
    """Return how many devices a program sees: those of loom that ``CUDA_VISIBLE_DEVICES`` names."""
    count = devices.device_count()
    visible = torch.cuda._parse_visible_devices()
    for place, index in enumerate(visible):
        if not isinstance(index, int) or index >= count:  # as CUDA, which stops at the first such
            return place
    return len(visible)


def _set_stream(stream_id: int, device_index: int, device_type: int) -> None:
    streams.set_stream(
        torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)
    )


def _ids(stream: torch.Stream) -> tuple[int, int, int]:
    return stream.stream_id, stream.device_index, stream.device_type


# A hold ends when it is dropped, so each is kept until its time is up.
_holds: deque[tuple[float, Any]] = deque()
_CYCLES_PER_SECOND = 1e9


def _sleep(cycles: int) -> None:
    now = time.monotonic()
    while _holds and _holds[0][0] < now:
        _holds.popleft()
    seconds = cycles / _CYCLES_PER_SECOND
    _holds.append((now + 60 + seconds, _C._Hold(devices.current_device(), seconds)))


def _exchange_device(index: int) -> int:
    return devices._exchange_device(index)


def _synchronize() -> None:
    devices.synchronize()


def _record_memory_history(
    enabled: str | None,
    context: str | None,
    stacks: str,
    max_entries: int,
    clear_history: bool = False,
    *_: Any,
) -> None:
    memory._record_memory_history(
        enabled,  # type: ignore[arg-type]
        context,  # type: ignore[arg-type]
        stacks,  # type: ignore[arg-type]
        max_entries,
        clear_history=clear_history,
    )


def _record_memory_history_legacy(
    enabled: bool, record_context: bool = True, max_entries: int = 1, *_: Any
) -> None:
    memory._record_memory_history(
        "all" if enabled else None,
        "all" if record_context else None,
        max_entries=max(max_entries, 1),
    )


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing: loom has no such state."""


FUNCTIONS: dict[str, Callable[..., Any]] = {
    # Imported by the graph trees of Inductor, which loom's graphs do not use.
    "_cuda_CUDAAllocator_AllocatorState": _nothing,
    "_set_cached_tensors_enabled": _nothing,
    "_cuda_canDeviceAccessPeer": lambda device, peer: device != peer,
    "_cuda_clearCublasWorkspaces": _nothing,
    "_cuda_cudaCachingAllocator_enable": _nothing,
    "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
    "_cuda_emptyCache": memory.empty_cache,
    "_cuda_exchangeDevice": _exchange_device,
    "_cuda_getAllocatorBackend": lambda: "native",
    "_cuda_getArchFlags": lambda: None,
    "_cuda_getCompiledVersion": lambda: 0,
    "_cuda_getCurrentRawStream": lambda device: streams.current_stream(device).stream_id,
    "_cuda_getCurrentStream": lambda device: _ids(streams.current_stream(device)),
    "_cuda_getDefaultStream": lambda device: _ids(streams.default_stream(device)),
    "_cuda_getDevice": devices.current_device,
    "_cuda_getDeviceCount": visible_devices,
    "_cuda_getMemoryFraction": memory.get_per_process_memory_fraction,
    "_cuda_hasPrimaryContext": lambda device: devices.is_initialized(),
    "_cuda_hostMemoryStats": memory.host_memory_stats,
    "_cuda_init": devices.init,
    "_cuda_ipc_collect": _nothing,
    "_cuda_isCurrentStreamCapturing": streams.is_current_stream_capturing,
    "_cuda_isInBadFork": devices._is_in_bad_fork,
    "_cuda_maybeExchangeDevice": devices._maybe_exchange_device,
    "_cuda_memorySnapshot": lambda pool=None, *_: memory._snapshot(),
    "_cuda_memoryStats": memory.memory_stats_as_nested_dict,
    "_cuda_record_memory_history": _record_memory_history,
    "_cuda_record_memory_history_legacy": _record_memory_history_legacy,
    "_cuda_resetAccumulatedMemoryStats": memory.reset_accumulated_memory_stats,
    "_cuda_resetPeakMemoryStats": memory.reset_peak_memory_stats,
    "_cuda_setDevice": devices.set_device,
    "_cuda_setMemoryFraction": memory.set_per_process_memory_fraction,
    "_cuda_setStream": _set_stream,
    "_cuda_sleep": _sleep,
    "_cuda_synchronize": _synchronize,
}


def apply(changes: Changes) -> None:
    """Fill ``torch._C``."""
    for name, function in FUNCTIONS.items():
        changes.set(torch._C, name, _function_of_its_own(function))


def _function_of_its_own(function: Callable[..., Any]) -> Callable[..., Any]:
    # Dynamo has rules for both torch._C._cuda_setDevice and torch.cuda.set_device, by identity.
    def call(*args: Any, **named: Any) -> Any:
        return function(*args, **named)

    return call
