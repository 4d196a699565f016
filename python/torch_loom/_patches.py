# SPDX-License-Identifier: BSD-3-Clause
"""What torch 2.13 knows of other devices by name and lets no backend register.

Each patch touches loom tensors only and says why it is needed.
"""

import functools
import importlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import torch

from . import amp

__all__ = ["apply"]


def apply() -> None:
    """Apply all patches. Call once."""
    _patch_dlpack_device()
    _patch_multiprocessing()
    _patch_opcheck()
    _patch_autocast()


def _patch_dlpack_device() -> None:
    # Tensor.__dlpack_device__ compares the device with the name "privateuse1", which a renamed
    # backend does not have, and raises ValueError.
    original: Callable[[torch.Tensor], tuple[IntEnum, int]] = torch.Tensor.__dlpack_device__

    def __dlpack_device__(self: torch.Tensor) -> tuple[IntEnum, int]:  # noqa: N807
        if self.device.type != "loom":
            return original(self)
        from torch.utils.dlpack import DLDeviceType

        return DLDeviceType.kDLExtDev, self.device.index

    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign]


def _rebuild_loom_tensor(
    cls: type[torch.Tensor], value: torch.Tensor, device: str, requires_grad: bool
) -> torch.Tensor:
    tensor = value.to(device)
    if issubclass(cls, torch.nn.Parameter):
        return torch.nn.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)


def _patch_multiprocessing() -> None:
    # torch.multiprocessing shares the storage of every tensor that is not on cuda as if it were on
    # cpu. Device memory is private to its process, so a loom tensor travels by value: as a cpu
    # tensor in shared memory, copied to the same device on arrival.
    from multiprocessing.reduction import ForkingPickler

    from torch.multiprocessing import reductions

    original: Callable[[torch.Tensor], Any] = reductions.reduce_tensor

    def reduce_tensor(tensor: torch.Tensor) -> Any:
        if tensor.device.type != "loom" or (tensor.requires_grad and not tensor.is_leaf):
            return original(tensor)  # which refuses tensors inside a graph
        value = tensor.detach().cpu()
        return _rebuild_loom_tensor, (
            type(tensor),
            value,
            str(tensor.device),
            tensor.requires_grad,
        )

    classes: set[Any] = {torch.Tensor, torch.nn.Parameter, *torch._tensor_classes}
    for cls in classes:
        ForkingPickler.register(cls, reduce_tensor)


def _patch_autocast() -> None:
    # torch.autocast("loom") takes the dtype that PyTorch keeps for each thread, float16 for a
    # backend that is not built in; see amp.DEFAULT_AUTOCAST_DTYPE.
    amp._set_default_of_this_thread()  # the importing thread has it without being asked
    original: Callable[..., None] = torch.autocast.__init__

    @functools.wraps(original)
    def __init__(self: torch.autocast, device_type: str, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if device_type == "loom":
            amp._set_default_of_this_thread()
        original(self, device_type, *args, **kwargs)

    torch.autocast.__init__ = __init__  # type: ignore[method-assign]


def _patch_opcheck() -> None:
    # torch.library.opcheck looks whether an operator has a kernel at Autograd<backend>, but knows
    # the keys of three devices only and refuses others. The module is heavy and for tests, so it
    # is taught at the first call.
    original: Callable[..., dict[str, str]] = torch.library.opcheck

    @functools.wraps(original)
    def opcheck(*args: Any, **kwargs: Any) -> dict[str, str]:
        generate_tests: Any = importlib.import_module(
            "torch.testing._internal.optests.generate_tests"
        )
        known = generate_tests.autograd_registration_check
        if known.__module__ != __name__:
            generate_tests.autograd_registration_check = _with_autograd_of_loom(known)
        return original(*args, **kwargs)

    torch.library.opcheck = opcheck


def _with_autograd_of_loom(original: Callable[..., None]) -> Callable[..., None]:
    def autograd_registration_check(op: Any, args: Any, kwargs: Any) -> None:
        leaves = torch.utils._pytree.arg_tree_leaves(*args, **kwargs)
        devices = {leaf.device.type for leaf in leaves if isinstance(leaf, torch.Tensor)}
        if "loom" not in devices:
            return original(op, args, kwargs)
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        keys = ("AutogradPrivateUse1", "Autograd", "CompositeImplicitAutograd")
        if any(has_kernel(op.name(), key) for key in keys):
            return None
        # Without such a kernel nothing may record a graph: what does sits in the wrong place.
        mode = torch._C._get_autograd_fallback_mode()
        torch._C._set_autograd_fallback_mode("nothing")
        try:
            results = torch.utils._pytree.tree_leaves(op(*args, **kwargs))
        finally:
            torch._C._set_autograd_fallback_mode(mode)
        inputs = {id(leaf) for leaf in leaves}
        if any(getattr(r, "requires_grad", False) and id(r) not in inputs for r in results):
            raise AssertionError(
                f"{op.name()}: a result requires grad, but the operator has no kernel at an "
                "autograd key. Register its autograd kernel to Autograd or AutogradPrivateUse1, "
                "not to PrivateUse1."
            )
        return None

    return autograd_registration_check
