# SPDX-License-Identifier: BSD-3-Clause
"""Types of tensors by device and dtype, ``torch.loom.FloatTensor`` and its like.

``x.type()`` names them. As with ``torch.cuda.FloatTensor``, a call makes a tensor, of given sizes
or of given values, and ``isinstance`` looks at device and dtype.
"""

from typing import Any

import torch

from ._utils import DeviceLike, _get_device_index, device_name, is_loom

__all__ = [
    "TENSOR_TYPES",
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
    "TensorType",
]

_DTYPES = {
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "ShortTensor": torch.int16,
}


class TensorType(type):
    """The class of these types."""

    dtype: torch.dtype

    def __call__(cls, *args: Any, device: DeviceLike = None) -> torch.Tensor:
        """Make a tensor of sizes, or of the values of a sequence."""
        where = torch.device("loom", _get_device_index(device, optional=True))
        if len(args) == 1 and not isinstance(args[0], int | torch.Size):
            return torch.as_tensor(args[0], dtype=cls.dtype).to(where)
        sizes = args[0] if args and isinstance(args[0], torch.Size) else args
        return torch.empty(sizes or (0,), dtype=cls.dtype, device=where)

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, torch.Tensor)
            and is_loom(instance.device)
            and instance.dtype == cls.dtype
            and instance.layout is torch.strided
        )

    def __repr__(cls) -> str:
        return f"<class 'torch.{device_name()}.{cls.__name__}'>"


def _make(name: str) -> TensorType:
    dtype = _DTYPES[name]
    doc = f"The type of loom tensors of {dtype}: makes them, and knows them by ``isinstance``."
    return TensorType(name, (), {"dtype": dtype, "__doc__": doc, "__module__": "torch.loom"})


BFloat16Tensor = _make("BFloat16Tensor")
BoolTensor = _make("BoolTensor")
ByteTensor = _make("ByteTensor")
CharTensor = _make("CharTensor")
DoubleTensor = _make("DoubleTensor")
FloatTensor = _make("FloatTensor")
HalfTensor = _make("HalfTensor")
IntTensor = _make("IntTensor")
LongTensor = _make("LongTensor")
ShortTensor = _make("ShortTensor")

TENSOR_TYPES: dict[str, TensorType] = {name: globals()[name] for name in _DTYPES}
"""The types by their names."""
