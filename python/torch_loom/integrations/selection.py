# SPDX-License-Identifier: BSD-3-Clause
"""What the patches of several libraries need: whether to choose loom, and how to replace."""

import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import torch

from .._utils import is_loom

__all__ = ["add_to_device_lists", "is_the_accelerator", "replace", "variant_for_loom"]


def is_the_accelerator() -> bool:
    """Whether loom is torch's accelerator, and there is one of it."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return accelerator is not None and is_loom(accelerator)


def replace(module: Any, name: str, replacement: Any) -> None:
    """Replace what a module defines, also where other modules have imported it from there."""
    original = getattr(module, name)
    for other in list(sys.modules.values()):
        names = getattr(other, "__dict__", None)  # not getattr(other, name): modules may be lazy
        if names is not None and names.get(name) is original:
            setattr(other, name, replacement)


def add_to_device_lists(function: Any) -> None:
    """Add loom to each list of device types that a function was written with.

    Such a list is a constant of its code, like ``("cuda", "xpu")`` in ``device.type in ("cuda",
    "xpu")``. Nothing else of the function changes.

    Raises:
        LookupError: when the function has no such list.
    """

    def added(constant: Any) -> Any:
        if isinstance(constant, tuple | frozenset) and {"cuda", "xpu"} <= set(constant):
            return type(constant)((*constant, "loom"))
        return constant

    function.__code__ = _with_constants(function, added)


def variant_for_loom(function: Any) -> Callable[..., Any]:
    """Copy a function with the device type that it was written with, "cuda", become "loom".

    Raises:
        LookupError: when the function does not name it.
    """

    def changed(constant: Any) -> Any:
        if isinstance(constant, tuple) and "cuda" in constant:  # the arguments of a call
            return tuple(changed(inner) for inner in constant)
        return "loom" if constant == "cuda" else constant

    code = _with_constants(function, changed)
    copy = FunctionType(
        code, function.__globals__, None, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _with_constants(function: Any, change: Callable[[Any], Any]) -> CodeType:
    code: CodeType = _changed(function.__code__, change)
    if code is function.__code__:
        raise LookupError(f"{function.__qualname__} does not name devices as it did")
    return code


def _changed(constant: Any, change: Callable[[Any], Any]) -> Any:
    if not isinstance(constant, CodeType):
        return change(constant)
    constants = tuple(_changed(inner, change) for inner in constant.co_consts)
    same = all(a is b for a, b in zip(constants, constant.co_consts, strict=True))
    return constant if same else constant.replace(co_consts=constants)
