# SPDX-License-Identifier: BSD-3-Clause
"""Reductions with several accumulators, so that an addition need not wait for the one before it.

Inductor reduces vectors of a row one after the other into one accumulator: each step takes as long
as its addition, or several times that for a maximum that keeps NaNs, while the processor could do
several. Compilers may not reorder them. Here the innermost loop takes several steps at once, each
into an accumulator of its own, which are combined after the loop.
"""

from typing import Any

import sympy
import torch
from torch._inductor.codegen.cpp import BracesBuffer, CppVecKernel
from torch._inductor.codegen.cpp_utils import cexpr_index
from torch._inductor.virtualized import V

from .inner_loop import InnerLoop

__all__ = ["AccumulatingVecKernel", "UnrolledLoop", "write_steps"]

# As many as hide the latency of an addition behind loads, of which two begin in a cycle.
_ACCUMULATORS = 4
_TYPES = ("sum", "max", "min", "prod", "welford_reduce")


class AccumulatingVecKernel(CppVecKernel):
    """A kernel of vectors that knows its accumulators."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.accumulators: list[str] = []

    def reduction(self, dtype: Any, src_dtype: Any, reduction_type: str, value: Any) -> Any:
        known, combined = len(self.reduction_var_names), len(self.reduction_suffix._lines)
        result = super().reduction(dtype, src_dtype, reduction_type, value)
        is_new = len(self.reduction_var_names) > known
        if is_new and self._may_have_several(dtype, reduction_type):
            name = self.reduction_var_names[known + 1]
            self.accumulators.append(name)
            self._declare_more(name, dtype, reduction_type, combined)
        return result

    def _may_have_several(self, dtype: torch.dtype, reduction_type: str) -> bool:
        is_plain = reduction_type in _TYPES and dtype != torch.bool
        is_tile = hasattr(self, "codegen_inner_loops")
        if not is_plain or is_tile or self.tail_size is not None:
            return False
        # Long sums have their accumulator in an object, which adds in cascades: more won nothing.
        if reduction_type == "sum" and self.need_use_acc_helper(reduction_type, dtype, False):
            return False
        step = self.tiling_factor if self.tiling_idx == len(self.ranges) - 1 else 1
        short = 2 * _ACCUMULATORS * step
        return not V.graph.sizevars.statically_known_lt(self.ranges[-1], short)

    def _declare_more(
        self, name: str, dtype: torch.dtype, reduction_type: str, position: int
    ) -> None:
        kind = self.reduction_acc_type_vec(reduction_type, dtype)
        for i in range(1, _ACCUMULATORS):
            more = f"{name}_{i}"
            self.reduction_prefix_generators.append(
                self._gen_reduction_prefix(
                    more, kind, reduction_type, dtype, self.reduction_init_vec
                )
            )
            both = self.reduction_combine_vec(reduction_type, name, more)
            self.reduction_suffix._lines.insert(position, f"{name} = {both};")


class UnrolledLoop(InnerLoop):
    """An innermost loop whose body goes on by as many steps as it takes."""

    def lines(self) -> list[str]:
        """What stands before the body."""
        first, end = cexpr_index(self.offset), cexpr_index(self.size)
        return [
            *self.invariants.before_loop(),
            f"for (int64_t {self.var} = {first}; {self.var} < {end};)",
        ]


def write_steps(code: BracesBuffer, loop: UnrolledLoop, kernel: Any, write_step: Any) -> None:
    """Write a body of a loop: several steps of `kernel`, or the one that `write_step` writes."""
    ranges = {loop.var: (loop.offset, loop.size), **(kernel.active_ranges or {})}
    step = cexpr_index(loop.steps)
    reach = cexpr_index(_ACCUMULATORS * loop.steps)
    conditions = [f"{loop.var} + {reach} <= {cexpr_index(ranges.pop(loop.var)[1])}"]
    for var, (start, end) in ranges.items():
        conditions.append(f"{var} >= {cexpr_index(start)} && {var} < {cexpr_index(end)}")
    code.writeline(f"if (C10_LIKELY({' && '.join(conditions)}))")
    with code.indent():
        code.splice(kernel.gen_body())
        for i in range(1, _ACCUMULATORS):
            _write_step(code, loop.var, f"{i} * {step}", i, kernel)
        code.writeline(f"{loop.var} += {reach};")
    code.writeline("else")
    with code.indent():
        write_step(code)
        code.writeline(f"{loop.var} += {step};")


def _write_step(code: BracesBuffer, var: sympy.Expr, ahead: str, i: int, kernel: Any) -> None:
    # The same lines again: their names mean another place and other accumulators here.
    with code.indent():
        code.writeline(f"const int64_t loom_ahead = {var} + {ahead};")
        for j, name in enumerate(kernel.accumulators):
            code.writeline(f"auto& loom_accumulator_{j} = {name}_{i};")
        with code.indent():
            code.writeline(f"const int64_t {var} = loom_ahead;")
            for j, name in enumerate(kernel.accumulators):
                code.writeline(f"auto& {name} = loom_accumulator_{j};")
            code.splice(kernel.gen_body())
