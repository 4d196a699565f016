# SPDX-License-Identifier: BSD-3-Clause
"""nn.DataParallel: copies between the devices of one process."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.cuda import nccl

from .._replace import replace
from .._utils import is_loom

Tensors = Sequence[torch.Tensor]


def apply() -> None:
    """Give ``torch.nn.parallel.comm`` what it finds in builds of PyTorch for CUDA only.

    In such a build tensors that are not on loom go its way, where there is a device of CUDA.
    """
    functions: tuple[Callable[..., Any], ...] = (
        _broadcast,
        _broadcast_out,
        _broadcast_coalesced,
        _scatter,
        _scatter_out,
        _gather,
        _gather_out,
    )
    for function in functions:
        original = getattr(torch._C, function.__name__, None)
        chosen = function if original is None else _unless_for_cuda(function, original)
        setattr(torch._C, function.__name__, chosen)
    _sum_without_nccl()


def _unless_for_cuda(function: Callable[..., Any], original: Callable[..., Any]) -> Any:
    @functools.wraps(function)
    def call(first: Any, *rest: Any, **named: Any) -> Any:
        tensors = (first,) if isinstance(first, torch.Tensor) else first
        is_ours = any(is_loom(tensor.device) for tensor in tensors) or not torch.cuda.is_available()
        return (function if is_ours else original)(first, *rest, **named)

    return call


def _sum_without_nccl() -> None:
    # It warns that PyTorch was built without NCCL, which loom does not use.
    original: Callable[[Any], bool] = nccl.is_available

    def is_available(tensors: Any) -> bool:
        if any(is_loom(tensor.device) for tensor in tensors):
            return False
        return original(tensors)

    replace(nccl, "is_available", is_available)


def _broadcast(tensor: torch.Tensor, devices: Iterable[int]) -> list[torch.Tensor]:
    return [_to(tensor, index) for index in devices]


def _broadcast_out(tensor: torch.Tensor, out: Tensors) -> Tensors:
    for place, target in enumerate(out):
        if not is_loom(target.device) or target.shape != tensor.shape:
            raise RuntimeError(
                f"broadcast: expected out[{place}] on loom with the sizes {list(tensor.shape)}, "
                f"got sizes {list(target.shape)} on {target.device}; make it with torch.empty_like"
            )
        target.copy_(tensor, non_blocking=True)
    return out


def _broadcast_coalesced(
    tensors: Tensors, devices: Sequence[int], buffer_size: int
) -> list[list[torch.Tensor]]:
    # Memory is the host's: there is nothing to gain by sending small tensors together.
    for place, tensor in enumerate(tensors):
        if tensor.device != torch.device("loom", devices[0]):
            raise RuntimeError(
                f"broadcast_coalesced: expected tensors on loom:{devices[0]}, the first of the "
                f"devices, got tensor {place} on {tensor.device}; move it there first"
            )
    return [list(tensors), *([_to(x, index) for x in tensors] for index in devices[1:])]


def _scatter(
    tensor: torch.Tensor,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Sequence[Any] | None = None,
) -> list[torch.Tensor]:
    if chunk_sizes is None:
        chunks = tensor.chunk(len(devices), dim)
    else:
        chunks = tensor.split_with_sizes(list(chunk_sizes), dim)
    moved = []
    for place, chunk in enumerate(chunks):
        with _on(streams, place):
            moved.append(_to(chunk, devices[place]))
    return moved


def _scatter_out(
    tensor: torch.Tensor, out: Tensors, dim: int = 0, streams: Sequence[Any] | None = None
) -> Tensors:
    chunks = tensor.split_with_sizes([target.shape[dim] for target in out], dim)
    for place, (chunk, target) in enumerate(zip(chunks, out, strict=True)):
        with _on(streams, place):
            target.copy_(chunk, non_blocking=True)
    return out


def _gather(tensors: Tensors, dim: int, destination: int | None = None) -> torch.Tensor:
    for place, tensor in enumerate(tensors):
        if not is_loom(tensor.device):
            raise RuntimeError(
                f"gather: expected tensors on loom, got tensor {place} on {tensor.device}; "
                "move it to a device of loom first"
            )
    index = torch.accelerator.current_device_index() if destination is None else destination
    if index == -1:
        return torch.cat([tensor.cpu() for tensor in tensors], dim)
    return torch.cat([_to(tensor, index) for tensor in tensors], dim)


def _gather_out(tensors: Tensors, out: torch.Tensor, dim: int) -> torch.Tensor:
    parts = out.split_with_sizes([tensor.shape[dim] for tensor in tensors], dim)
    for tensor, part in zip(tensors, parts, strict=True):
        part.copy_(tensor)
    return out


def _to(tensor: torch.Tensor, index: int) -> torch.Tensor:
    if index < 0:
        raise RuntimeError(
            f"expected the index of a device of loom, got {index}; "
            "torch.accelerator.device_count() says how many there are"
        )
    return tensor.to(torch.device("loom", index), non_blocking=True)


def _on(streams: Sequence[Any] | None, place: int) -> contextlib.AbstractContextManager[Any]:
    stream = streams[place] if streams is not None and place < len(streams) else None
    return contextlib.nullcontext() if stream is None else stream
