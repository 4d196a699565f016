# SPDX-License-Identifier: BSD-3-Clause
"""Devices: how many there are, which one is current, what they are made of.

The current device belongs to the thread, as in CUDA. Every function may be called from any thread.
"""

import os
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch

from . import _C
from ._utils import DeviceLike, _get_device_index, is_loom

__all__ = [
    "current_device",
    "device",
    "device_count",
    "device_of",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "init",
    "is_available",
    "is_initialized",
    "set_device",
    "synchronize",
]

_initialized = False
_at_first_use: list[Callable[[], None]] = []


def device_count() -> int:
    r"""Return the number of loom devices.

    One per NUMA node of the host, or as many as ``LOOM_DEVICES`` says. Starts no thread.

    Returns:
        int: the number of devices, at least 1.

    Raises:
        RuntimeError: when a ``LOOM_*`` variable has a bad value.
    """
    return _C._device_count()


def is_available() -> bool:
    r"""Return whether loom can be used; warn why not. Never raises and starts no thread."""
    try:
        return device_count() > 0
    except RuntimeError as error:
        warnings.warn(f"loom is not available: {error}", stacklevel=2)
        return False


def is_initialized() -> bool:
    r"""Return whether this process has used loom, and did not inherit that use by ``fork``."""
    return _initialized and not _is_in_bad_fork()


def init() -> None:
    r"""Initialise loom now rather than at its first use. Does nothing the second time.

    Raises:
        RuntimeError: when a ``LOOM_*`` variable has a bad value, or in a child forked after the
            parent had used loom.
    """
    _lazy_init()


def _lazy_init() -> None:
    global _initialized
    if is_initialized():
        return
    if _is_in_bad_fork():
        name = "CUDA" if _C._is_cuda_name_on() else "loom"  # as PyTorch's message has it
        raise RuntimeError(
            f"Cannot re-initialize {name} in forked subprocess: its worker threads exist only in "
            f"the parent. To use {name} with multiprocessing, use the 'spawn' start method"
        )
    _warn_of_more_threads_than_processors()
    _C._init()
    _initialized = True
    while _at_first_use:
        _at_first_use.pop(0)()


def _warn_of_more_threads_than_processors() -> None:
    threads = os.environ.get("LOOM_THREADS", "")
    has_affinity = hasattr(os, "sched_getaffinity")
    processors = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    if threads.isdigit() and int(threads) > processors:
        warnings.warn(
            f"LOOM_THREADS: expected at most {processors}, the number of processors of this "
            f"process, got {threads}; its threads take each other's processors. Set a smaller "
            "number, or none",
            stacklevel=3,
        )


def _lazy_call(call: Callable[[], None]) -> None:
    """Do it now or, where loom is not used yet, at its first use."""
    if is_initialized():
        call()
    else:
        _at_first_use.append(call)


def _at_exit() -> None:
    """Leave no thread behind that needs the interpreter while it ends."""
    _C._note_ending_thread()
    if is_initialized():
        _C._drain_autograd_threads()
        _C._report_unseen_errors()
        _C._give_warnings()


def _is_in_bad_fork() -> bool:
    return _C._is_in_bad_fork()


def current_device() -> int:
    r"""Return the index of the calling thread's current device."""
    return torch._C._accelerator_getDeviceIndex()


def set_device(device: DeviceLike) -> None:
    r"""Make ``device`` the calling thread's current device.

    Args:
        device (torch.device or str or int): the device; a negative index changes nothing.

    Raises:
        RuntimeError: when there is no such device.
        ValueError: when ``device`` is of another type or has no index.
    """
    index = _get_device_index(device)
    if index >= 0:
        torch._C._accelerator_setDeviceIndex(index)


def _exchange_device(index: int) -> int:
    return torch._C._accelerator_exchangeDevice(index) if index >= 0 else -1


def _maybe_exchange_device(index: int) -> int:
    return torch._C._accelerator_maybeExchangeDevice(index) if index >= 0 else -1


class device:
    r"""Context manager that makes a device current and brings the previous one back.

    Args:
        device (torch.device or str or int, optional): the device; ``None`` and a negative index
            change nothing.

    Example::

        >>> with torch.loom.device(1):
        ...     torch.empty(2, device="loom").device
        device(type='loom', index=1)
    """

    def __init__(self, device: DeviceLike) -> None:
        self.idx = -1 if device is None else _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.idx = _maybe_exchange_device(self.prev_idx)


class device_of(device):
    r"""Context manager that makes the device of a tensor or storage current.

    Args:
        obj (Tensor or Storage): an object; one that is not on loom changes nothing.
    """

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if is_loom(obj.device) else -1)


def get_device_properties(device: DeviceLike = None) -> _C._LoomDeviceProperties:
    r"""Return what a device is made of.

    Args:
        device (torch.device or str or int, optional): the device. Default: the current device.

    Returns:
        _LoomDeviceProperties: ``name``, ``core_count`` (also ``multi_processor_count``), ``cpus``,
        ``numa_node``, ``simd`` (``"scalar"``, ``"NEON"``, ``"AVX2"`` or ``"AVX-512"``), and in
        bytes ``total_memory``, ``l1_cache``, ``l2_cache``, ``l3_cache``.

    Raises:
        RuntimeError: when there is no such device.
    """
    return _C._get_device_properties(_get_device_index(device, optional=True))


def get_device_name(device: DeviceLike = None) -> str:
    r"""Return the processor's model name. Args and errors as :func:`get_device_properties`."""
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike = None) -> dict[str, Any]:
    r"""Return what a device supports, as :func:`torch.accelerator.get_device_capability` does."""
    return torch._C._accelerator_getDeviceCapability(_get_device_index(device, optional=True))


def synchronize(device: DeviceLike = None) -> None:
    r"""Wait for everything submitted to a device, by any thread and on any stream.

    Args:
        device (torch.device or str or int, optional): the device. Default: the current device.

    Raises:
        RuntimeError: when there is no such device.
        Exception: what a kernel raised since the last synchronisation, once; IndexError for an
            index out of range, for example. The device stays usable.
    """
    _lazy_init()  # torch returns at once where loom is not initialised, in a forked child too
    torch._C._accelerator_synchronizeDevice(_get_device_index(device, optional=True))
