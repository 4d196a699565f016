# SPDX-License-Identifier: BSD-3-Clause
"""A device without an index gets the one that the rest of the graph was compiled for.

In eager code it is the current device of each call. A graph with kernels for the results of such a
call would run them on another device than the results are on.
"""

from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from .. import device as devices
from .._utils import is_loom

__all__ = ["give_index"]


def give_index(graph: torch.fx.Graph) -> None:
    """Replace torch.device("loom") among the arguments of operators."""
    for node in graph.nodes:
        arguments = (node.args, node.kwargs)
        # Others are left as they are: setting arguments, even the same, moves the node among users.
        if node.op == "call_function" and _has_unindexed(arguments):
            results = [each for each in tree_leaves(node.meta.get("val")) if torch.is_tensor(each)]
            device = torch.device("loom", _index([each.device for each in results]))
            node.args, node.kwargs = tree_map(
                lambda each, device=device: device if _is_unindexed(each) else each, arguments
            )


def _has_unindexed(arguments: Any) -> bool:
    return any(map(_is_unindexed, tree_leaves(arguments)))


def _is_unindexed(argument: Any) -> bool:
    return isinstance(argument, torch.device) and is_loom(argument) and argument.index is None


def _index(results: list[torch.device]) -> int:
    """Where a result is, as fake tensors had it: the current device, if it is among several."""
    current = devices.current_device()
    indices = [each.index for each in results if is_loom(each)]
    return current if current in indices or not indices else indices[0]
