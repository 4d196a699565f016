# SPDX-License-Identifier: BSD-3-Clause
"""DLPack: devices, the order of streams, and views for the host."""

import functools
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import torch
from torch.overrides import has_torch_function_unary

from .. import _C
from .._replace import replace
from .._utils import _get_device_index, is_loom


def apply() -> None:
    """Teach ``Tensor.__dlpack__`` and ``torch.from_dlpack`` about loom tensors."""
    _patch_dlpack()
    _patch_from_dlpack()


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

    @functools.wraps(device_of)
    def __dlpack_device__(self: torch.Tensor) -> tuple[IntEnum, int]:  # noqa: N807
        if not is_loom(self.device):
            return device_of(self)
        return DLDeviceType.kDLExtDev, self.device.index

    @functools.wraps(export)
    def __dlpack__(  # noqa: N807
        self: torch.Tensor,
        *,
        stream: Any | None = -1,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[IntEnum, int] | None = None,
        copy: bool | None = None,
        **others: Any,  # since torch 2.14: `read_only`
    ) -> Any:
        arguments = {"max_version": max_version, "dl_device": dl_device, "copy": copy, **others}
        unfit = self.requires_grad or self.is_conj() or self.layout != torch.strided
        unfit = unfit or type(stream) not in (int, type(None)) or has_torch_function_unary(self)
        if not is_loom(self.device) or unfit:  # unfit: raises, or asks the subclass first
            return export(self, stream=stream, **arguments)
        if dl_device is None or dl_device[0] != DLDeviceType.kDLCPU:
            _order_before(stream, self.device)
        elif not copy and not self.is_neg() and _C._memory_is_unified():
            view = _C._view_on_host(self)  # which waits
            return export(view, max_version=max_version, **others)
        return export(self, **arguments)

    replace(torch.Tensor, "__dlpack_device__", __dlpack_device__)
    replace(torch.Tensor, "__dlpack__", __dlpack__)


def _patch_from_dlpack() -> None:
    # torch.from_dlpack does not ask a producer for memory of another device, and so refuses
    # copy=False between loom and cpu, whose memory may be the same. Without copy=False it copies,
    # which stays as it is: programs written for cuda count on it.
    from torch.utils import dlpack

    original: Callable[..., torch.Tensor] = dlpack.from_dlpack

    @functools.wraps(original)
    def from_dlpack(
        ext_tensor: Any,
        *,
        device: torch.device | str | None = None,
        copy: bool | None = None,
    ) -> torch.Tensor:
        if copy is not False or device is None:
            return original(ext_tensor, device=device, copy=copy)
        target = torch.device(device)
        from_loom = isinstance(ext_tensor, torch.Tensor) and is_loom(ext_tensor.device)
        if from_loom and target.type == "cpu":
            capsule = ext_tensor.__dlpack__(
                max_version=(1, 0), dl_device=torch._C._torchDeviceToDLDevice(target), copy=False
            )
            return torch._C._from_dlpack(capsule)
        if not from_loom and is_loom(target) and _C._memory_is_unified():
            source = original(ext_tensor, copy=copy)  # checks what DLPack can say
            if source.device.type == "cpu":
                index = _get_device_index(target, optional=True)
                return _C._view_on_device(source, torch.device("loom", index))
        return original(ext_tensor, device=device, copy=copy)

    for module in (torch, dlpack):
        replace(module, "from_dlpack", from_dlpack)
