# SPDX-License-Identifier: BSD-3-Clause
"""What several modules of :mod:`torch.loom` share."""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from . import _C

DeviceLike: TypeAlias = "torch.device | str | int | None"

# Replaced as a whole, never changed: other threads may be reading it.
_names = frozenset({"loom"})


def is_loom(device: torch.device) -> bool:
    r"""Return whether a device is loom's, also while that is called "cuda".

    The rest of the package asks this, and never compares ``device.type``.
    """
    return device.type in _names


def is_loom_name(name: str) -> bool:
    r"""Return whether a device type is loom's name now: "loom" always is."""
    return name in _names


def loom_names() -> frozenset[str]:
    r"""Return the names that loom devices have in this process now."""
    return _names


def device_name() -> str:
    r"""Return what messages call the device: the name that it prints as."""
    return torch.device("loom").type


def set_names(names: frozenset[str]) -> None:
    r"""Set the names that loom devices have in this process: "loom", and "cuda" for a time."""
    global _names
    _names = names


def hushed(function: Callable[..., Any]) -> Callable[..., Any]:
    r"""Return a function in which loom devices print as "loom", in the thread that calls it.

    For code of torch's that branches by the name of the device, also where that is "cuda".
    """

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        with _C._HushedName():
            return function(*args, **named)

    return call


def _get_device_index(device: DeviceLike, optional: bool = False, allow_cpu: bool = False) -> int:
    r"""Return the index that ``device`` names.

    Args:
        device (torch.device or str or int, optional): a loom device, or its index.
        optional (bool): whether ``None`` and ``"loom"`` without an index mean the current device.
        allow_cpu (bool): whether a cpu device is accepted, and gives -1.

    Returns:
        int: the index; not checked against the number of devices.

    Raises:
        ValueError: when ``device`` is of another type, or has no index and ``optional`` is false.
    """
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if allow_cpu and device.type == "cpu":
            return -1
        if not is_loom(device):
            name = device_name()
            raise ValueError(f"torch.{name}: expected a {name} device, got {device}")
        if device.index is not None:
            return device.index
    elif device is not None:
        raise ValueError(
            f"torch.{device_name()}: expected a torch.device, str, int or None, got "
            f"{type(device).__name__}"
        )
    if not optional:
        name = device_name()
        raise ValueError(f"torch.{name}: expected a {name} device with an index, got {device}")
    return torch._C._accelerator_getDeviceIndex()
