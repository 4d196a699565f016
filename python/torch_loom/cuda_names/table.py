# SPDX-License-Identifier: BSD-3-Clause
"""The hooks: what PyTorch knows of CUDA by other means than the name of the device.

Applied from the first to the last when loom takes the name of CUDA, and taken back from the last to
the first. One that a version of torch has outgrown is left out, with a warning.
"""

from collections.abc import Callable
from typing import NamedTuple

from . import (
    compiler,
    distributed,
    environment,
    graphs,
    mixed_precision,
    native,
    profiling,
    refusals,
    settings,
    tensors,
    torch_cuda,
)
from .changes import Changes

__all__ = ["HOOKS", "Hook"]


class Hook(NamedTuple):
    """One part of PyTorch."""

    name: str
    apply: Callable[[Changes], None]
    """Makes the changes. ``Changes`` knows how to take them back."""


HOOKS = (
    Hook("environment of child processes", environment.apply),
    Hook("functions torch._C._cuda_*", native.apply),
    Hook("module torch.cuda", torch_cuda.apply),
    Hook("tensors and storages", tensors.apply),
    Hook("graphs", graphs.apply),
    Hook("settings in torch.backends", settings.apply),
    Hook("mixed precision", mixed_precision.apply),
    Hook("torch.distributed", distributed.apply),
    Hook("profiler", profiling.apply),
    Hook("libraries of operators", settings.apply_to_libraries),
    Hook("torch.compile", compiler.apply),
    Hook("what is made for NVIDIA's devices alone", refusals.apply),
)
