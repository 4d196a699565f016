# SPDX-License-Identifier: BSD-3-Clause
"""Products of many rows with few columns and few inner elements, and of few rows and few columns
with many inner elements, as a narrow layer and its gradients have them.
"""

from functools import partial

import pytest
import torch
from compare import agrees, gradients_agree
from torch.nn.functional import linear

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
# Rows, inner elements, columns: narrow ones, and such as are just too wide for that.
NARROW = [
    (2000, 3, 5),
    (500, 16, 16),
    (300, 12, 9),
    (700, 2, 2),
    (65, 9, 15),
    (400, 17, 16),
    (400, 16, 17),
    (30000, 4, 3),
    (17, 16, 16),
]
SUMS = [
    (3, 2000, 5),
    (16, 600, 16),
    (2, 512, 2),
    (9, 5000, 15),
    (17, 600, 4),
    (4, 600, 17),
    (5, 90, 6),
]


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
    return (values / max(1, shape[-1]) ** 0.5).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", NARROW + SUMS, ids=str)
def test_operands_lie_anyhow(sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
    rows, inner, columns = sizes
    left, right = numbers(rows, inner, dtype=dtype), numbers(inner, columns, dtype=dtype)
    agrees(torch.mm, left, right)
    agrees(torch.mm, numbers(inner, rows, dtype=dtype).t(), right)
    agrees(torch.mm, left, numbers(columns, inner, dtype=dtype).t())
    agrees(
        torch.mm, numbers(inner, rows, dtype=dtype).t(), numbers(columns, inner, dtype=dtype).t()
    )
    agrees(torch.mm, numbers(rows, 2 * inner, dtype=dtype)[:, 1 : inner + 1], right)
    agrees(torch.mm, left, numbers(inner, columns + 3, dtype=dtype)[:, 2 : columns + 2])
    agrees(torch.mm, left[:, ::2], right[::2])
    agrees(torch.mm, left[:1].expand(rows, inner), right)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [NARROW[0], NARROW[1], SUMS[0], SUMS[1]], ids=str)
def test_results_lie_anyhow(sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
    rows, inner, columns = sizes
    left, right = numbers(rows, inner, dtype=dtype), numbers(inner, columns, dtype=dtype)

    def beside(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        room = a.new_full((rows, columns + 4), 7)
        torch.mm(a, b, out=room[:, 1 : columns + 1])
        return room

    agrees(beside, left, right)
    agrees(lambda a, b: torch.mm(a, b, out=a.new_empty(columns, rows).t()), left, right)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [NARROW[0], NARROW[2], SUMS[0], SUMS[3]], ids=str)
def test_addends(sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
    rows, inner, columns = sizes
    left, right = numbers(rows, inner, dtype=dtype), numbers(inner, columns, dtype=dtype)
    addends = [(rows, columns), (columns,), (rows, 1), (1, columns), ()]
    for addend in (numbers(*shape, dtype=dtype) if shape else left[0, 0] for shape in addends):
        for beta, alpha in ((1, 1), (0.5, 1), (0, 1), (1, 0.25), (-1, 2), (0.5, 0)):
            agrees(partial(torch.addmm, beta=beta, alpha=alpha), addend, left, right)
    own = numbers(columns, rows, dtype=dtype).t()
    agrees(lambda c, a, b: c.clone().addmm_(a, b), own, left, right)
    agrees(lambda c, a, b: c.addmm_(a, b, beta=2), own, left, right)
    nothing = torch.full((rows, columns), float("nan"), dtype=dtype)
    agrees(lambda c, a, b: torch.addmm(c, a, b, beta=0), nothing, left, right)


def test_special_numbers() -> None:
    left, right = numbers(300, 5), numbers(5, 7)
    left[5, 1], left[17, 4], right[2, 6], right[0, 3] = (
        float("nan"),
        float("-inf"),
        float("inf"),
        float("nan"),
    )
    left[:, 2] = 0
    agrees(torch.mm, left, right)
    tall, other = numbers(900, 5), numbers(900, 7)
    tall[3, 2], other[899, 6], other[700, 0] = float("nan"), float("inf"), float("-inf")
    tall[899, 1] = 0
    agrees(lambda a, b: a.t().mm(b), tall, other)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [(15, 1000, 5), (5, 1000, 15), (1, 600, 9)], ids=str)
def test_operands_that_are_expanded_over_what_is_summed(
    sizes: tuple[int, int, int], dtype: torch.dtype
) -> None:
    """As the gradient of a sum over rows is; there is nothing between rows to divide by."""
    rows, inner, columns = sizes
    left, right = numbers(rows, inner, dtype=dtype), numbers(inner, columns, dtype=dtype)
    expanded, other = left[:, :1].expand(rows, inner), right[:1].expand(inner, columns)
    agrees(torch.mm, expanded, right)
    agrees(torch.mm, numbers(inner, rows, dtype=dtype).t(), other)
    agrees(torch.mm, expanded, other)


@pytest.mark.parametrize("shape", [(0, 3, 5), (4, 0, 5), (4, 3, 0)], ids=str)
def test_nothing(shape: tuple[int, int, int]) -> None:
    rows, inner, columns = shape
    agrees(torch.mm, numbers(rows, inner), numbers(inner, columns))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_layers(dtype: torch.dtype) -> None:
    given, weight = numbers(3000, 6, dtype=dtype), numbers(11, 6, dtype=dtype)
    bias = numbers(11, dtype=dtype)
    agrees(linear, given, weight, bias)
    agrees(lambda *each: linear(*each).relu(), given, weight, bias)
    gradients_agree(linear, given, weight, bias)
    agrees(lambda a, b: (a @ b).relu().add(1), numbers(50_000, 16), numbers(16, 16))
    agrees(
        lambda a, b: torch.nn.functional.gelu(linear(a, b)), numbers(50_000, 16), numbers(12, 16)
    )
    agrees(torch.bmm, numbers(9, 700, 6), numbers(9, 6, 5))
    agrees(torch.bmm, numbers(3, 6, 900), numbers(3, 900, 5))


def test_results_do_not_depend_on_the_other_rows() -> None:
    left, right = numbers(1000, 7).to("loom"), numbers(7, 13).to("loom")
    whole = left @ right
    assert torch.equal(whole[100:337], left[100:337] @ right)
    assert torch.equal(whole, left.t().contiguous().t() @ right)
