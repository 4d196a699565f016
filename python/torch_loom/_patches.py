# SPDX-License-Identifier: BSD-3-Clause
"""What torch 2.13 knows of other devices by name and lets no backend register.

Each patch touches loom tensors only and says why it is needed.
"""

import ctypes
import functools
import importlib
import os
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import torch
from torch.overrides import has_torch_function_unary

from . import amp

__all__ = ["apply"]


def apply() -> None:
    """Apply all patches. Call once."""
    _patch_dlpack()
    _patch_from_dlpack()
    _patch_multiprocessing()
    _patch_share_memory()
    _patch_opcheck()
    _patch_autocast()


def _memory_is_unified() -> bool:
    # The library has checked the value: there is a loom tensor.
    return (os.environ.get("LOOM_MEMORY") or "unified") == "unified"


def _host_view(tensor: torch.Tensor) -> torch.Tensor:
    # A cpu tensor over a loom tensor's memory, which it keeps alive. Requires unified memory.
    storage = tensor.untyped_storage()
    if storage.nbytes() == 0:
        return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
    memory: Any = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    memory.owner = tensor.detach()
    alias = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
    empty = torch.empty(0, dtype=tensor.dtype)
    return empty.set_(alias, tensor.storage_offset(), tensor.size(), tensor.stride())


def _order_before(consumer: int | None, device: torch.device) -> None:
    # What the current stream has been given comes before what `consumer` is given from now on.
    # As for cuda, None is the default stream and -1 asks for no order.
    if consumer == -1:
        return
    current = torch.accelerator.current_stream(device)
    stream = torch.Stream(
        stream_id=consumer or 0, device_index=current.device_index, device_type=current.device_type
    )
    if stream != current:
        stream.wait_stream(current)


def _patch_dlpack() -> None:
    # Tensor.__dlpack_device__ compares the device with the name "privateuse1", which a renamed
    # backend does not have, and raises ValueError. Tensor.__dlpack__ orders streams of cuda only,
    # and copies for a consumer that asks for memory of the cpu.
    device_of: Callable[[torch.Tensor], tuple[IntEnum, int]] = torch.Tensor.__dlpack_device__
    export: Callable[..., Any] = torch.Tensor.__dlpack__
    from torch.utils.dlpack import DLDeviceType

    def __dlpack_device__(self: torch.Tensor) -> tuple[IntEnum, int]:  # noqa: N807
        if self.device.type != "loom":
            return device_of(self)
        return DLDeviceType.kDLExtDev, self.device.index

    def __dlpack__(  # noqa: N807
        self: torch.Tensor,
        *,
        stream: Any | None = -1,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[IntEnum, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        arguments = {"max_version": max_version, "dl_device": dl_device, "copy": copy}
        unfit = self.requires_grad or self.is_conj() or self.layout != torch.strided
        unfit = unfit or not isinstance(stream, int | None) or has_torch_function_unary(self)
        if self.device.type != "loom" or unfit:  # unfit: raises, or asks the subclass first
            return export(self, stream=stream, **arguments)
        if dl_device is None or dl_device[0] != DLDeviceType.kDLCPU:
            _order_before(stream, self.device)
        elif not copy and not self.is_neg() and _memory_is_unified():
            torch.accelerator.current_stream(self.device).synchronize()  # cpu code does not wait
            return export(_host_view(self), max_version=max_version)
        return export(self, **arguments)

    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign]
    torch.Tensor.__dlpack__ = __dlpack__  # type: ignore[method-assign]


def _patch_from_dlpack() -> None:
    # torch.from_dlpack does not ask a producer for memory of another device, and so refuses
    # copy=False between loom and cpu. Without copy=False it copies, which stays as it is: programs
    # written for cuda count on it.
    from torch.utils import dlpack

    original: Callable[..., torch.Tensor] = dlpack.from_dlpack

    @functools.wraps(original)
    def from_dlpack(
        ext_tensor: Any,
        *,
        device: torch.device | str | None = None,
        copy: bool | None = None,
    ) -> torch.Tensor:
        from_loom = isinstance(ext_tensor, torch.Tensor) and ext_tensor.device.type == "loom"
        if not (from_loom and copy is False and torch.device(device or "loom").type == "cpu"):
            return original(ext_tensor, device=device, copy=copy)
        target = torch._C._torchDeviceToDLDevice(torch.device("cpu"))
        capsule = ext_tensor.__dlpack__(max_version=(1, 0), dl_device=target, copy=False)
        return torch._C._from_dlpack(capsule)

    for module in (torch, dlpack):
        module.from_dlpack = from_dlpack  # type: ignore[attr-defined]


def _rebuild_storage(value: torch.UntypedStorage, device: str) -> Any:
    return value.to(device=torch.device(device))


def _patch_multiprocessing() -> None:
    # torch.multiprocessing shares every storage that is not on cuda as if it were on cpu. Device
    # memory is private to its process, so a storage of loom travels by value: as one of the cpu in
    # shared memory, copied to the same device on arrival. Views of it in one message stay views.
    from multiprocessing.reduction import ForkingPickler

    from torch.multiprocessing import reductions

    original: Callable[[torch.UntypedStorage], Any] = reductions.reduce_storage

    def reduce_storage(storage: torch.UntypedStorage) -> Any:
        if storage.device.type != "loom":
            return original(storage)
        return _rebuild_storage, (
            storage.to(device=torch.device("cpu")),
            str(storage.device),
        )

    ForkingPickler.register(torch.UntypedStorage, reduce_storage)


def _patch_share_memory() -> None:
    # torch takes the memory of every PrivateUse1 backend for shared, as that of cuda is: what
    # other processes then do to their copies would be lost without a word.
    share: Callable[..., torch.UntypedStorage] = torch.UntypedStorage.share_memory_
    is_shared_elsewhere: Callable[..., bool] = torch.UntypedStorage.is_shared

    def share_memory_(self: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        if self.device.type == "loom":
            raise RuntimeError(
                f"share_memory_: expected memory of the cpu, got {self.device}: device memory is "
                "private to its process. Share the tensor or module on the cpu, and move it to "
                "loom in each process"
            )
        return share(self, *args, **kwargs)

    def is_shared(self: torch.UntypedStorage) -> bool:
        return self.device.type != "loom" and is_shared_elsewhere(self)

    torch.UntypedStorage.share_memory_ = share_memory_  # type: ignore[method-assign]
    torch.UntypedStorage.is_shared = is_shared  # type: ignore[method-assign, assignment]


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
