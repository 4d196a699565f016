# SPDX-License-Identifier: BSD-3-Clause
"""flex_attention: which devices it runs on."""

from collections.abc import Callable
from typing import Any

import torch

from .._replace import replace
from .._utils import is_loom


def apply() -> None:
    """Let flex_attention run eagerly on loom, under autocast too."""
    # flex_attention compares the device with a list of names, although its eager form is made of
    # ordinary operators; and it has rules for autocast of cpu and cuda only.
    from torch._C import DispatchKey, DispatchKeySet
    from torch._higher_order_ops.flex_attention import _flex_attention_autocast_impl, flex_attention
    from torch.nn.attention import flex_attention as frontend

    original: Callable[..., None] = frontend._validate_device

    def _validate_device(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if not is_loom(query.device):
            original(query, key, value)

    replace(frontend, "_validate_device", _validate_device)

    key = DispatchKey.AutocastPrivateUse1  # type: ignore[attr-defined]

    def autocast(*arguments: Any) -> Any:
        # The shared rule casts and leaves the keys that it knows; ours has to be left out here.
        with torch._C._ExcludeDispatchKeyGuard(DispatchKeySet(key)):
            return _flex_attention_autocast_impl(*arguments)

    flex_attention.py_impl(key)(autocast)
