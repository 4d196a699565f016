# SPDX-License-Identifier: BSD-3-Clause
"""What several modules of :mod:`torch.loom` share."""

from typing import TypeAlias

import torch

DeviceLike: TypeAlias = "torch.device | str | int | None"


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
        if device.type != "loom":
            raise ValueError(f"torch.loom: expected a loom device, got {device}")
        if device.index is not None:
            return device.index
    elif device is not None:
        raise ValueError(
            f"torch.loom: expected a torch.device, str, int or None, got {type(device).__name__}"
        )
    if not optional:
        raise ValueError(f"torch.loom: expected a loom device with an index, got {device}")
    return torch._C._accelerator_getDeviceIndex()
