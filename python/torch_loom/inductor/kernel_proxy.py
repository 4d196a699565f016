# SPDX-License-Identifier: BSD-3-Clause
"""One loop nest: Inductor's C++ for it, and into how many blocks it is cut."""

from collections.abc import Iterable, Sequence
from typing import Any

import sympy
from torch._inductor import config, ir
from torch._inductor.codegen.cpp import (
    BracesBuffer,
    CppKernelProxy,
    OuterLoopFusedKernel,
    ParallelDepth,
)
from torch._inductor.codegen.cpp_utils import cexpr_index
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V

from .accumulators import UnrolledLoop, write_steps
from .blocks import BlockLoop, trips_of
from .inner_loop import InnerLoop, Invariants, take_invariants
from .vector_functions import LoomTile2DKernel, LoomVecKernel

__all__ = ["MOST_BLOCKS", "LoomKernelProxy", "scatters"]

MOST_BLOCKS = 64
"""Of a grid. Enough for the cores of a device to end together, few enough to cost nothing."""

# Reductions of everything have a partial result for each block. Inductor sizes these arrays, and
# the memory that each part needs, by one number of threads.
_MOST_PARTS = 32
_ELEMENTS_OF_PART = 16384
# A block is worth a claim from some microseconds on: that many lines of generated code, each run
# for one element, of which those that call a function such as exp count more.
_LINES_OF_BLOCK = 49152
_LINES_OF_FUNCTION = 8
_SMALLEST_BLOCK = 512
_FUNCTIONS = ("exp", "log", "tanh", "erf", "sin", "cos", "pow", "gamma", "rand", "tan(")


class LoomKernelProxy(CppKernelProxy):
    """Generates a nest whose outer loops are shared by the blocks of a grid.

    Inductor cuts by the number of threads of the process. Here the number of parts depends on the
    shapes that were seen when the code was generated, so that results do not depend on cores.
    """

    vec_kernel_cls = LoomVecKernel
    tile2d_kernel_cls = LoomTile2DKernel
    parts = 1
    serial = False
    unrolled: UnrolledLoop | None = None

    def codegen_nodes(self, nodes: list[Any]) -> None:
        # Scattered elements may be written twice: the order decides, so one block writes them all.
        self.serial = any(scatters(node) for node in nodes)
        super().codegen_nodes(nodes)

    def codegen_functions(self, fn_list: Any, var_sizes_list: Sequence[Any]) -> None:
        self.parts = 1 if self.serial else _parts(var_sizes_list)
        self.invariants = Invariants()
        with config.patch(self._cut_into_parts()):
            super().codegen_functions(fn_list, var_sizes_list)
        assert self.loop_nest is not None
        main, loops = self.kernels[0], self.loop_nest.loops
        if type(main) is not LoomVecKernel:
            return
        inner = loops[-1]
        if main.tiling_idx == len(loops) - 1:
            self.invariants = take_invariants(main, inner)
        if main.accumulators:
            loops[-1] = self.unrolled = UnrolledLoop(inner, self.invariants)
        else:
            loops[-1] = InnerLoop(inner, self.invariants)

    def gen_body(self, code: BracesBuffer | None = None) -> None:
        assert code is not None
        code.writelines(self.invariants.in_body())
        if self.unrolled is None:
            super().gen_body(code)
        else:
            write_steps(code, self.unrolled, self.kernels[0], super().gen_body)

    def decide_parallel_depth(
        self, max_parallel_depth: ParallelDepth, threads: int
    ) -> ParallelDepth:
        """How many loops the blocks share: as many as it takes to have enough trips."""
        start = max_parallel_depth.start_depth
        assert self.call_ranges is not None
        assert self.reduction_depth is not None
        one_part = start >= self.reduction_depth and self.parts == 1
        if self.serial or one_part or self._is_small():
            return ParallelDepth(parallel_depth=0, start_depth=start)
        depth, trips = 0, 1
        for size in self.call_ranges[start : start + max_parallel_depth.parallel_depth]:
            if trips >= MOST_BLOCKS:
                break
            depth += 1
            trips *= V.graph.sizevars.optimization_hint(size, fallback=MOST_BLOCKS)
        return ParallelDepth(parallel_depth=depth, start_depth=start)

    def codegen_loops_impl(self, loop_nest: Any, code: Any, worksharing: Any) -> None:
        with config.patch(self._cut_into_parts()):
            if loop_nest.loops:
                self._share_loops(loop_nest, worksharing)
            super().codegen_loops_impl(loop_nest, code, worksharing)
        worksharing.close()

    def _cut_into_parts(self) -> dict[str, Any]:
        # Code that asked OpenMP for the number when it runs would be told another one.
        return {"cpp.threads": self.parts, "cpp.dynamic_threads": False}

    def _share_loops(self, loop_nest: Any, worksharing: Any) -> None:
        fused = isinstance(loop_nest.kernel, OuterLoopFusedKernel)
        decide = (loop_nest.kernel if fused else self).decide_parallel_depth
        depth = decide(loop_nest.max_parallel_depth(), self.parts)
        if depth.parallel_depth == 0:
            return
        end = depth.start_depth + depth.parallel_depth
        if self.unrolled in loop_nest.loops[depth.start_depth : end]:
            self.unrolled = None  # it becomes a loop of blocks
        shared = BlockLoop.share(loop_nest.loops[depth.start_depth : end])
        loop_nest.loops[depth.start_depth : end] = shared
        if shared[0].is_reduction:
            worksharing.count = str(self.parts)
        else:
            nests = loop_nest.kernel.inner if fused else [loop_nest]
            grain = min(_grain(nest.get_kernel().kernels) for nest in nests)
            elements = cexpr_index(self.rename_indexing(self._elements()))
            worksharing.count = (
                f"loom_kernel::block_count({trips_of(shared)}, {elements}, {grain}, {MOST_BLOCKS})"
            )

    def _is_small(self) -> bool:
        least = 2 * _grain(self.kernels)
        return bool(V.graph.sizevars.statically_known_lt(self._elements(), least))

    def _elements(self) -> sympy.Expr:
        assert self.call_ranges is not None
        return sympy_product(self.call_ranges)


def scatters(node: Any) -> bool:
    """Whether a node stores where a tensor says, perhaps several values to one place."""
    return isinstance(getattr(node.node, "data", None), ir.Scatter)


def _parts(var_sizes_list: Iterable[Any]) -> int:
    """Into how many parts a reduction of this size is cut, if it is cut."""
    sizes = [sympy_product([*group, *reduced]) for group, reduced in var_sizes_list]
    hints = [
        V.graph.sizevars.optimization_hint(size, fallback=_MOST_PARTS * _ELEMENTS_OF_PART)
        for size in sizes
    ]
    if not all(isinstance(size, sympy.Integer) for size in sizes):
        return max(2, min(_MOST_PARTS, max(hints) // _ELEMENTS_OF_PART))
    return max(1, min(_MOST_PARTS, max(hints) // _ELEMENTS_OF_PART))


def _grain(kernels: Sequence[Any]) -> int:
    """How many elements a block has at least, by what one costs."""
    cost = 0
    for buffer in (kernels[0].loads, kernels[0].compute, kernels[0].stores):
        for line in buffer.getvalue().splitlines():
            called = any(name in line for name in _FUNCTIONS)
            cost += _LINES_OF_FUNCTION if called else 1
    return int(max(_SMALLEST_BLOCK, _LINES_OF_BLOCK // max(cost, 1)))
