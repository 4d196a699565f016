# SPDX-License-Identifier: BSD-3-Clause
"""Operands of the host that a generated kernel could not take by value are moved to the device."""

from typing import Any

import torch
from torch._inductor.virtualized import V

from .._utils import is_loom

__all__ = ["goes_by_value", "move"]

_VALUE_BYTES = 8


def goes_by_value(shape: Any, dtype: torch.dtype) -> bool:
    """Whether a launch copies a tensor of the host into its command: one without dimensions."""
    return len(shape) == 0 and dtype.itemsize <= _VALUE_BYTES


def move(graph: torch.fx.Graph) -> None:
    """Insert copies to loom where a pointwise operator of loom reads a larger tensor of the host.

    Eager code refuses most of these; decompositions make some, by broadcasting a scalar first.
    """
    for node in list(graph.nodes):
        device = _device_of_pointwise(node)
        if device is None or not is_loom(device):
            continue
        for operand in node.all_input_nodes:
            value = operand.meta.get("val")
            if not isinstance(value, torch.Tensor) or value.device.type != "cpu":
                continue
            if not goes_by_value(value.shape, value.dtype):
                _move(graph, node, operand, device)


def _device_of_pointwise(node: torch.fx.Node) -> torch.device | None:
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return None
    if torch.Tag.pointwise not in node.target.tags:
        return None
    value = node.meta.get("val")
    if isinstance(value, (list, tuple)) and value:  # a foreach operator
        value = value[0]
    return value.device if isinstance(value, torch.Tensor) else None


def _move(
    graph: torch.fx.Graph, node: torch.fx.Node, operand: torch.fx.Node, device: torch.device
) -> None:
    with graph.inserting_before(node):
        moved = graph.call_function(torch.ops.prims.device_put.default, (operand, device))
    with V.fake_mode:
        moved.meta["val"] = torch.ops.prims.device_put.default(operand.meta["val"], device)
    node.replace_input_with(operand, moved)
