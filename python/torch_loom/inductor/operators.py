# SPDX-License-Identifier: BSD-3-Clause
"""Operators that graphs of loom keep, where PyTorch would take them apart for Inductor.

What they would become reads neighbours one by one and, backwards, adds to them by indices: loom's
operators are several times as fast. Where sizes are symbols they are taken apart all the same.
"""

import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import sympy
import torch
from torch._C import DispatchKey
from torch.utils import _pytree as pytree

from .._utils import is_loom
from . import products

__all__ = ["keep", "lower"]

_aten = torch.ops.aten

_KEPT = (
    _aten.upsample_nearest1d,
    _aten.upsample_nearest1d_backward,
    _aten.upsample_nearest2d,
    _aten.upsample_nearest2d_backward,
    _aten.upsample_nearest3d,
    _aten.upsample_nearest3d_backward,
    _aten._upsample_nearest_exact1d,
    _aten._upsample_nearest_exact1d_backward,
    _aten._upsample_nearest_exact2d,
    _aten._upsample_nearest_exact2d_backward,
    _aten._upsample_nearest_exact3d,
    _aten._upsample_nearest_exact3d_backward,
    _aten.upsample_linear1d,
    _aten.upsample_linear1d_backward,
    _aten.upsample_bilinear2d,
    _aten.upsample_bilinear2d_backward,
    _aten.upsample_trilinear3d,
    _aten.upsample_trilinear3d_backward,
    _aten.upsample_bicubic2d,
    _aten.upsample_bicubic2d_backward,
    _aten.grid_sampler_2d,
    _aten.grid_sampler_2d_backward,
    _aten.im2col,
    _aten.col2im,
    _aten.max_pool2d_with_indices_backward,
    _aten.embedding_dense_backward,
    # Statistics of channels are sums over dimensions that lie apart. Where they are given, the
    # operator makes two factors of them for each channel, before the convolution that it joins.
    _aten._native_batch_norm_legit_functional,
    _aten._native_batch_norm_legit_no_training,
    _aten.native_batch_norm_backward,
    _aten.reflection_pad1d,
    _aten.reflection_pad1d_backward,
    _aten.reflection_pad2d,
    _aten.reflection_pad2d_backward,
    _aten.reflection_pad3d,
    _aten.reflection_pad3d_backward,
)

# Generated loops read windows element by element: where windows reach beyond the image, and of half
# types, they take up to five times as long as the operators. Where channels lie one after the other
# they are vectors, and loops are faster.
_MAXIMA = {
    _aten.max_pool2d_with_indices: _aten.max_pool2d,
    _aten.max_pool3d_with_indices: _aten.max_pool3d,
}

# Loom's sums and means of whole memory read it once, row after row; those that are generated read
# columns one vector wide, and have fewer sums under way. Below so many elements a call costs more
# than it wins.
_SUMS = (_aten.sum.default, _aten.sum.dim_IntList, _aten.mean.default, _aten.mean.dim)
_LEAST_SUMMED = 1 << 15

_AVERAGES = (_aten.avg_pool2d, _aten.avg_pool3d)
_AVERAGES_BACKWARD = (_aten.avg_pool2d_backward, _aten.avg_pool3d_backward)


def keep(decomposition: ModuleType) -> None:
    """Patch ``torch._inductor.decomposition``, the table by which AOTAutograd traces."""
    table = decomposition.decompositions
    # It may have been imported before loom changed this one.
    decomposition.decomp_native_layer_norm = torch._refs.native_layer_norm  # type: ignore[attr-defined]
    for packet in (*_KEPT, *_MAXIMA):
        for name in ("default", "vec"):
            overload = getattr(packet, name, None)
            if overload in table:
                table[overload] = _unless_kept(packet, table[overload])
            if DispatchKey.Autograd in getattr(overload, "py_kernels", ()):
                _trace_as_it_runs(overload)
    products.keep(table, decomposition.config)


