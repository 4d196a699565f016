# SPDX-License-Identifier: BSD-3-Clause
"""What Inductor decides by the name "cpu", or by "whatever else there is runs Triton".

Loom's kernels are generated as those of the cpu are, so these decisions hold for them, too. Each
patch changes what happens to nodes of loom only.
"""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch._inductor import config, graph, ir, lowering, scheduler, utils
from torch._inductor.codegen import common
from torch._inductor.fx_passes import joint_graph
from torch._inductor.kernel import mm_common
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V

from .._replace import replace
from .._utils import is_loom

__all__ = ["apply"]

# 64 KiB of float32, which the second-level cache of any core holds beside what else a block reads.
_ELEMENTS_OF_A_CACHED_ROW = 16384


def apply() -> None:
    """Apply all patches. Call once."""
    _name_the_backend()
    _realize_and_order_as_on_cpu()
    _choose_device_of_pointwise()
    _scatter_by_operators()
    _scatter_what_was_there_before()
    _count_arguments_of_reductions()
    _divide_by_constants()
    _pass_over_rows_twice()
    _keep_layouts_of_convolutions()
    _concatenate_by_copies()
    _find_memory_below_views()
    _fuse_by_rules()
    _take_magnitudes_of_truth_values()
    _scale_before_softmax()


def _name_the_backend() -> None:
    # Inductor knows the backend of each device that it names, and says "triton" for all others.
    original = utils.get_current_backend

    def get_current_backend(device_type: str | None = None) -> Any:
        if not device_type:
            device_type = V.graph.get_current_device_or_throw().type
        return "cpp" if device_type == "loom" else original(device_type)

    for module in (utils, common, scheduler, mm_common):
        replace(module, "get_current_backend", get_current_backend)


def _realize_and_order_as_on_cpu() -> None:
    # Limits on what is computed again rather than stored, and orders of loops that C++ is not
    # generated for.
    def is_cpu(x: Any) -> bool:
        return ir.get_device_type(x) in ("cpu", "loom")

    def node_is_cpu(self: Any) -> bool:
        device = self.get_device()
        return device is not None and device.type in ("cpu", "loom")

    replace(ir, "is_cpu", is_cpu)
    replace(scheduler.BaseSchedulerNode, "is_cpu", node_is_cpu)


def _choose_device_of_pointwise() -> None:
    # A number of the host may be the first operand: the result is on the device of another one,
    # which is looked for among GPUs.
    original = lowering.is_gpu

    def is_gpu(device: str | None) -> bool:
        return device == "loom" or original(device)

    replace(lowering, "is_gpu", is_gpu)


def _scatter_by_operators() -> None:
    # Sums of scattered values need an order, or results depend on timing. Loom's operators have one
    # and share the work; a generated loop would run on one core.
    fallback = lowering.use_scatter_fallback
    no_atomics = lowering.needs_fallback_due_to_atomic_add_limitations

    def use_scatter_fallback(
        op_overload: Any,
        reduction_type: str | None,
        self_dtype: Any,
        src_dtype: Any,
        src_device_type: str,
        src_is_tensor: bool,
    ) -> bool:
        if src_device_type == "loom" and reduction_type is not None:
            return True
        return fallback(
            op_overload, reduction_type, self_dtype, src_dtype, src_device_type, src_is_tensor
        )

    def needs_fallback_due_to_atomic_add_limitations(dtype: Any) -> bool:
        return _lowers_loom() or no_atomics(dtype)

    replace(lowering, "use_scatter_fallback", use_scatter_fallback)
    replace(
        lowering,
        "needs_fallback_due_to_atomic_add_limitations",
        needs_fallback_due_to_atomic_add_limitations,
    )


def _lowers_loom() -> bool:
    value = V.graph.current_node.meta.get("val")
    device = getattr(value, "device", None)
    return device is not None and is_loom(device)


def _scatter_what_was_there_before() -> None:
    # Inductor scatters in place where nothing reads the tensor later. What is scattered, and where
    # to, may be read from it in the same step: loops would read what they have written, and
    # operators refuse.
    original = lowering.index_put_impl_

    def index_put_impl_(
        self: Any, indices: Any, values: Any, accumulate: bool, *rest: Any, **named: Any
    ) -> Any:
        if ir.get_device_type(self) == "loom":
            self.realize()
            name = self.get_name()
            indices = [_apart_from(name, index) for index in indices]
            values = _apart_from(name, values)
        return original(self, indices, values, accumulate, *rest, **named)

    replace(lowering, "index_put_impl_", index_put_impl_)


