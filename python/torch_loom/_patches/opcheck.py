# SPDX-License-Identifier: BSD-3-Clause
"""torch.library.opcheck: where the autograd kernels of an operator are."""

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch

from .._replace import replace
from .._utils import is_loom


def apply() -> None:
    """Let ``torch.library.opcheck`` look at the autograd keys of loom."""
    # torch.library.opcheck looks whether an operator has a kernel at Autograd<backend>, but knows
    # the keys of three devices only and refuses others. The module is heavy and for tests, so it
    # is taught at the first call.
    original: Callable[..., dict[str, str]] = torch.library.opcheck

    @functools.wraps(original)
    def opcheck(*args: Any, **kwargs: Any) -> dict[str, str]:
        generate_tests: Any = importlib.import_module(
            "torch.testing._internal.optests.generate_tests"
        )
        known = generate_tests.autograd_registration_check
        if known.__module__ != __name__:
            replace(generate_tests, "autograd_registration_check", _with_autograd_of_loom(known))
        return original(*args, **kwargs)

    replace(torch.library, "opcheck", opcheck)


def _with_autograd_of_loom(original: Callable[..., None]) -> Callable[..., None]:
    def autograd_registration_check(op: Any, args: Any, kwargs: Any) -> None:
        leaves = torch.utils._pytree.arg_tree_leaves(*args, **kwargs)
        if not any(isinstance(leaf, torch.Tensor) and is_loom(leaf.device) for leaf in leaves):
            return original(op, args, kwargs)
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        keys = ("AutogradPrivateUse1", "Autograd", "CompositeImplicitAutograd")
        if any(has_kernel(op.name(), key) for key in keys):
            return None
        # Without such a kernel nothing may record a graph: what does sits in the wrong place.
        mode = torch._C._get_autograd_fallback_mode()
        torch._C._set_autograd_fallback_mode("nothing")
        try:
            results = torch.utils._pytree.tree_leaves(op(*args, **kwargs))
        finally:
            torch._C._set_autograd_fallback_mode(mode)
        inputs = {id(leaf) for leaf in leaves}
        if any(getattr(r, "requires_grad", False) and id(r) not in inputs for r in results):
            raise AssertionError(
                f"{op.name()}: a result requires grad, but the operator has no kernel at an "
                "autograd key. Register its autograd kernel to Autograd or AutogradPrivateUse1, "
                "not to PrivateUse1."
            )
        return None

    return autograd_registration_check
