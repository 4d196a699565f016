# SPDX-License-Identifier: BSD-3-Clause
"""Functions of streams in compiled functions: Dynamo follows those that it knows by name.

Nothing of Dynamo is imported here: the functions take its modules when those have been imported.
"""

import functools
from types import ModuleType
from typing import Any

import torch

from .. import device as devices, streams
from .._replace import replace
from .._utils import is_loom

__all__ = [
    "create",
    "estimate",
    "follow",
    "has_synchronisation",
    "keep_saved",
    "name",
    "pass_if_used",
]

_NAMES = ("current_stream", "stream", "synchronize")
_BYTES_PER_MILLISECOND = 2e7


def name(trace_rules: ModuleType) -> None:
    """Tell `torch._dynamo.trace_rules`, just imported, which functions it has handlers for."""
    rule = trace_rules.TorchInGraphFunctionVariable
    trace_rules.torch_name_rule_map.append({f"torch.loom.{name}": rule for name in _NAMES})
    trace_rules.get_torch_obj_rule_map.cache_clear()


def follow(variables: ModuleType) -> None:
    """Give loom's functions the handlers of torch.accelerator's in `torch._dynamo.variables.torch`.

    That of `torch.loom.stream` comes with the device's interface.
    """
    variable = variables.TorchInGraphFunctionVariable
    original = variable._get_handlers

    @functools.cache
    def handlers() -> dict[Any, Any]:
        known: dict[Any, Any] = original()
        known[streams.current_stream] = known[torch.accelerator.current_stream]
        known[devices.synchronize] = known[torch.accelerator.synchronize]
        _find_streams_of_other_devices()
        return known

    replace(variable, "_get_handlers", staticmethod(handlers))


def _find_streams_of_other_devices() -> None:
    # Dynamo knows the current stream of the current device, and would give that of any other one.
    # An error here ends the graph, and the function is called.
    from torch._dynamo.variables.streams import SymbolicStreamState

    original = SymbolicStreamState.cur_stream

    def cur_stream(self: Any, device: torch.device | None = None) -> Any:
        stream = original(self, device)
        if device is not None and is_loom(device) and stream.device != device:
            raise LookupError(f"the current stream of {device} is not known")
        return stream

    replace(SymbolicStreamState, "cur_stream", cur_stream)


def create(variables: ModuleType) -> None:
    """Let graphs create streams and events; `torch._dynamo.variables.user_defined` knows those."""
    classes = variables.UserDefinedClassVariable._in_graph_classes()
    classes.update((streams.Stream, streams.Event))


def pass_if_used(output_graph: ModuleType) -> None:
    """Let `torch._dynamo.output_graph` look up the current stream where a function refers to one.

    Where there is an accelerator, it would at every call of every graph.
    """
    original = output_graph.has_user_objects

    def has_user_objects() -> bool:
        if not original():
            return False
        from torch._dynamo.symbolic_convert import InstructionTranslator
        from torch._dynamo.variables.lazy import LazyVariableTracker

        translator = InstructionTranslator.current_tx()
        current = translator.symbolic_stream_state.cur_stream_stack[0]
        unseen = isinstance(current, LazyVariableTracker) and not current.is_realized()
        others = len(output_graph.index_to_bytecode_constructor) > 1
        return others or not unseen

    replace(output_graph, "has_user_objects", has_user_objects)


def estimate(streams_of_graphs: ModuleType) -> None:
    """Tell `torch._functorch._aot_autograd.streams` how long nodes of loom take, roughly.

    By that it chooses after which node of backward another stream's memory is given back. What it
    knows is measured by Triton, and it expects that node to have a value.
    """
    _estimate_times(streams_of_graphs)
    _find_streams_of_waits(streams_of_graphs)
    if not hasattr(streams_of_graphs, "_collect_sync_forward_deps"):  # STREAM_WAITS_BY_PARTITION
        _keep_gradients_out_of_forward(streams_of_graphs)


def _find_streams_of_waits(streams_of_graphs: Any) -> None:
    original = streams_of_graphs.get_stream_or_current_stream
    operators = torch.ops.streams
    places: dict[Any, int] = {
        operators.record_event.default: 1,
        operators.wait_event.default: 1,
        operators.sync_dealloc.default: 1,
        operators.wait_stream.default: 0,
        operators.synchronize_stream.default: 0,
    }

    def get_stream_or_current_stream(node: torch.fx.Node) -> Any:
        place = places.get(node.target)
        return original(node) if place is None else node.args[place]

    replace(streams_of_graphs, "get_stream_or_current_stream", get_stream_or_current_stream)


def _keep_gradients_out_of_forward(streams_of_graphs: Any) -> None:
    # A wait of a stream comes before what later runs there, so what that reads goes through it. In
    # the joint graph of forward and backward this is wrong for gradients, which are not there yet.
    original = streams_of_graphs._collect_wait_stream_forward_deps

    def collect(graph: torch.fx.Graph) -> Any:
        return {
            wait: [
                node for node in nodes if streams_of_graphs.is_bwd_node(wait) or not _enters(node)
            ]
            for wait, nodes in original(graph).items()
        }

    replace(streams_of_graphs, "_collect_wait_stream_forward_deps", collect)


def _enters(node: torch.fx.Node) -> bool:
    """Whether a node is a gradient that is given to a graph of loom."""
    value = node.meta.get("val")
    on_loom = isinstance(value, torch.Tensor) and is_loom(value.device)
    return on_loom and node.op == "placeholder" and str(node.target).startswith("tangents")


def _estimate_times(streams_of_graphs: Any) -> None:
    original = streams_of_graphs.get_roofline_estimate

    def get_roofline_estimate(node: torch.fx.Node) -> float:
        tensors = [
            value
            for operand in (node, *node.all_input_nodes)
            for value in torch.utils._pytree.tree_leaves(operand.meta.get("val"))
            if isinstance(value, torch.Tensor)
        ]
        if tensors and not any(is_loom(tensor.device) for tensor in tensors):
            return float(original(node))
        count = sum(_hint(tensor.numel()) * tensor.itemsize for tensor in tensors)
        return count / _BYTES_PER_MILLISECOND

    replace(streams_of_graphs, "get_roofline_estimate", get_roofline_estimate)


def _hint(size: Any) -> float:
    """A size, or what is known of one that is a symbol."""
    return float(size.node.hint or 1) if isinstance(size, torch.SymInt) else float(size)


def keep_saved(graph_compile: ModuleType) -> None:
    """Keep backward from writing into what forward saved, in `torch._functorch`'s `graph_compile`.

    Values go through records and waits under new names: one may be saved twice, as two tensors.
    """
    original = graph_compile.collect_bw_donated_buffer_idxs

    def collect(forward: torch.fx.GraphModule, *rest: Any, **named: Any) -> list[int]:
        if has_synchronisation(forward) and _has_loom(forward):
            return []
        return list(original(forward, *rest, **named))

    replace(graph_compile, "collect_bw_donated_buffer_idxs", collect)


def has_synchronisation(graph_module: torch.nn.Module) -> bool:
    """Whether a graph has side streams, or records or waits for anything."""
    return any(
        getattr(node.target, "namespace", None) == "streams"
        or node.meta.get("custom", {}).get("stream") is not None
        for module in graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
    )


def _has_loom(graph_module: torch.fx.GraphModule) -> bool:
    values = (node.meta.get("val") for node in graph_module.graph.nodes)
    return any(isinstance(v, torch.Tensor) and is_loom(v.device) for v in values)
