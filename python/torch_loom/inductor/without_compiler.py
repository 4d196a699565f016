# SPDX-License-Identifier: BSD-3-Clause
"""``torch.compile`` without generated kernels: graphs call loom's operators.

So it is where there is no C++ compiler, and where Inductor is not what loom was made for. Operators
are fused as they are without ``torch.compile``, into programs that loom itself makes machine
code of. What compiling buys is that a model's Python does not run, that graphs are replayed with
``mode="reduce-overhead"``, and that a program that compiles runs everywhere.
"""

import functools
import warnings
from types import ModuleType
from typing import Any

import torch

from .._replace import replace
from .._utils import is_loom
from . import hushed, register

__all__ = ["apply"]


def apply(compile_fx: ModuleType) -> None:
    """Patch ``torch._inductor.compile_fx``, through which each graph enters Inductor."""
    from torch._inductor import config, lite_mode_options

    original = compile_fx.compile_fx

    @functools.wraps(original)
    def compile_graph(model: Any, inputs: Any, *args: Any, **named: Any) -> Any:
        if not _has_loom(model, inputs):
            return original(model, inputs, *args, **named)
        if not register():
            return _without_inductor(model, inputs)
        if config.fallback_by_default or _has_compiler():
            return original(model, inputs, *args, **named)
        _warn()
        patches = (named.pop("config_patches", None) or {}) | lite_mode_options
        return original(model, inputs, *args, config_patches=patches, **named)

    replace(compile_fx, "compile_fx", compile_graph)
    hushed.apply(compile_fx)


def _without_inductor(model: Any, inputs: Any) -> Any:
    from torch._dynamo.backends import debugging
    from torch._inductor.virtualized import V

    if V.aot_compilation:
        raise NotImplementedError(
            "AOTInductor: a model cannot be compiled for loom with this torch; an earlier warning "
            "says why"
        )
    return debugging.aot_eager(model, inputs)


def _has_loom(model: Any, inputs: Any) -> bool:
    leaves = torch.utils._pytree.tree_leaves(inputs)
    for node in getattr(getattr(model, "graph", None), "nodes", ()):
        leaves.append(node.meta.get("example_value", node.meta.get("val")))
    return any(isinstance(leaf, torch.Tensor) and is_loom(leaf.device) for leaf in leaves)


def _has_compiler() -> bool:
    from torch._inductor import cpp_builder, exc

    try:
        cpp_builder.get_cpp_compiler()
    except exc.InvalidCxxCompiler:
        return False
    return True


@functools.cache
def _warn() -> None:
    from torch._inductor import config

    warnings.warn(
        f"torch.compile on loom found no C++ compiler (it looked for {config.cpp.cxx[-1]}): graphs "
        "call loom's operators, which are fused as without torch.compile. For generated kernels "
        "install g++ or clang++, or name one in the environment variable CXX.",
        stacklevel=2,
    )
