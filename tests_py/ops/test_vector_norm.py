# SPDX-License-Identifier: BSD-3-Clause
"""Vector norms of every order, along rows, columns and everything, as exact as on cpu."""

import pytest
import torch
from ops_support import numbers

LOOM = "loom"
ORDERS = [0, 1, 2, 3, 0.5, -1, float("inf"), -float("inf")]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
# Few elements, and so many that they are cut.
SHAPES = {"few": (7, 9), "many": (150, 301), "three": (40, 6, 200)}


def as_on_cpu(x: torch.Tensor, order: float, dim: object, dtype: torch.dtype | None = None) -> None:
    mine = torch.linalg.vector_norm(x.to(LOOM), order, dim, dtype=dtype)
    stock = torch.linalg.vector_norm(x, order, dim, dtype=dtype)
    assert mine.dtype == stock.dtype
    assert mine.stride() == stock.stride()
    exact = torch.linalg.vector_norm(x.double(), order, dim)
    mine, stock = mine.cpu().double(), stock.double()
    unit = torch.finfo(dtype or x.dtype).eps
    sums = {torch.float64: 1e-12}.get(x.dtype, 2e-6)
    allowed = (0.51 * unit + sums) * exact.abs() + (stock - exact).abs()
    near = (mine - exact).abs() <= allowed
    same = (mine == stock) | (mine.isnan() & stock.isnan())
    assert (near | same).all(), (mine, stock, exact)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_orders(shape, order, dtype):
    x = numbers(*SHAPES[shape], dtype=dtype)
    for dim in (None, 0, -1, tuple(range(x.dim()))):
        as_on_cpu(x, order, dim)
    as_on_cpu(x.mT, order, -1)
    as_on_cpu(x[:, ::2], order, None)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", ["nan", "inf", "zeros", "large"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_numbers_that_are_special(dtype, kind, order):
    x = numbers(100, 300, dtype=dtype)
    match kind:
        case "nan":
            x[3, 7] = torch.nan
        case "inf":
            x[3, 7], x[50, 0] = torch.inf, -torch.inf
        case "zeros":
            x[5:20] = 0
        case "large":
            x *= 1e4
    for dim in (None, 0, 1):
        as_on_cpu(x, order, dim)


@pytest.mark.parametrize("order", ORDERS)
def test_results_of_a_wider_dtype(order):
    x = numbers(150, 301, dtype=torch.float16) * 100
    for dim in (None, 0, 1):
        as_on_cpu(x, order, dim, torch.float32)


@pytest.mark.parametrize("order", [1, 2, 3, float("inf")])
@pytest.mark.parametrize("scale", [1, 1e25, 1e-25])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_results_in_float64_are_exact(dtype, scale, order):
    x = (numbers(150, 301) * scale).to(dtype)
    for dim in (None, 0, 1):
        mine = torch.linalg.vector_norm(x.to(LOOM), order, dim, dtype=torch.float64)
        exact = torch.linalg.vector_norm(x.double(), order, dim)
        torch.testing.assert_close(mine.cpu(), exact)


@pytest.mark.parametrize("order", [1, 2, 3, float("inf")])
def test_gradients(order):
    x = numbers(100, 300)
    gradients = []
    for device in ("cpu", LOOM):
        own = x.to(device, copy=True).requires_grad_()
        torch.linalg.vector_norm(own, order, 1).sum().backward()
        gradients.append(own.grad.cpu())
    torch.testing.assert_close(*gradients)
