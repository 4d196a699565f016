# SPDX-License-Identifier: BSD-3-Clause
"""Products of int8 in int32, as libraries of quantized layers ask for them."""

from typing import Any

import torch
from torch._higher_order_ops.out_dtype import out_dtype, out_dtype_dense

from .._utils import is_loom


def apply() -> None:
    """Have ``out_dtype(aten.mm, torch.int32, ...)`` of int8 be ``torch._int_mm``, as on CUDA."""

    # On devices that it does not know by name it widens both matrices to int32 first, which have
    # no fast product.
    @out_dtype.py_impl(torch._C.DispatchKey.PrivateUse1)
    def out_dtype_loom(op: Any, output_dtype: torch.dtype, *arguments: Any) -> Any:
        are_bytes = all(is_loom(x.device) and x.dtype == torch.int8 for x in arguments)
        if op is torch.ops.aten.mm.default and output_dtype == torch.int32 and are_bytes:
            return torch._int_mm(*arguments)
        return out_dtype_dense(op, output_dtype, *arguments)