def _apart_from(name: str, operand: Any) -> Any:
    """The operand, or a copy where it is read from a buffer."""
    if not isinstance(operand, ir.IRNode):
        return operand
    # Loops compute again what is cheap, and operators are given where it lies.
    lies_there = ir.try_get_name(operand) == name
    read = ir.Pointwise(
        device=operand.get_device_or_error(),
        dtype=operand.get_dtype(),
        inner_fn=operand.make_loader(),
        ranges=operand.get_size(),
    )
    reads_there = name in read.get_read_names()
    return ir.ExternKernel.copy_input(operand) if lies_there or reads_there else operand


def _count_arguments_of_reductions() -> None:
    # The loops of argmax over several dimensions follow memory: without an index of its own, made
    # for backends that can use it, it counts in that order. Lowering sees the need for one in
    # tensors that lie in memory and in permutations; what is neither, but may be computed from
    # such, becomes a permutation that changes nothing.
    original = lowering._make_reduction_inner

    def make_reduction_inner(x: Any, *, reduction_type: str | None = None, **kwargs: Any) -> Any:
        kwargs["reduction_type"] = reduction_type
        if ir.get_device_type(x) != "loom":
            return original(x, **kwargs)
        if str(reduction_type).startswith("arg") and not _lies_in_memory(x):
            x = ir.TensorBox(ir.PermuteView(data=x.data, dims=list(range(len(x.get_size())))))
        is_triton = lowering.is_triton
        lowering.is_triton = lambda x: True
        try:
            return original(x, **kwargs)
        finally:
            lowering.is_triton = is_triton

    replace(lowering, "_make_reduction_inner", make_reduction_inner)


def _lies_in_memory(x: Any) -> bool:
    data = x.data
    return isinstance(data, ir.ReinterpretView) or (
        isinstance(data, ir.StorageBox) and isinstance(data.data, ir.Buffer)
    )


def _divide_by_constants() -> None:
    # A multiplication by the reciprocal rounds differently; on the cpu a division stays one.
    original = lowering.get_constant_value

    def get_constant_value(x: Any) -> Any:
        if isinstance(x, ir.IRNode) and ir.get_device_type(x) == "loom":
            return None
        return original(x)

    replace(lowering, "get_constant_value", get_constant_value)


def _pass_over_rows_twice() -> None:
    # The mean first and then the squares of what differs from it: Welford's algorithm divides at
    # every element. A row that stays in a core's cache is read twice for less.
    original = lowering.use_two_step_variance

    def use_two_step_variance(x: Any, axis: Any, keepdim: bool, input_dtype: Any) -> bool:
        if ir.get_device_type(x) != "loom":
            return bool(original(x, axis, keepdim, input_dtype))
        sizes, reduced = x.get_size(), lowering._validate_reduction_axis(x, axis)
        row = sympy_product([sizes[i] for i in reduced])
        rows = sympy_product([size for i, size in enumerate(sizes) if i not in reduced])
        # Welford's algorithm says that the mean of nothing is 0.
        is_cached = row.is_Integer and row <= _ELEMENTS_OF_A_CACHED_ROW
        return bool(row == 0 or (is_cached and rows != 1))

    replace(lowering, "use_two_step_variance", use_two_step_variance)
    replace(lowering, "var_mean_sum_", _divides_in_place(lowering.var_mean_sum_))


def _divides_in_place(original: Callable[..., Any]) -> Callable[..., Any]:
    # A mean of its own in memory is a loop over all rows between the two passes, so that a row has
    # left the caches before it is read again. As an expression of the sum it is divided where used.
    def var_mean_sum_(x: Any, *args: Any, **named: Any) -> Any:
        if ir.get_device_type(x) != "loom":
            return original(x, *args, **named)
        mean, means = lowering.mean, []

        def expression(*args: Any, **named: Any) -> Any:
            means.append(mean(*args, **named))
            means[-1].realize = lambda: None
            return means[-1]

        lowering.mean = expression
        try:
            return original(x, *args, **named)
        finally:
            lowering.mean = mean
            for made in means:
                del made.realize

    return var_mean_sum_


