# SPDX-License-Identifier: BSD-3-Clause
"""The Python that runs a compiled graph: it allocates, calls kernels and operators, and returns.

Every allocation and kernel names its device, so the wrapper needs no device guard: operators take
the device of their tensors.
"""

from collections.abc import Sequence
from typing import Any

from torch._inductor import config, ir
from torch._inductor.codegen.wrapper import PythonWrapperCodegen, SubgraphPythonWrapperCodegen
from torch._inductor.virtualized import V

from .._utils import is_loom
from . import stream_order, unasked_replays
from .kernel_group import INCLUDE
from .operand_lifetimes import outlive_epilogues

__all__ = ["KeepsInputs", "LoomSubgraphWrapper", "LoomWrapper", "check_reads_no_loom"]


class KeepsInputs(PythonWrapperCodegen):
    """Code that is replayed writes no inputs but those that the graph is known to mutate."""

    def can_reuse(self, input_buffer: Any, output_buffer: Any = None) -> bool:
        # A backward may write its results over saved tensors that nobody else has. A replay may
        # read a copy of such a tensor: it would hand out the tensor itself, which is unchanged.
        if config.triton.cudagraphs and isinstance(_input_named(input_buffer), ir.DonatedBuffer):
            return False
        return bool(super().can_reuse(input_buffer, output_buffer))


def _input_named(buffer: Any) -> Any:
    return V.graph.graph_inputs_original.get(buffer.get_name())


class _LoomCalls(KeepsInputs):
    """What calls and allocations of loom look like, in graphs and in their subgraphs."""

    def run_wrapper_ir_passes(self, is_inference: bool) -> None:
        self.lines = outlive_epilogues(self.lines)
        super().run_wrapper_ir_passes(is_inference)

    def define_kernel(self, kernel_name: str, kernel_body: str, *args: Any, **kwargs: Any) -> None:
        if INCLUDE in kernel_body:
            kernel_body = kernel_body.replace(
                "async_compile.cpp_pybinding(", "loom_kernel(async_compile, ", 1
            )
        super().define_kernel(kernel_name, kernel_body, *args, **kwargs)

    def _generate_kernel_call_helper(
        self,
        kernel_name: str,
        call_args: Any,
        *,
        device: Any = None,
        triton: bool = True,
        **kwargs: Any,
    ) -> None:
        device = device or V.graph.get_current_device_or_throw()
        if is_loom(device) and not triton:
            self.writeline(self.wrap_kernel_call(kernel_name, call_args))
            return
        check_reads_no_loom(kernel_name, call_args, device)
        super()._generate_kernel_call_helper(
            kernel_name, call_args, device=device, triton=triton, **kwargs
        )

    def generate_return(self, output_refs: list[str]) -> None:
        side_streams = stream_order.side_streams()
        if side_streams:
            results = "".join(f"{ref}, " for ref in output_refs)
            self.wrapper_call.writeline(f"stream_calls.leave({side_streams}, ({results}))")
        super().generate_return(output_refs)

    def make_allocation(
        self,
        name: str,
        device: Any,
        dtype: Any,
        shape: Any,
        stride: Any,
        allocation_shape: Any = None,
        is_pinned: bool = False,
    ) -> str:
        if not is_loom(device):
            return str(
                super().make_allocation(
                    name, device, dtype, shape, stride, allocation_shape, is_pinned
                )
            )
        sizes = self.codegen_python_shape_tuple(shape)
        allocated = self.codegen_python_shape_tuple(allocation_shape or shape)
        strides = self.codegen_python_shape_tuple(stride)
        made = f"{name} = loom_empty({allocated}, {strides}, {dtype}, {device.index or 0})"
        return made if allocated == sizes else f"{made}.as_strided({sizes}, {strides})"


def _are_numbers(text: str) -> bool:
    return not any(character.isalpha() for character in text)


def check_reads_no_loom(kernel_name: str, call_args: Any, device: Any) -> None:
    """A kernel of the cpu runs at once, beside the stream that makes loom's values."""
    if device.type != "cpu":
        return
    for argument in call_args:
        buffer = V.graph.try_get_buffer(argument) if isinstance(argument, str) else None
        if buffer is not None and is_loom(buffer.get_device_or_error()):
            raise RuntimeError(
                f"torch.compile: {kernel_name} of the cpu would use {argument}, a tensor of loom"
            )


class LoomWrapper(_LoomCalls):
    """The wrapper of a graph."""

    @staticmethod
    def create(
        is_subgraph: bool,
        subgraph_name: str | None,
        parent_wrapper: PythonWrapperCodegen | None,
        partition_signatures: Any = None,
    ) -> PythonWrapperCodegen:
        if is_subgraph:
            assert subgraph_name is not None
            assert parent_wrapper is not None
            return LoomSubgraphWrapper(subgraph_name, parent_wrapper, partition_signatures)
        return LoomWrapper()

    def __init__(self) -> None:
        super().__init__()
        self._checked: dict[str, tuple[str, str]] = {}  # inputs, with sizes and strides

    def write_assert_size_stride(
        self, name: str, size: str, stride: str, op_name: str, *rest: Any, **named: Any
    ) -> None:
        # A call each, just before the input is used, is a fifth of what small graphs cost. Of
        # results torch 2.14 checks the dtype, too, by one more argument.
        if op_name == "input" and _are_numbers(size) and _are_numbers(stride):
            self._checked[name] = (size, stride)
        else:
            super().write_assert_size_stride(name, size, stride, op_name, *rest, **named)

    def write_assert_size_stride_grouped(
        self, asserts: Sequence[tuple[str, str, str]], op_name: str
    ) -> None:
        # _torch_features.GROUPED_LAYOUT_CHECKS: those of inputs that are used together.
        for name, size, stride in asserts:
            self.write_assert_size_stride(name, size, stride, op_name)

    def run_wrapper_ir_passes(self, is_inference: bool) -> None:
        if unasked_replays.may_be_replayed(is_inference):
            self.imports.splice(unasked_replays.MARK)
        if self._checked:
            rows = "".join(f"    ({size}, {stride}),\n" for size, stride in self._checked.values())
            self.header.splice(f"check_inputs = loom_layouts([\n{rows}])\n")
            lines: list[Any] = self.lines
            lines.insert(0, f"check_inputs({', '.join(self._checked)})")
        super().run_wrapper_ir_passes(is_inference)

    def write_header(self) -> None:
        super().write_header()
        self.imports.writeline("from torch_loom.inductor import stream_calls")
        self.imports.writeline("from torch_loom.inductor.kernel_cache import loom_kernel")
        self.imports.writeline("from torch_loom.inductor.programs import loom_empty, loom_program")
        self.imports.writeline("from torch_loom.inductor.programs import loom_layouts")


class LoomSubgraphWrapper(_LoomCalls, SubgraphPythonWrapperCodegen):
    """The wrapper of a graph inside another one: a branch, a loop's body, a part."""
