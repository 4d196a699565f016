# SPDX-License-Identifier: BSD-3-Clause
"""Where Inductor would wrap a compiled graph into graphs of CUDA: loom's are replayed by loom's."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch._dynamo.utils import counters
from torch._inductor import config, cudagraph_utils, output_code
from torch._inductor.utils import BoxedBool

from .replay import Replays

__all__ = ["apply"]


def apply() -> None:
    """Take over graphs of loom; others go their way."""
    _replace(cudagraph_utils, "check_multiple_devices_or_any_cpu_nodes", _with_loom)
    _replace(output_code, "cudagraph_post_compile", _replayed_on_loom)
    _replace(output_code, "cudagraph_partition_post_compile", _replayed_on_loom)


def _replace(module: ModuleType, name: str, wrap: Callable[[Any], Any]) -> None:
    setattr(module, name, wrap(getattr(module, name)))


def _with_loom(original: Callable[[Any], str | None]) -> Callable[[Any], str | None]:
    def check_multiple_devices_or_any_cpu_nodes(nodes_by_device: dict[Any, Any]) -> str | None:
        devices = {device for device in nodes_by_device if device.type != "meta"}
        if not any(device.type == "loom" for device in devices):
            return original(nodes_by_device)
        if len(devices) == 1:
            return None
        names = ", ".join(sorted(str(device) for device in devices))
        return cudagraph_utils.format_default_skip_message(f"multiple devices: {names}")

    return check_multiple_devices_or_any_cpu_nodes


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
