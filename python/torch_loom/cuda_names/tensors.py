# SPDX-License-Identifier: BSD-3-Clause
"""Members of tensors that PyTorch's builds without CUDA answer for themselves, and their types."""

from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function_unary

from .. import _C
from .._utils import DeviceLike, _get_device_index, is_loom
from ..tensor_types import TENSOR_TYPES, TensorType
from .changes import Changes

__all__ = ["apply"]


class _SparseType:
    """A class such as ``torch.cuda.sparse.FloatTensor``: makes sparse tensors of coordinates."""

    def __init__(self, name: str, dtype: torch.dtype) -> None:
        self.__name__ = name
        self.dtype = dtype

    def __call__(self, *args: Any) -> torch.Tensor:
        """Make a tensor of indices, values and a size, of indices and values, or of a size."""
        if args and isinstance(args[0], torch.Tensor):
            indices, values, *rest = args
            return torch.sparse_coo_tensor(
                indices.cuda(), values.to("cuda", self.dtype), *rest, check_invariants=False
            )
        size = args[0] if args and isinstance(args[0], torch.Size) else args
        return torch.empty(size, dtype=self.dtype, device="cuda", layout=torch.sparse_coo)


def _cuda(
    self: torch.Tensor,
    device: DeviceLike = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> torch.Tensor:
    if has_torch_function_unary(self):
        moved: torch.Tensor = handle_torch_function(
            torch.Tensor.cuda,
            (self,),
            self,
            device=device,
            non_blocking=non_blocking,
            memory_format=memory_format,
        )
        return moved
    where = torch.device("cuda", _get_device_index(device, optional=True))
    return self.to(where, non_blocking=non_blocking, memory_format=memory_format)


def _is_cuda(self: torch.Tensor) -> Any:
    if has_torch_function_unary(self):
        getter = torch.Tensor.is_cuda.__get__  # type: ignore[attr-defined]
        return handle_torch_function(getter, (self,), self)
    return is_loom(self.device)


def _type_named(name: Any) -> Any:
    text = name if isinstance(name, str) else getattr(name, "__name__", "")
    module = "torch.cuda." if isinstance(name, str) else ""
    if isinstance(name, str) and not text.startswith(module):
        return None
    return TENSOR_TYPES.get(text.removeprefix(module))


def apply(changes: Changes) -> None:
    """Answer ``x.cuda()``, ``x.is_cuda``, ``x.type()`` and the types ``torch.cuda.*Tensor``."""
    changes.set(torch.Tensor, "cuda", _cuda)
    changes.set(torch.Tensor, "is_cuda", _C._is_cuda_property(torch.Tensor, _is_cuda))
    known_type = torch.Tensor.type

    def type_of(
        self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **named: Any
    ) -> Any:
        if dtype is None:
            return known_type(self).replace("torch.loom.", "torch.cuda.")
        if isinstance(dtype, str | TensorType) and (wanted := _type_named(dtype)) is not None:
            return self.to("cuda", wanted.dtype, non_blocking=non_blocking)
        return known_type(self, dtype, non_blocking, **named)

    changes.set(torch.Tensor, "type", type_of)
    for name, tensor_type in TENSOR_TYPES.items():
        changes.set(torch.cuda, name, tensor_type)
        if hasattr(torch.cuda.sparse, name):
            changes.set(torch.cuda.sparse, name, _SparseType(name, tensor_type.dtype))
    known_default = torch.set_default_tensor_type

    def set_default_tensor_type(t: Any, /) -> None:
        wanted = _type_named(t) if isinstance(t, str | TensorType) else None
        if wanted is None:
            torch.set_default_device(None)
            known_default(t)
        else:
            torch.set_default_dtype(wanted.dtype)
            torch.set_default_device("cuda")

    changes.set(torch, "set_default_tensor_type", set_default_tensor_type)
