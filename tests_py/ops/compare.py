# SPDX-License-Identifier: BSD-3-Clause
"""The oracle of the operators' tests: the same function on cpu, on the same values."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

TOLERANCE = {
    torch.float16: 1e-2,
    torch.bfloat16: 3e-2,
    torch.float32: 2e-4,
    torch.complex64: 2e-4,
    torch.float64: 1e-9,
    torch.complex128: 1e-9,
}


def to_loom(tree: Any) -> Any:
    """Copies of the tensors on loom, laid out as they are."""

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() > 0 and not tensor.is_contiguous():
            size = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
            if tensor.numel() == 0:
                size = 0
            flat = torch.as_strided(tensor.detach(), (size,), (1,)).to("loom")
            made = torch.as_strided(flat, tensor.shape, tensor.stride())
        else:
            made = tensor.detach().to("loom")
        return made.requires_grad_(tensor.requires_grad)

    return tree_map_only(torch.Tensor, copy, tree)


def assert_same(actual: Any, expected: Any, *, strides: bool = True) -> None:
    """Values, dtypes, shapes and strides agree, and all results are on loom."""
    actual_leaves, expected_leaves = tree_leaves(actual), tree_leaves(expected)
    assert len(actual_leaves) == len(expected_leaves)
    for got, wanted in zip(actual_leaves, expected_leaves, strict=True):
        if not isinstance(wanted, torch.Tensor):
            assert got == wanted
            continue
        assert got.device.type == "loom"
        assert got.dtype == wanted.dtype
        assert got.shape == wanted.shape
        if strides and wanted.numel() > 1:
            assert got.stride() == wanted.stride()
        tolerance = TOLERANCE.get(wanted.dtype, 0.0)
        torch.testing.assert_close(
            got.cpu(), wanted, rtol=tolerance, atol=tolerance, equal_nan=True
        )


def natively(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """The function's result; no operator of it took the fallback."""
    torch.loom.reset_fallbacks()
    result = function(*arguments, **keywords)
    taken = dict(torch.loom.fallbacks())
    assert not taken, f"fell back: {sorted(taken)}"
    return result


def agrees(function: Callable[..., Any], *arguments: Any, strides: bool = True) -> None:
    """The function does on loom what it does on cpu."""
    on_loom = to_loom(arguments)
    expected = function(*arguments)
    assert_same(natively(function, *on_loom), expected, strides=strides)


def gradients_agree(function: Callable[..., Any], *arguments: Any) -> None:
    """The function's result and the gradients of all floating-point arguments agree."""

    def run(*inputs: Any) -> list[torch.Tensor]:
        leaves = [x for x in tree_leaves(inputs) if isinstance(x, torch.Tensor)]
        wanted = [x.requires_grad_() for x in leaves if x.is_floating_point()]
        result = function(*inputs)
        weights = torch.linspace(0.5, 1.5, max(result.numel(), 1), dtype=torch.float64)
        seed = weights[: result.numel()].to(result.dtype).view(result.shape).to(result.device)
        return [result.detach(), *torch.autograd.grad(result, wanted, seed)]

    on_loom = to_loom(arguments)
    expected = run(*arguments)
    assert_same(natively(run, *on_loom), expected, strides=False)


def error_of(function: Callable[..., Any], *arguments: Any) -> tuple[type, str]:
    """Type and first line of what the function raises."""
    try:
        function(*arguments)
    except Exception as error:
        return type(error), str(error).splitlines()[0]
    raise AssertionError("nothing was raised")


def same_error(function: Callable[..., Any], *arguments: Any) -> None:
    """The call itself raises on loom what it raises on cpu, before anything is synchronised."""
    on_loom = to_loom(arguments)
    assert error_of(function, *on_loom) == error_of(function, *arguments)
