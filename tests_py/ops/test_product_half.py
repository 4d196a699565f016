# SPDX-License-Identifier: BSD-3-Clause
"""Products of float16 and bfloat16: rounded once, whatever sizes and layouts their operands have,
and the same on any number of cores."""

import pytest
import torch
from ops_support import numbers
from split_checks import all_cores
from torch.nn import functional

__all__ = ["all_cores"]  # a fixture

LOOM = "loom"
HALVES = [torch.float16, torch.bfloat16]

# rows, inner elements, columns
SIZES = [
    (17, 511, 1023),
    (65, 1025, 129),
    (300, 301, 302),
    (40, 3001, 65),
    (129, 65, 700),
    (3, 2500, 7),
    (8, 640, 1000),
    (20, 1, 30),
    (33, 2, 33),
]


def rounded_once(mine: torch.Tensor, exact: torch.Tensor, inner: int) -> None:
    """But for the sums, which are of float32 and in another order."""
    scale = exact.abs().max().item()
    unit = torch.finfo(mine.dtype).eps
    error = (mine.cpu().double() - exact).abs()
    allowed = 0.51 * unit * exact.abs().clamp(min=unit * scale) + 1e-7 * inner**0.5 * scale
    assert (error <= allowed).all(), (error / allowed).max()


def lying(tensor: torch.Tensor, by_columns: bool) -> torch.Tensor:
    return tensor.mT.contiguous().mT if by_columns else tensor


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("left_by_columns", [False, True])
@pytest.mark.parametrize("right_by_columns", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_layouts(sizes, left_by_columns, right_by_columns, dtype):
    rows, inner, columns = sizes
    left = lying(numbers(rows, inner, dtype=dtype), left_by_columns)
    right = lying(numbers(inner, columns, seed=1, dtype=dtype), right_by_columns)
    addend = numbers(rows, columns, seed=2, dtype=dtype)
    bias = numbers(columns, seed=3, dtype=dtype)
    exact = left.double() @ right.double()
    a, b = left.to(LOOM), right.to(LOOM)
    rounded_once(a @ b, exact, inner)
    half_added = torch.addmm(addend.to(LOOM), a, b, beta=0.5)
    rounded_once(half_added, exact + addend.double() / 2, inner)
    biased = torch.addmm(bias.to(LOOM), a, b)
    rounded_once(biased, exact + bias.double(), inner)
    turned = torch.empty(columns, rows, dtype=dtype, device=LOOM).T
    rounded_once(torch.mm(a, b, out=turned), exact, inner)
    torch.loom.set_num_threads(1)
    assert torch.equal(torch.addmm(bias.to(LOOM), a, b), biased)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("beta", [0, 0.5, 1])
@pytest.mark.parametrize("alpha", [0.125, -3])
@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("sizes", [(65, 77, 129), (3, 2500, 70), (40, 3001, 65)], ids=str)
def test_factors(sizes, by_columns, alpha, beta, dtype):
    rows, inner, columns = sizes
    left = numbers(rows, inner, dtype=dtype)
    right = lying(numbers(inner, columns, seed=1, dtype=dtype), by_columns)
    addend = numbers(rows, columns, seed=2, dtype=dtype)
    exact = alpha * (left.double() @ right.double())
    a, b = left.to(LOOM), right.to(LOOM)
    for added in (addend, addend[0], addend.mT.contiguous().mT):
        made = torch.addmm(added.to(LOOM), a, b, beta=beta, alpha=alpha)
        rounded_once(made, exact + beta * added.double(), inner)
    twice = torch.baddbmm(
        addend.to(LOOM), a.expand(2, -1, -1), b.expand(2, -1, -1), beta=beta, alpha=alpha
    )
    rounded_once(twice[1], exact + beta * addend.double(), inner)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("alpha", [0.125, -0.5, 1e-6])
@pytest.mark.parametrize("beta", [1, -0.75])
@pytest.mark.parametrize("sizes", [(65, 77, 129), (3, 250, 70)], ids=str)
def test_least_numbers_that_are_added_to_small_multiples_stay_finite(sizes, beta, alpha, dtype):
    rows, inner, columns = sizes
    left, right = numbers(rows, inner, dtype=dtype), numbers(inner, columns, seed=1, dtype=dtype)
    mask = torch.zeros(rows, columns, dtype=dtype)
    mask[:, ::3] = torch.finfo(dtype).min
    for added in (mask, mask.mT.contiguous().mT):
        expected = torch.addmm(added, left, right, beta=beta, alpha=alpha)
        made = torch.addmm(added.to(LOOM), left.to(LOOM), right.to(LOOM), beta=beta, alpha=alpha)
        hidden = added != 0
        assert torch.equal(made.cpu()[hidden], expected[hidden])


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(
    "sizes", [(12, 77, 64, 77), (33, 127, 31, 65), (3, 300, 200, 101), (100, 9, 33, 17)], ids=str
)
def test_batches(sizes, dtype):
    batch, rows, inner, columns = sizes
    left = numbers(batch, rows, inner, dtype=dtype)
    right = numbers(batch, columns, inner, seed=1, dtype=dtype).mT
    addend = numbers(batch, rows, columns, seed=2, dtype=dtype)
    exact = left.double() @ right.double()
    a, b = left.to(LOOM), right.to(LOOM)
    rounded_once(a @ b, exact, inner)
    rounded_once(torch.baddbmm(addend.to(LOOM), a, b), exact + addend.double(), inner)
    one = a[:1].expand(batch, rows, inner)
    rounded_once(torch.bmm(one, b), left[:1].double() @ right.double(), inner)


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
@pytest.mark.parametrize("sizes", [(3001, 3, 5), (700, 16, 16), (5000, 2, 16), (7, 5, 2111)])
def test_narrow_matrices(sizes, dtype):
    rows, inner, columns = sizes
    left, right = numbers(rows, inner, dtype=dtype), numbers(inner, columns, seed=1, dtype=dtype)
    bias = numbers(columns, seed=2, dtype=dtype)
    exact = left.double() @ right.double()
    a, b = left.to(LOOM), right.to(LOOM)
    rounded_once(a @ b, exact, inner)
    rounded_once(torch.addmm(bias.to(LOOM), a, b).relu(), (exact + bias.double()).relu(), inner)
    rounded_once(a[::2, :] @ b, exact[::2], inner)
    rounded_once(a.T.contiguous().T @ b, exact, inner)
    wide = torch.zeros(rows, columns + 3, dtype=dtype, device=LOOM)
    torch.mm(a, b, out=wide[:, 1:-2])
    rounded_once(wide[:, 1:-2], exact, inner)
    assert not wide[:, [0, -2, -1]].any()


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(4300, 1025, 40), (40, 1025, 4300), (30, 90, 700, 2100)])
def test_operands_that_are_widened_in_parts(sizes):
    *batch, rows, inner, columns = sizes
    left = numbers(*batch, rows, inner, dtype=torch.float16)
    right = numbers(*batch, inner, columns, seed=1, dtype=torch.float16)
    mine = (left.to(LOOM) @ right.to(LOOM)).relu()
    rounded_once(mine, (left.double() @ right.double()).relu(), inner)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("inner", [65, 255, 257, 1023, 2049])
