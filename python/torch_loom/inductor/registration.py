# SPDX-License-Identifier: BSD-3-Clause
"""What Inductor is given for the device ``loom``."""

import functools
from pathlib import Path
from typing import Any

import torch
from torch._inductor.codegen import cpp_utils
from torch._inductor.codegen.common import (
    register_backend_for_device,
    register_device_op_overrides,
)
from torch._inductor.custom_graph_pass import CustomGraphModulePass, get_hash_for_files
from torch._inductor.fx_passes import post_grad
from torch.utils._ordered_set import OrderedSet
from torch.utils._pytree import tree_leaves

from .. import _C, _torch_features, device as devices
from .._replace import replace
from . import host_operands, kernel_cache, unindexed_devices
from .cpp_wrapper import LoomCppWrapper
from .device_ops import LoomDeviceOps
from .scheduling import LoomScheduling
from .wrapper import LoomWrapper

__all__ = ["apply"]


def apply() -> None:
    """Register the code generator, the wrappers and the graph pass."""
    kernel_cache.add_include_path()
    operations = LoomDeviceOps()
    if not _torch_features.ATEN_DEVICE_TYPE.is_there():
        cpp_utils.DEVICE_TO_ATEN["loom"] = operations.aten_device_type()
    register_device_op_overrides("loom", operations)
    register_backend_for_device(
        "loom", LoomScheduling, LoomWrapper, LoomCppWrapper, device_custom_pass=_LoomPass()
    )
    replace(post_grad, "get_all_devices", _devices)


def _devices(gm: torch.fx.GraphModule) -> OrderedSet[torch.device]:
    """Of values and arguments: Inductor itself looks at inputs and results of the graph only."""
    found = OrderedSet[torch.device]()
    for node in gm.graph.nodes:
        for each in tree_leaves((node.meta.get("val"), node.args, node.kwargs)):
            if isinstance(each, torch.Tensor):
                found.add(each.device)
            elif isinstance(each, torch.device):
                found.add(each)
    return found


class _LoomPass(CustomGraphModulePass):
    """Runs on graphs with values on loom, and names this code generator to caches."""

    def __call__(self, graph_module: Any) -> None:
        unindexed_devices.give_index(graph_module.graph)
        host_operands.move(graph_module.graph)

    def uuid(self) -> tuple[str, str, bool, bytes, int]:
        """The identity of what is generated: Inductor's caches have it in their keys."""
        # Programs are made of what this processor has machine code for, if loom makes any.
        simd = devices.get_device_properties(0).simd
        # A graph with "loom" in it is compiled for the device that this is now.
        current = devices.current_device()
        return _C.__version__, simd, _makes_machine_code(), _sources_hash(), current


@functools.cache
def _makes_machine_code() -> bool:
    operands = [(n, torch.float32, 0, (64,), (1,)) for n in range(2)]
    copy = _C._CompiledProgram("copy", 0, operands, [("load", 0), ("store", 1, 0)])
    return copy.runs_as_machine_code()


@functools.cache
def _sources_hash() -> bytes:
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return get_hash_for_files(tuple(str(path) for path in [*sources, *kernel_cache.HEADERS]))
