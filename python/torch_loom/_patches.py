# SPDX-License-Identifier: BSD-3-Clause
"""What torch 2.13 knows of other devices by name and lets no backend register.

Each patch touches loom tensors only and says why it is needed.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import torch

__all__ = ["apply"]


def apply() -> None:
    """Apply all patches. Call once."""
    _patch_dlpack_device()
    _patch_multiprocessing()
    _patch_flex_attention()
    _mark_constants()
    _keep_streams_from_dynamo()


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


def _patch_flex_attention() -> None:
    # flex_attention compares the device with a list of names, although its eager form is made of
    # ordinary operators; and it has rules for autocast of cpu and cuda only.
    from torch._C import DispatchKey, DispatchKeySet
    from torch._higher_order_ops.flex_attention import _flex_attention_autocast_impl, flex_attention
    from torch.nn.attention import flex_attention as frontend

    original: Callable[..., None] = frontend._validate_device

    def _validate_device(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if query.device.type != "loom":
            original(query, key, value)

    frontend._validate_device = _validate_device

    key = DispatchKey.AutocastPrivateUse1  # type: ignore[attr-defined]

    def autocast(*arguments: Any) -> Any:
        # The shared rule casts and leaves the keys that it knows; ours has to be left out here.
        with torch._C._ExcludeDispatchKeyGuard(DispatchKeySet(key)):
            return _flex_attention_autocast_impl(*arguments)

    flex_attention.py_impl(key)(autocast)


def _mark_constants() -> None:
    # torch.compile folds torch.cuda.is_available() and its like by name; what does not change in
    # the life of a process is marked here, or asking for it would end a graph.
    from . import device

    for function in (device.is_available, device.device_count):
        function._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _keep_streams_from_dynamo() -> None:
    # torch.compile knows the stream functions of cuda by name. It would trace ours, and then makes
    # the stream that was current while tracing a constant. This is torch.compiler.disable without
    # its import of torch._dynamo, which takes longer than all else here.
    from torch._C._dynamo import eval_frame

    from . import streams

    skip = eval_frame._FrameExecStrategy(
        eval_frame._FrameAction.SKIP, eval_frame._FrameAction.DEFAULT
    )
    context = streams.StreamContext
    functions: list[Any] = [
        streams.current_stream,
        streams.default_stream,
        streams.set_stream,
        streams.stream,
        streams._wrap,
        context.__init__,
        context.__enter__,
        context.__exit__,
    ]
    for function in functions:
        function._torchdynamo_disable = True
        eval_frame.set_code_exec_strategy(function.__code__, skip)
