# SPDX-License-Identifier: BSD-3-Clause
"""Where Inductor would wrap a compiled graph into graphs of CUDA: loom's are replayed by loom's."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import sympy
import torch
from torch._dynamo.utils import counters
from torch._inductor import config, cudagraph_utils, output_code
from torch._inductor.utils import BoxedBool
from torch._inductor.virtualized import V

from .._replace import replace
from .._utils import is_loom
from .replay import Replays
from .stream_functions import has_synchronisation

__all__ = ["apply", "why_inputs_must_stay"]


def apply() -> None:
    """Take over graphs of loom; others go their way."""
    _wrap(cudagraph_utils, "check_multiple_devices_or_any_cpu_nodes", _with_loom)
    _wrap(output_code, "cudagraph_post_compile", _replayed_on_loom)
    _wrap(output_code, "cudagraph_partition_post_compile", _replayed_on_loom)


def _wrap(module: ModuleType, name: str, wrap: Callable[[Any], Any]) -> None:
    replace(module, name, wrap(getattr(module, name)))


def _with_loom(original: Callable[[Any], str | None]) -> Callable[[Any], str | None]:
    def check_multiple_devices_or_any_cpu_nodes(nodes_by_device: dict[Any, Any]) -> str | None:
        devices = {device for device in nodes_by_device if device.type != "meta"}
        if not any(is_loom(device) for device in devices):
            return original(nodes_by_device)
        # An event that a capture records is one of the graph, not the one that others wait for.
        if has_synchronisation(V.graph.module):
            return cudagraph_utils.format_default_skip_message("streams or events")
        if len(devices) == 1:
            return why_inputs_must_stay()
        names = ", ".join(sorted(str(device) for device in devices))
        return cudagraph_utils.format_default_skip_message(f"multiple devices: {names}")

    return check_multiple_devices_or_any_cpu_nodes


def why_inputs_must_stay() -> str | None:
    """What keeps the graph being generated from reading copies of its inputs."""
    # An input that moves is copied to a place of the capture's own: that, no more of its memory.
    # Operators count the elements of a view from where memory begins, loop nests from the input.
    nodes = V.graph.graph.nodes
    inputs = [_tensor_of(node) for node in nodes if node.op == "placeholder"]
    for node in nodes:
        if node.target is not torch.ops.aten.as_strided.default:
            continue
        view = _tensor_of(node)
        around = [x for x in inputs if x is not None and _storage(x) == _storage(view)]
        if around and config.fallback_by_default:
            return cudagraph_utils.format_default_skip_message("an operator views memory")
        if around and not any(_lies_in(view, x) for x in around):
            return cudagraph_utils.format_default_skip_message("a view reaches beyond its input")
    return None


def _tensor_of(node: torch.fx.Node) -> Any:
    value = node.meta.get("val")
    return value if isinstance(value, torch.Tensor) else None


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _lies_in(view: torch.Tensor, whole: torch.Tensor) -> bool:
    """Whether it is known that no element of a view is before the first or after the last one."""
    (first, last), (low, high) = _span(view), _span(whole)
    known = V.graph.sizevars.statically_known_leq
    return bool(known(low, first) and known(last, high))


def _span(tensor: torch.Tensor) -> tuple[Any, Any]:
    """The first byte of a tensor's elements in its storage, and the one after the last."""
    reach = sum((n - 1) * stride for n, stride in zip(tensor.size(), tensor.stride(), strict=True))
    first = tensor.storage_offset()
    size = tensor.itemsize
    return sympy.sympify(first) * size, sympy.sympify(first + reach + 1) * size


def _replayed_on_loom(original: Callable[..., None]) -> Callable[..., None]:
    def post_compile(
        example_inputs: Any, compiled_graph: Any, cudagraphs: Any, *rest: Any, **named: Any
    ) -> None:
        own = set(compiled_graph.device_types) == {"loom"} and config.cudagraph_policy is None
        if not own:
            original(example_inputs, compiled_graph, cudagraphs, *rest, **named)
            return
        reasons = compiled_graph.cudagraph_info.cudagraph_fail_reasons
        if reasons:
            counters["inductor"]["cudagraph_skips"] += 1
            cudagraph_utils.cudagraphs_log.info("a graph of loom is not replayed: %s", reasons)
            BoxedBool.disable(cudagraphs)
            return
        compiled_graph.current_callable = Replays(
            compiled_graph.current_callable,
            next(iter(compiled_graph.device_idxs)),
            sorted(compiled_graph.mutated_input_idxs),
        )

    return post_compile
