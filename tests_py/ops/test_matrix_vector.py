# SPDX-License-Identifier: BSD-3-Clause
"""Products of a matrix with a vector as matrices lie in memory, and with what is added."""

import pytest
import torch
from compare import agrees

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
# The last ones are sums in parts, of few elements and of many.
SIZES = [(64, 2), (70, 33), (300, 700), (1000, 129), (8, 5000), (1, 3), (16, 40000), (600, 33000)]


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))) / 4


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("rows", "columns"), SIZES)
def test_matrices_of_both_orders(rows: int, columns: int, dtype: torch.dtype) -> None:
    # Long sums of half types are as large as short ones: cpu rounds some of them on the way.
    share = 8 / max(columns, 64) ** 0.5
    vector, wide = (numbers(columns) * share).to(dtype), numbers(columns, rows + 5).to(dtype)
    addend, strided = numbers(rows).to(dtype), (numbers(2 * columns) * share).to(dtype)
    for matrix in (numbers(rows, columns).to(dtype), numbers(columns, rows).to(dtype).t()):
        agrees(torch.mv, matrix, vector)
        agrees(lambda m, v: m.mv(v[::2]), matrix, strided)
        agrees(lambda a, m, v: torch.addmv(a, m, v, beta=0.5, alpha=2), addend, matrix, vector)
        agrees(lambda a, m, v: torch.addmv(a[:1], m, v), addend, matrix, vector)
        agrees(lambda a, m, v: torch.addmv(a * torch.nan, m, v, beta=0), addend, matrix, vector)
        agrees(lambda a, m, v: a.addmv_(m, v), addend, matrix, vector)
        agrees(lambda a, m, v: torch.addmv(a, m, v, out=a), addend, matrix, vector)
        agrees(lambda m, v: torch.mv(m, v, out=v.new_full((rows,), torch.nan)), matrix, vector)
    agrees(lambda m, v: m[:, 2:-3].t().mv(v), wide, vector)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("inner", "others"), [(2, 64), (700, 300), (40000, 16), (9, 1), (129, 5)])
def test_products_with_one_row_or_column(inner: int, others: int, dtype: torch.dtype) -> None:
    share = 8 / max(inner, 64) ** 0.5
    line, matrix = (numbers(inner) * share).to(dtype), numbers(inner, others).to(dtype)
    for each in (matrix, numbers(others, inner).to(dtype).t()):
        agrees(lambda v, m: v[None].mm(m), line, each)
        agrees(lambda v, m: m.t().mm(v[:, None]), line, each)
        agrees(lambda v, m: m.t().mm(v[::2, None]), line.repeat_interleave(2), each)
    agrees(lambda v, m: v[None].mm(m[:, 1:]), line, numbers(inner, others + 1).to(dtype))
