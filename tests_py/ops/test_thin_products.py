# SPDX-License-Identifier: BSD-3-Clause
"""Products with few inner elements, whose rows are sums of a few rows, and chains of them."""

import pytest
import torch
from compare import agrees, gradients_agree

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
# Rows, inner elements, columns; the last ones are too few rows, columns and inner elements.
SIZES = [
    (200, 5, 300),
    (40, 2, 2100),
    (1000, 8, 64),
    (33, 3, 65),
    (30, 4, 80),
    (90, 4, 60),
    (70, 9, 70),
]


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
    return (values / 2).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_operands_lie_anyhow(sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
    rows, inner, columns = sizes
    left, right = numbers(rows, inner, dtype=dtype), numbers(inner, columns, dtype=dtype)
    agrees(torch.mm, left, right)
    agrees(lambda a, b: a.t().contiguous().t().mm(b), left, right)
    agrees(lambda a, b: a.mm(b.t().contiguous().t()), left, right)
    agrees(lambda a, b: a.mm(b[:, ::2]), left, right)
    agrees(lambda a, b: torch.mm(a, b, out=a.new_empty(columns, rows).t()), left, right)
    agrees(lambda a, b: torch.mm(a, b).add(1).relu(), left, right)


def test_special_numbers_and_gradients() -> None:
    left, right = numbers(100, 3), numbers(3, 120)
    gradients_agree(torch.mm, left.clone(), right.clone())
    left[5, 1], right[2, 7], right[0, 9] = float("nan"), float("inf"), float("nan")
    left[:, 2] = 0
    agrees(torch.mm, left, right)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_chains(dtype: torch.dtype) -> None:
    chain = [numbers(200, 3, dtype=dtype), numbers(3, 150, dtype=dtype)]
    chain += [numbers(150, 3, dtype=dtype), numbers(3, 70, dtype=dtype)]
    agrees(lambda *matrices: torch.linalg.multi_dot(matrices), *chain)
