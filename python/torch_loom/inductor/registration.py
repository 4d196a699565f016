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

from .. import _C, device as devices
from . import host_operands, kernel_cache
from .cpp_wrapper import LoomCppWrapper
from .device_ops import LoomDeviceOps
from .scheduling import LoomScheduling
from .wrapper import LoomWrapper

__all__ = ["apply"]


def apply() -> None:
    """Register the code generator, the wrappers and the graph pass."""
    kernel_cache.add_include_path()
    cpp_utils.DEVICE_TO_ATEN["loom"] = "at::kPrivateUse1"
    register_device_op_overrides("loom", LoomDeviceOps())
    register_backend_for_device(
        "loom", LoomScheduling, LoomWrapper, LoomCppWrapper, device_custom_pass=_LoomPass()
    )


class _LoomPass(CustomGraphModulePass):
    """Runs on each graph with tensors of loom, and names this code generator to the caches."""

    def __call__(self, graph_module: Any) -> None:
        host_operands.move(graph_module.graph)

    def uuid(self) -> tuple[str, str, bool, bytes]:
        """The identity of what is generated: Inductor's caches have it in their keys."""
        # Programs are made of what this processor has machine code for, if loom makes any.
        simd = devices.get_device_properties(0).simd
        return _C.__version__, simd, _makes_machine_code(), _sources_hash()


@functools.cache
def _makes_machine_code() -> bool:
    operands = [(n, torch.float32, 0, (64,), (1,)) for n in range(2)]
    copy = _C._CompiledProgram("copy", 0, operands, [("load", 0), ("store", 1, 0)])
    return copy.runs_as_machine_code()


@functools.cache
def _sources_hash() -> bytes:
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return get_hash_for_files(tuple(str(path) for path in [*sources, *kernel_cache.HEADERS]))