def _keep_layouts_of_convolutions() -> None:
    # Loom's convolutions are as fast in either layout; weights that became channels_last would be
    # copied at every call.
    original = graph.GraphLowering.decide_layout_opt

    def decide_layout_opt(graph_module: Any, *, is_inference: bool) -> bool:
        nodes = graph_module.graph.find_nodes(
            op="call_function", target=torch.ops.aten.convolution.default
        )
        if any(is_loom(node.meta["val"].device) for node in nodes):
            return bool(config.force_layout_optimization)
        return bool(original(graph_module, is_inference=is_inference))

    replace(graph.GraphLowering, "decide_layout_opt", staticmethod(decide_layout_opt))


def _concatenate_by_copies() -> None:
    # On the cpu each operand is written to its place: one loop over all of them would ask of every
    # element which operand it is from, and is not vectorised.
    original = lowering.pointwise_cat

    def pointwise_cat(inputs: Any, dim: int = 0) -> Any:
        if ir.get_device_type(inputs[0]) == "loom" and not config.force_pointwise_cat:
            return ir.TensorBox(ir.ConcatKernel.create(inputs, dim))
        return original(inputs, dim)

    replace(lowering, "pointwise_cat", pointwise_cat)


def _find_memory_below_views() -> None:
    # Diagonals and windows are views of a box, and Inductor does not see that it holds a view of
    # memory: it would copy such a result, whose strides would be new.
    original = ir.GenericView.create

    def create(cls: Any, x: Any, new_size: Any, reindex: Any) -> Any:
        if isinstance(x.data, ir.BaseView) and ir.get_device_type(x) == "loom":
            x = x.data
        return original(x, new_size, reindex)

    replace(ir.GenericView, "create", classmethod(create))


def _fuse_by_rules() -> None:
    # Settings for Triton: to time each fusion, and to make one kernel of nests that have nothing in
    # common. Loom runs such nests beside each other in one command.
    speedup_by_fusion = scheduler.Scheduler.speedup_by_fusion
    combinable_nodes = scheduler.ForeachKernelSchedulerNode.combinable_nodes

    def fuses(self: Any, node1: Any, node2: Any) -> Any:
        if _is_on_loom(node1.get_nodes()[0]):
            return scheduler.FusionResult.fuse(True)
        return speedup_by_fusion(self, node1, node2)

    def combinable(cls: Any, nodes: Any) -> Any:
        return [node for node in combinable_nodes(nodes) if not _is_on_loom(node)]

    replace(scheduler.Scheduler, "speedup_by_fusion", fuses)
    replace(scheduler.ForeachKernelSchedulerNode, "combinable_nodes", classmethod(combinable))


def _is_on_loom(node: Any) -> bool:
    device = node.get_device()
    return device is not None and bool(is_loom(device))


def _take_magnitudes_of_truth_values() -> None:
    # As CUDA does: the cpu refuses, and C++ has no such function.
    aten = torch.ops.aten
    original = lowering.lowerings[aten.abs.default]
    original_of_list = lowering.lowerings[aten._foreach_abs.default]

    def absolute(x: Any) -> Any:
        is_truth = x.get_dtype() == torch.bool and ir.get_device_type(x) == "loom"
        return lowering.clone(x) if is_truth else original(x)

    def absolutes(tensors: Any) -> Any:
        if any(x.get_dtype() == torch.bool for x in tensors):
            return [absolute(x) for x in tensors]
        return original_of_list(tensors)

    lowering.lowerings[aten.abs.default] = absolute
    lowering.lowerings[aten._foreach_abs.default] = absolutes


def _scale_before_softmax() -> None:
    # Where a compiler may compute scale * x in two ways, PyTorch subtracts the maximum first, and
    # looks for what is not finite. By default its C++ contracts nothing, and programs compute it
    # once: a softmax of scaled rows is one of those.
    original = joint_graph._other_is_broadcasted_in_dim

    def is_on_another_device(match: Any) -> bool:
        value = match.output_node().meta["val"]
        return not is_loom(value.device) and bool(original(match))

    for each in joint_graph.pass_patterns:
        for entry in itertools.chain.from_iterable(each.patterns.values()):
            if getattr(entry, "extra_check", None) is original:
                entry.extra_check = is_on_another_device
