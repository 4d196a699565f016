# SPDX-License-Identifier: BSD-3-Clause
"""Streams and events inside compiled graphs: a graph runs on one stream, in the program's order.

Inductor would switch streams for the nodes of a ``with`` block. A kernel of loom has all cores, so
nothing is won by that; and memory that the nodes of several streams share would have to be given
back with care. So all nodes run on the stream that is current at the call. Side streams are ordered
around it (`stream_calls.py`): the graph waits for what was on them, records and waits in between
are calls that know where the work is, and in the end they wait for the graph.
"""

from collections.abc import Iterable
from typing import Any

from torch._inductor import scheduler
from torch._inductor.virtualized import V

from .._replace import replace

__all__ = ["apply", "side_streams"]


def apply() -> None:
    """Patch Inductor's scheduler, for graphs with tensors of loom."""
    assign_streams = scheduler.Scheduler._populate_stream_assignments
    find_dependencies = scheduler.Scheduler.compute_dependencies
    begin = scheduler.Scheduler.enter_context

    def _populate_stream_assignments(self: Any) -> None:
        assign_streams(self)
        if _on_loom():
            self.loom_side_streams = sorted(self.stream_idx_to_user_obj_idx.values())
            self.stream_idx_to_user_obj_idx.clear()
            self.buff_to_stream.clear()
            self.node_to_stream = dict.fromkeys(self.node_to_stream, 0)
            self._multi_stream_nodes = False

    def compute_dependencies(self: Any) -> None:
        if _on_loom():
            _keep_order(self.nodes)
        find_dependencies(self)

    def enter_context(self: Any, node: Any) -> None:
        if _on_loom():
            if side_streams() and node is self.nodes[0]:
                V.graph.wrapper_code.writeline(f"stream_calls.enter({side_streams()})")
            if _synchronizes(node):
                self.flush()  # nests of C++ are collected before they are written
        begin(self, node)

    for function in (_populate_stream_assignments, compute_dependencies, enter_context):
        replace(scheduler.Scheduler, function.__name__, function)


def side_streams() -> list[int]:
    """Which of Dynamo's objects are streams that nodes of the graph were written for."""
    return getattr(V.graph.scheduler, "loom_side_streams", [])


def _on_loom() -> bool:
    return "loom" in V.graph.device_types


def _synchronizes(node: Any) -> bool:
    operator = getattr(node.node, "op_overload", None)
    return getattr(operator, "namespace", None) == "streams"


def _keep_order(nodes: Iterable[Any]) -> None:
    # What comes before a record or a wait in the program comes before it in the wrapper, and what
    # comes after it, after it. Inductor keeps a part of this order, by the values that are used.
    before: list[str] = []
    last: list[str] = []
    for node in nodes:
        names = [output.get_name() for output in node.get_outputs()]
        needs = V.graph.additional_buffer_deps[node.get_name()]
        needs -= V.graph.graph_inputs.keys()  # they are there, and may have no other use
        if _synchronizes(node):
            operator = node.node.op_overload._opname
            node.node.python_kernel_name = f"stream_calls.{operator}"
            needs.update(before)
            before, last = list(names), names
        else:
            needs.update(last)
            before += names