def lower() -> None:
    """Have Inductor call the operators for nodes of loom."""
    from torch._inductor.lowering import lowerings

    for packet in _KEPT:
        lowerings[packet.default] = _call_on_loom(packet.default, lowerings.get(packet.default))
    for packet, values in _MAXIMA.items():
        lowerings[packet.default] = _call_for_values(packet.default, values.default)
    loops = torch.ops.prims._low_memory_max_pool_with_offsets.default
    lowerings[loops] = _read_memory(lowerings[loops])
    for packet in _AVERAGES:
        generate = lowerings[packet.default]
        call = _call_on_loom(packet.default, generate)
        lowerings[packet.default] = _call_for_averages(generate, call)
    for packet in _AVERAGES_BACKWARD:
        generate = lowerings[packet.default]
        call = _call_on_loom(packet.default, None)
        lowerings[packet.default] = _call_for_gradients_of_averages(generate, call)
    for overload in _SUMS:
        lowerings[overload] = _call_on_memory(lowerings[overload], _call_on_loom(overload, None))


def _call_on_memory(generate: Callable[..., Any], call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(generate)
    def lower_node(x: Any, *args: Any, **named: Any) -> Any:
        lower = call if _sums_memory(x, *args, **named) else generate
        return lower(x, *args, **named)

    return lower_node


def _sums_memory(x: Any, dims: Any = None, *args: Any, dtype: Any = None, **named: Any) -> bool:
    """Whether a sum's operand is in memory in any case: nothing is gained by computing it anew.

    Those are inputs, results of operators, and what something else reads, too. Rows of any but
    inputs that nothing else reads are summed and used in one pass, as in a softmax.
    """
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    if ir.get_device_type(x) != "loom" or not x.get_dtype().is_floating_point:
        return False
    if dtype not in (None, x.get_dtype()):
        return False
    sizes = x.get_size()
    if not all(isinstance(n, (int, sympy.Integer)) for n in sizes):
        return False
    if functools.reduce(int.__mul__, map(int, sizes), 1) < _LEAST_SUMMED:
        return False
    operand: Any = V.graph.current_node.args[0]
    value = operand.meta["val"]
    if 0 in value.stride():  # its elements are read from the caches
        return False
    if operand.op == "placeholder" and len(operand.users) == 1:
        return True
    return not _are_rows(value, dims) and (len(operand.users) > 1 or _is_in_memory(x))


def _is_in_memory(x: Any) -> bool:
    """Whether a node's value is an input or what an operator makes, or a view of such."""
    from torch._inductor import ir

    if not ir.is_storage_and_layout(x):
        return False
    memory = ir.as_storage_and_layout(x, freeze=False)[0].data
    return isinstance(memory, (ir.InputBuffer, ir.InputsKernel))


def _are_rows(x: torch.Tensor, dims: Any) -> bool:
    """Whether the sums are over what lies in one piece of memory each, and there are several."""
    reduced = {d % x.dim() for d in ([dims] if isinstance(dims, int) else dims or range(x.dim()))}
    strides: tuple[list[int], list[int]] = [], []
    for d, (size, stride) in enumerate(zip(x.shape, x.stride(), strict=True)):
        if size > 1:
            strides[d in reduced].append(stride)
    outside, inside = strides
    return bool(outside and inside) and max(inside) < min(outside)


def _call_for_values(overload: Any, values: Any) -> Callable[..., Any]:
    """Lowers a maximum in windows: without indices where nothing uses them."""
    from torch._inductor import lowering
    from torch._inductor.virtualized import V

    def without_indices(x: Any, *args: Any, **named: Any) -> Any:
        return call(x, *args, **named), None

    call = lowering.fallback_handler(values, add_to_fallback_set=False)
    generate = lowering.lowerings.get(overload)
    kept = _call_on_loom(overload, generate)
    kept_for_values = _call_on_loom(overload, generate, without_indices)

    def lower_node(x: Any, *args: Any, **named: Any) -> Any:
        indexed = any(user.args[1] == 1 for user in V.graph.current_node.users)
        return (kept if indexed else kept_for_values)(x, *args, **named)

    return lower_node


def _read_memory(generate: Callable[..., Any]) -> Callable[..., Any]:
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    @functools.wraps(generate)
    def lower_node(x: Any, *args: Any, **named: Any) -> Any:
        # What is computed before would be computed for each window anew.
        operand: Any = V.graph.current_node.args[0]
        if ir.get_device_type(x) == "loom" and operand.meta["val"].is_contiguous():
            x.realize()
        return generate(x, *args, **named)

    return lower_node


def _call_for_averages(
    generate: Callable[..., Any], call: Callable[..., Any]
) -> Callable[..., Any]:
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    @functools.wraps(generate)
    def lower_node(
        x: Any,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        *rest: Any,
        **named: Any,
    ) -> Any:
        node: Any = V.graph.current_node
        window = (kernel_size, stride, padding, ceil_mode)
        # Windows that do not overlap are a few loads, which loops make as fast.
        is_slow = _overlap(*window) and _is_slow_in_loops(node.args[0].meta["val"], *window[2:])
        lower = call if is_slow and ir.get_device_type(x) == "loom" else generate
        return lower(x, *window, *rest, **named)

    return lower_node


def _call_for_gradients_of_averages(
    generate: Callable[..., Any], call: Callable[..., Any]
) -> Callable[..., Any]:
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    @functools.wraps(generate)
    def lower_node(
        grad: Any,
        x: Any,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None = None,
    ) -> Any:
        window = (kernel_size, stride, padding, ceil_mode)
        node: Any = V.graph.current_node
        image = node.args[1].meta["val"]
        # Inductor divides by the size of windows that reach beyond the padding, and cannot divide
        # by a number that the user gives.
        is_wrong = (ceil_mode and count_include_pad) or divisor_override is not None
        is_slow = _lies_in_rows(image) and (_overlap(*window) or image.element_size() < 4)
        lower = call if (is_wrong or is_slow) and ir.get_device_type(x) == "loom" else generate
        return lower(grad, x, *window, count_include_pad, divisor_override)

    return lower_node


def _overlap(kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool) -> bool:
    """Whether windows overlap with each other or reach beyond the image."""
    sizes, steps = pytree.tree_leaves(kernel_size), pytree.tree_leaves(stride)
    overlap = bool(steps) and max(sizes) > min(steps)
    return overlap or ceil_mode or any(pytree.tree_leaves(padding))


def _unless_kept(packet: Any, decompose: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(decompose)
    def decompose_others(input: torch.Tensor, *args: Any, **named: Any) -> Any:
        kept = is_loom(input.device) and not _has_symbols(input, args)
        if packet in _MAXIMA:
            kept = kept and _are_slow_maxima(input, *args, **named)
        if kept:
            return NotImplemented
        return decompose(input, *args, **named)

    return decompose_others


def _are_slow_maxima(
    input: torch.Tensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> bool:
    return _is_slow_in_loops(input, padding, ceil_mode)


def _is_slow_in_loops(input: torch.Tensor, padding: Any, ceil_mode: bool) -> bool:
    reaches_beyond = ceil_mode or any(pytree.tree_leaves(padding))
    return _lies_in_rows(input) and (reaches_beyond or input.element_size() < 4)


def _lies_in_rows(image: torch.Tensor) -> bool:
    return not _has_symbols(image) and image.is_contiguous()


def _has_symbols(*arguments: Any) -> bool:
    # Some of PyTorch's fakes of these operators take sizes that are numbers only.
    leaves = pytree.tree_leaves(arguments)
    sizes = [n for x in leaves if isinstance(x, torch.Tensor) for n in x.size()]
    return any(isinstance(x, (torch.SymInt, torch.SymFloat)) for x in (*leaves, *sizes))


def _trace_as_it_runs(overload: Any) -> None:
    # Where PyTorch traces for autograd, what is written in Python comes before what runs.
    decompose = overload.py_kernels[DispatchKey.Autograd]
    implicit = DispatchKey.CompositeImplicitAutograd
    is_implicit = torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), implicit)
    kernel = implicit if is_implicit else DispatchKey.Autograd

    @overload.py_impl(DispatchKey.AutogradPrivateUse1)  # type: ignore[untyped-decorator]
    def run(*args: Any, **named: Any) -> Any:
        if _has_symbols(args, named):
            return decompose(*args, **named)
        return overload._op_dk(kernel, *args, **named)


def _call_on_loom(
    overload: Any, generate: Callable[..., Any] | None, call: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    from torch._inductor import ir, lowering
    from torch._inductor.virtualized import V

    called = call or lowering.fallback_handler(overload, add_to_fallback_set=False)

    def lower_node(input: Any, *args: Any, **named: Any) -> Any:
        is_static = all(isinstance(n, (int, sympy.Integer)) for n in input.get_size())
        if generate is not None and not (is_static and ir.get_device_type(input) == "loom"):
            return generate(input, *args, **named)
        all_args: Sequence[Any] = (input, *args)
        if is_static:  # strides of a result follow those of operands, which cannot be compared else
            node = V.graph.current_node
            all_args, named = lowering.constrain_to_fx_strides(node, *all_args, **named)
        return called(*all_args, **named)

    return lower_node
