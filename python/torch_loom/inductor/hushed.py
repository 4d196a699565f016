# SPDX-License-Identifier: BSD-3-Clause
"""Compilers see loom's own name, also while a program calls the device "cuda"."""

import functools
from types import ModuleType
from typing import Any

from .. import _C
from .._replace import replace
from .._utils import hushed

__all__ = ["answer_for_cuda", "apply"]


def apply(compile_fx: ModuleType) -> None:
    """Hush the name where graphs enter Inductor, and where their backward passes do, later."""
    for name in ("compile_fx", "_compile_fx_inner"):
        replace(compile_fx, name, hushed(getattr(compile_fx, name)))


def answer_for_cuda(device_interface: ModuleType) -> None:
    """Let Dynamo find loom's interface under the name that the device has now."""
    known = device_interface.get_interface_for_device

    @functools.wraps(known)
    def get_interface_for_device(device: Any) -> Any:
        name = device if isinstance(device, str) else device.type
        if name.partition(":")[0] == "cuda" and _C._is_cuda_name_on():
            return known("loom")
        return known(device)

    replace(device_interface, "get_interface_for_device", get_interface_for_device)