def test_what_lies_beside_an_operand_is_not_read(inner, dtype):
    """A row of an odd number of elements has no pair of its last one."""
    beside = torch.full((70, inner + 2), torch.nan, dtype=dtype)
    beside[:, :inner] = numbers(70, inner, dtype=dtype)
    right = numbers(inner, 97, seed=1, dtype=dtype)
    made = beside.to(LOOM)[:, :inner] @ right.to(LOOM)
    rounded_once(made, beside[:, :inner].double() @ right.double(), inner)
    last_row = beside.to(LOOM).as_strided((69, inner), (inner + 2, 1), inner + 2)
    rounded_once(last_row @ right.to(LOOM), beside[1:, :inner].double() @ right.double(), inner)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_what_is_not_finite_stays_in_its_row_and_column(dtype):
    left, right = numbers(70, 513, dtype=dtype), numbers(513, 99, seed=1, dtype=dtype)
    left[5, 512] = torch.inf
    right[0, 98] = torch.nan
    finite = (left.to(LOOM) @ right.to(LOOM)).cpu().isfinite()
    assert not finite[5].any()
    assert not finite[:, 98].any()
    assert finite.sum() == 69 * 98


def test_sums_beyond_float16_are_infinite_and_those_within_are_not():
    ones = torch.full((64, 512), 16.0, dtype=torch.float16, device=LOOM)
    assert (ones @ ones.T).isinf().all()
    cancelling = ones.clone()
    cancelling[:, 256:] = -16
    assert not (ones @ cancelling.T).any()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_linear_layers_are_trained(dtype):
    x, weight = numbers(33, 129, dtype=dtype), numbers(65, 129, seed=1, dtype=dtype)
    grad = numbers(33, 65, seed=2, dtype=dtype)
    mine = [t.to(LOOM).requires_grad_() for t in (x, weight)]
    got = torch.autograd.grad(functional.linear(*mine), mine, grad.to(LOOM))
    rounded_once(got[0], grad.double() @ weight.double(), 65)
    rounded_once(got[1], grad.double().T @ x.double(), 33)
