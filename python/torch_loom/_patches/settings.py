# SPDX-License-Identifier: BSD-3-Clause
"""Settings of the whole process: work that is queued runs with those of its submission.

ATen's CPU kernels look at these settings while they run, and there is only one set of them. So the
setters wait for what is queued on loom before they change anything. Settings that only the calling
thread looks at, while it submits (autocast, gradients, attention's backends), need no such care.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.backends import ContextProp

from .. import _C
from .._replace import replace

# Functions of torch._C: whatever public function or property sets them ends here.
_SETTERS = (
    "_set_check_sparse_tensor_invariants",
    "_set_cpu_allow_fp16_reduced_precision_reduction",
    "_set_default_dtype",
    "_set_default_tensor_type",
    "_set_deterministic_algorithms",
    "_set_deterministic_fill_uninitialized_memory",
    "_set_float32_matmul_precision",
    "_set_fp32_precision_setter",
    "_set_mkldnn_deterministic",
    "_set_mkldnn_enabled",
    "_set_nnpack_enabled",
    "_set_onednn_allow_tf32",
    "_set_qengine",
)


def _after_queued_work(setter: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(setter)
    def set_it(*arguments: Any, **keywords: Any) -> Any:
        _C._drain_devices()
        return setter(*arguments, **keywords)

    return set_it


def apply() -> None:
    """Let the setters of settings that kernels read wait for queued work."""
    changed = {}
    for name in _SETTERS:
        setter = getattr(torch._C, name)
        changed[setter] = _after_queued_work(setter)
        replace(torch._C, name, changed[setter])
    # Some properties of torch.backends were made with the functions themselves.
    for module in [m for n, m in sys.modules.items() if n.startswith("torch.backends")]:
        for attribute in vars(type(module)).values():
            if isinstance(attribute, ContextProp) and attribute.setter in changed:
                attribute.setter = changed[attribute.setter]
