# SPDX-License-Identifier: BSD-3-Clause
"""How operators that share a command with a product are compared."""

from collections.abc import Callable

import torch

DTYPES = [torch.float32, torch.bfloat16]
Result = torch.Tensor | tuple[torch.Tensor, ...]


def numbers(*shape: int, dtype: torch.dtype, seed: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator) / 4).to(dtype)


def as_tuple(result: Result) -> tuple[torch.Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def check(function: Callable[..., Result], *operands: torch.Tensor) -> None:
    """Fused, one by one and on cpu; the operands themselves too, which may have been written."""

    def run(device: str) -> list[torch.Tensor]:
        own = [operand.to(device, copy=True) for operand in operands]
        before = torch.rand(1000, 1000, device=device)
        before @ before  # the rest is recorded long before its turn
        results = as_tuple(function(*own))
        return [tensor.cpu() for tensor in (*results, *own)]

    with torch.no_grad():
        fused = run("loom")
        with torch.loom.fusion(False):
            unfused = run("loom")
        expected = run("cpu")
    rounded = any(operand.dtype == torch.bfloat16 for operand in operands)
    tolerance = 2e-2 if rounded else 1e-5
    for ours, alone, theirs in zip(fused, unfused, expected, strict=True):
        assert torch.equal(ours, alone)
        assert ours.stride() == theirs.stride()
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
