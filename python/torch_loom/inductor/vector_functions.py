# SPDX-License-Identifier: BSD-3-Clause
"""Vectors in generated code: loom's formulas and masks rather than the vectors' methods."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch._inductor import config
from torch._inductor.codegen.cpp import (
    CppTile2DKernel,
    CppTile2DOverrides,
    CppVecOverrides,
)
from torch._inductor.codegen.cpp_utils import CppCSEVariable
from torch._inductor.virtualized import V

from .accumulators import AccumulatingVecKernel

__all__ = ["LoomTile2DKernel", "LoomVecKernel"]

_FUNCTIONS = ("exp", "exp2", "expm1", "log", "log1p", "log2", "tanh", "erf", "sigmoid")


class _LoomVecOverrides(CppVecOverrides):
    """Inductor's expressions, with `torch_loom/functions.h` for the functions that are there."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return _with_formulas(super().__new__(cls, *args, **kwargs))

    @staticmethod
    def masked(mask: Any, body: Callable[[], Any], other: Any) -> Any:
        return CppVecOverrides.masked(mask, _masks_of_floats(body), other)


class _LoomTile2DOverrides(CppTile2DOverrides):
    """The same for tiles, whose indices are expressions of their own."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return _with_formulas(super().__new__(cls, *args, **kwargs))

    masked = staticmethod(_LoomVecOverrides.masked)


def _masks_of_floats(body: Callable[[], Any]) -> Callable[[], Any]:
    # Inductor makes the other value of masked booleans a mask for float32, whatever was compared:
    # of int64 this one would be of another type, which is no C++.
    def make() -> Any:
        result = body()
        if result.dtype != torch.bool or not result.is_vec:
            return result
        mask = V.kernel.cse.generate(
            V.kernel.compute, V.kernel._get_mask_cast(result, torch.float32)
        )
        mask.dtype, mask.is_vec = torch.bool, True
        return mask

    return make


def _with_formulas(overrides: Any) -> Any:
    # The formulas add and subtract large numbers in order to round.
    if config.cpp.enable_unsafe_math_opt_flag:
        return overrides
    # Inductor makes attributes of the object, which decide between scalars and vectors.
    for name in _FUNCTIONS:
        setattr(overrides, name, _by_formula(name, getattr(overrides, name)))
    return overrides


def _by_formula(name: str, expression: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        if isinstance(x, CppCSEVariable) and x.is_vec:
            return f"loom_kernel::{name}({x})"
        return expression(x)

    return call


class LoomVecKernel(AccumulatingVecKernel):
    """Loops over vectors."""

    overrides = _LoomVecOverrides

    def _get_vec_load_line(
        self, var: str, index: Any, dtype: torch.dtype, load_mask: Any = None
    ) -> str:
        line = cast(str, super()._get_vec_load_line(var, index, dtype, load_mask))
        if dtype != torch.bool:
            return line
        masks = f"loom_kernel::load_mask<{self._get_num_vectors(torch.float)}>("
        return line.replace(f"{self._get_mask_type()}::from(", masks)

    def _get_store_line(
        self, value: Any, var: str, index: Any, dtype: torch.dtype, accu_store: bool = False
    ) -> Any:
        code = super()._get_store_line(value, var, index, dtype, accu_store)
        if dtype != torch.bool:
            return code
        masks = f"loom_kernel::store_mask({value}, "
        return code.map(lambda line: line.replace(f"{value}.store(", masks))


class LoomTile2DKernel(CppTile2DKernel, LoomVecKernel):
    """Loops over tiles, where the innermost dimensions of operands differ.

    One of the vector kernels: Inductor asks for that when it joins loops of a nest.
    """

    overrides = _LoomTile2DOverrides
