# SPDX-License-Identifier: BSD-3-Clause
"""What loom's attention costs: for the counter of FLOPs, and where a backward pass recomputes."""

import functools
from types import ModuleType
from typing import Any

import torch

from .. import _torch_features
from .._replace import replace
from ..integrations import import_hook


def apply() -> None:
    """Name loom's attention beside CUDA's when the modules that know costs are imported."""
    known = import_hook.Library(
        "torch",
        versions=(_torch_features.MINOR,),
        without="torch.nn.attention.sdpa_kernel(SDPBackend.MATH)",
        patches={
            "torch.utils.flop_counter": "._patches.costs:register_formulas",
            "torch._functorch.partitioners": "._patches.costs:keep_attention",
        },
    )
    import_hook.install((known,))


def register_formulas(module: ModuleType) -> None:
    """Count the FLOPs of attention and its backward as those of CUDA's operators."""
    # The estimates of run time that choose what is recomputed count by the same formulas.
    aten = torch.ops.aten
    forward = module.flop_registry[aten._scaled_dot_product_flash_attention]
    backward = module.flop_registry[aten._scaled_dot_product_flash_attention_backward]
    formulas = {
        aten._scaled_dot_product_fused_attention_overrideable: forward,
        aten._scaled_dot_product_fused_attention_overrideable_backward: backward,
    }
    for operator, formula in formulas.items():
        if operator not in module.flop_registry:
            module.register_flop_formula(operator, get_raw=True)(formula)


def keep_attention(module: ModuleType) -> None:
    """Have the partitioner of torch.compile take attention for work that is not done twice."""
    original = module.get_default_op_list

    @functools.wraps(original)
    def get_default_op_list() -> Any:
        types = original()
        types.compute_intensive_ops.add(
            torch.ops.aten._scaled_dot_product_fused_attention_overrideable
        )
        return types

    replace(module, "get_default_op_list", get_default_op_list)
