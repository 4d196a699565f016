# SPDX-License-Identifier: BSD-3-Clause
"""Products that graphs of loom keep, or find, as the one operator that loom is fast at."""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch._C import DispatchKey

from .._replace import replace
from .._utils import is_loom

__all__ = ["keep", "match_int8_weights"]

_aten = torch.ops.aten


def keep(table: dict[Any, Callable[..., Any]], config: ModuleType) -> None:
    """Patch the table by which AOTAutograd traces for Inductor, whose settings are ``config``."""
    # Where coordinate descent tunes the kernels that Triton generates, as libraries of quantized
    # layers set it, products with vectors become sums of products. No loop here is tuned by it.
    for packet in (_aten.mm, _aten.bmm):
        table[packet.default] = _untuned(config, table[packet.default])
    # PyTorch knows by name on which devices a product of int8 in int32 is one operator.
    out_dtype = torch.ops.higher_order.out_dtype
    widen = table[out_dtype]
    multiply = out_dtype.py_kernels[DispatchKey.PrivateUse1]

    @functools.wraps(widen)
    def decompose_out_dtype(op: Any, output_dtype: torch.dtype, *args: Any) -> Any:
        on_loom = any(isinstance(x, torch.Tensor) and is_loom(x.device) for x in args)
        return (multiply if on_loom else widen)(op, output_dtype, *args)

    table[out_dtype] = decompose_out_dtype


def _untuned(config: ModuleType, decompose: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(decompose)
    def decompose_product(self: torch.Tensor, *args: Any, **named: Any) -> Any:
        if not is_loom(self.device):
            return decompose(self, *args, **named)
        with config.patch(coordinate_descent_tuning=False):
            return decompose(self, *args, **named)

    return decompose_product


def match_int8_weights(quantization: Any) -> None:
    """Patch ``torch._inductor.fx_passes.quantization``: products with int8 weights times scales.

    The operator widens weights in registers; without it they are widened in memory at every call.
    """
    is_valid_elsewhere = quantization._is_valid_woq_optimization_pattern
    register_lowerings = quantization._register_woq_lowerings

    def _is_valid_woq_optimization_pattern() -> Callable[[Any], bool]:
        is_valid = is_valid_elsewhere()
        return lambda match: _has_int8_weights(match) or bool(is_valid(match))

    def _register_woq_lowerings() -> None:
        register_lowerings()
        _register_matrices(quantization)

    replace(quantization, "_is_valid_woq_optimization_pattern", _is_valid_woq_optimization_pattern)
    replace(quantization, "_register_woq_lowerings", _register_woq_lowerings)


def _has_int8_weights(match: Any) -> bool:
    nodes = [match.kwargs[key] for key in ("x", "weight", "scales")]
    values: list[Any] = [getattr(node, "meta", {}).get("val") for node in nodes]
    if not all(isinstance(value, torch.Tensor) and is_loom(value.device) for value in values):
        return False
    x, weight, scales = values
    return bool(
        x.dtype in (torch.bfloat16, torch.float16, torch.float32)
        and x.dtype == scales.dtype
        and weight.dtype == torch.int8
        and scales.shape == weight.shape[:1]
        and x.device == weight.device == scales.device
    )


def _register_matrices(quantization: Any) -> None:
    # Of the forms that a linear layer takes, PyTorch has none for operands that are matrices.
    argument, keyword = quantization.Arg, quantization.KeywordArg
    called = quantization.CallFunction
    widened = called(torch.ops.prims.convert_element_type.default, keyword("weight"), argument())
    turned = called(_aten.permute.default, widened, argument())
    product = called(_aten.mm.default, keyword("x"), turned)
    pattern = called(_aten.mul.Tensor, product, keyword("scales"))

    @quantization.register_lowering_pattern(  # type: ignore[untyped-decorator]
        pattern, extra_check=_has_int8_weights
    )
    def multiply_matrices(match: Any, *args: Any, **named: Any) -> Any:
        operands = (named[key] for key in ("x", "weight", "scales"))
        return quantization.L[_aten._weight_int8pack_mm.default](*operands)
