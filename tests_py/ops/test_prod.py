# SPDX-License-Identifier: BSD-3-Clause
"""Products of elements: of rows, of columns, in parts, of everything."""

import pytest
import torch
from compare import agrees, assert_same, natively, to_loom

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64]


def numbers(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Near 1, so that products are numbers that a half type has."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
    near = 1 + values / 200
    return near.to(dtype) if dtype.is_floating_point else values.mul(2).to(dtype)


def multiplies(x: torch.Tensor, dim: int, *, keepdim: bool = False) -> None:
    """As cpu does; but of half types it rounds after each element, and loom once."""
    wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    on_loom = natively(torch.prod, to_loom(x), dim, keepdim=keepdim)
    assert_same(on_loom, wide.prod(dim, keepdim=keepdim).to(x.dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "shape", [(40, 50, 60), (3, 200, 17), (70, 5, 9), (2, 3, 40), (600, 1, 300)], ids=str
)
def test_along_each_dimension(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = numbers(*shape, dtype=dtype)
    for dim in range(3):
        multiplies(x, dim)
        multiplies(x, dim, keepdim=True)
        if dtype in (torch.float32, torch.float64, torch.int64):
            agrees(lambda x, d=dim: x[:, :, ::2].prod(d), x)
            agrees(lambda x, d=dim: x.transpose(0, 2).prod(d), x)
            agrees(lambda x, d=dim: torch.prod(x, d, out=x.sum(d).t().contiguous().t()), x)
    agrees(lambda x: x.prod(0, dtype=torch.float64), x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(7,), (1,), (3, 20_001), (20_001, 3), (10_000, 20)], ids=str)
def test_in_parts(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = numbers(*shape, dtype=dtype)
    if dtype.is_floating_point:  # exact, and of few steps away from 1
        steps = torch.randn(shape, generator=torch.Generator().manual_seed(8)).div(3.5).trunc()
        x = steps.exp2().to(dtype)
    for dim in range(x.dim()):
        agrees(lambda x, d=dim: x.prod(d), x)
    agrees(torch.prod, x)
    agrees(torch.prod, x.t())


def test_special_numbers() -> None:
    for value in (float("nan"), float("inf"), 0.0, -0.0):
        x = numbers(300, 500, dtype=torch.float32)
        x[70, 90] = value
        for dim in (0, 1):
            agrees(lambda x, d=dim: x.prod(d), x)
        agrees(torch.prod, x)
    agrees(torch.prod, torch.ones(0, 3))
    agrees(lambda x: x.prod(1), torch.ones(4, 0))
    agrees(lambda x: x.prod(0), torch.tensor(3.0))
