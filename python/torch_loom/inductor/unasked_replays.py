# SPDX-License-Identifier: BSD-3-Clause
"""Which graphs are replayed without ``mode="reduce-overhead"``: inference of small batches.

There the host is what takes time, and a replay costs little: what a capture keeps is bounded,
inputs that move are copied only if they are small, and so are results: none is lent. Graphs say in
their source whether they may be replayed, so that those from Inductor's caches do, too.
"""

from typing import Any

import sympy
import torch
from torch._inductor import config
from torch._inductor.output_code import CompiledFxGraph
from torch._inductor.virtualized import V

from .._replace import replace
from .reduce_overhead import why_inputs_must_stay
from .replay import Limits, Replays
from .stream_functions import has_synchronisation

__all__ = ["MARK", "apply", "may_be_replayed"]

MARK = "# torch-loom: replayed where that costs little\n"
"""A line of the generated source."""

# A replay saves little where there are fewer operators: checking and copying costs two of them.
_FEWEST_OPERATORS = 3
# More bytes take longer to copy than a few operators' calls.
_MOST_BYTES_COPIED = 1 << 16
# Kernels that write more, if it were all float64, take longer than the host.
_MOST_BYTES_WRITTEN = 256 << 20
# Some segments of the allocator.
_MOST_BYTES_KEPT = 64 << 20
_MOST_BYTES_KEPT_BY_ALL = 512 << 20

_NAMESPACES = {"aten", "prims", "loom"}


def apply() -> None:
    """Have compiled graphs replayed once they are ready to run."""
    original = CompiledFxGraph.post_compile

    def post_compile(
        self: CompiledFxGraph, example_inputs: Any, constants: Any, graph_kwargs: Any
    ) -> None:
        original(self, example_inputs, constants, graph_kwargs)
        if self.current_callable is not None and _is_wanted(self, graph_kwargs):
            self.current_callable = Replays(
                self.current_callable,
                next(iter(self.device_idxs)),
                sorted(self.mutated_input_idxs),
                Limits(_MOST_BYTES_COPIED, _MOST_BYTES_KEPT, _MOST_BYTES_KEPT_BY_ALL),
            )

    replace(CompiledFxGraph, "post_compile", post_compile)


def may_be_replayed(is_inference: bool) -> bool:
    """Whether a replay does all that the graph being generated does."""
    graph = V.graph
    return (
        is_inference
        and not graph.cpp_wrapper
        and not graph.aot_mode
        and set(graph.device_types) == {"loom"}
        and len(graph.device_idxs) == 1
        and all(_has_numbers_for_sizes(node) for node in graph.graph.nodes)
        and all(_is_an_operator(node) for node in graph.graph.nodes)
        and _bytes_of_buffers() <= _MOST_BYTES_WRITTEN
        and not has_synchronisation(graph.module)
        and why_inputs_must_stay() is None
    )


def _has_numbers_for_sizes(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    sizes = value.size() if isinstance(value, torch.Tensor) else [value]
    symbols = (torch.SymInt, torch.SymFloat, torch.SymBool)
    return not any(isinstance(size, symbols) for size in sizes)


def _is_an_operator(node: torch.fx.Node) -> bool:
    # Operators of others may do something of their own at each call, in Python even.
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace in _NAMESPACES
    return not isinstance(target, torch._ops.HigherOrderOperator)


def _bytes_of_buffers() -> int:
    sizes = (buffer.get_size() for buffer in V.graph.buffers if buffer.has_tensor_output())
    return sum(8 * int(sympy.prod(size)) for size in sizes)


def _is_wanted(graph: CompiledFxGraph, graph_kwargs: Any) -> bool:
    return (
        MARK in graph.source_code
        and not graph_kwargs["cudagraphs"]
        and config.cudagraph_policy is None
        and config.triton.cudagraph_trees
        and not config.max_autotune  # whoever autotunes chooses a mode with graphs, or without
        and graph.counter_deltas["extern_calls"] >= _FEWEST_OPERATORS
    )
