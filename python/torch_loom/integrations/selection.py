# SPDX-License-Identifier: BSD-3-Clause
"""What the patches of several libraries need: whether to choose loom, and how to replace."""

import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch

__all__ = ["add_to_device_lists", "is_the_accelerator", "replace"]


def is_the_accelerator() -> bool:
    """Whether loom is torch's accelerator, and there is one of it."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return accelerator is not None and accelerator.type == "loom"


def replace(module: Any, name: str, replacement: Any) -> None:
    """Replace what a module defines, also where other modules have imported it from there."""
    original = getattr(module, name)
    for other in list(sys.modules.values()):
        names = getattr(other, "__dict__", None)  # not getattr(other, name): modules may be lazy
        if names is not None and names.get(name) is original:
            setattr(other, name, replacement)


def add_to_device_lists(function: Callable[..., Any]) -> None:
    """Add loom to each list of device types that a function was written with.

    Such a list is a constant of its code, like ``("cuda", "xpu")`` in ``device.type in ("cuda",
    "xpu")``. Nothing else of the function changes.

    Raises:
        LookupError: when the function has no such list.
    """
    code, found = _with_loom(function.__code__)
    if not found:
        raise LookupError(f"{function.__qualname__} has no list of devices")
    function.__code__ = code


def _with_loom(code: CodeType) -> tuple[CodeType, bool]:
    constants: list[Any] = []
    found = False
    for constant in code.co_consts:
        if isinstance(constant, tuple | frozenset) and {"cuda", "xpu"} <= set(constant):
            constant = type(constant)((*constant, "loom"))
            found = True
        constants.append(constant)
    return code.replace(co_consts=tuple(constants)), found
