# SPDX-License-Identifier: BSD-3-Clause
"""Batches of matrices that are small: every layout, addend and dtype, against cpu."""

import pytest
import torch
from compare import agrees, gradients_agree, same_error
from ops_support import held
from test_linear_algebra import laid_out, numbers

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
# rows, inner, columns
SHAPES = [
    (3, 3, 3),
    (1, 5, 7),
    (4, 4, 1),
    (2, 31, 2),
    (8, 8, 8),
    (16, 16, 16),
    (5, 9, 26),
    (32, 4, 32),
    (9, 1, 33),  # nothing is summed up
]
LAYOUTS = [False, True]  # transposed


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_and_sums_of_them(shape, dtype):
    rows, inner, columns = shape
    for batch in (2, 7, 3000):
        a, b = numbers(batch, rows, inner, dtype=dtype), numbers(batch, inner, columns, dtype=dtype)
        agrees(torch.bmm, a, b)
        agrees(torch.bmm, a.mT.contiguous().mT, b.mT.contiguous().mT)
        agrees(torch.bmm, a[:1].expand(batch, -1, -1), b[::1].flip(0))
        for addend in ((batch, rows, columns), (rows, 1), (columns,), (batch, 1, columns), (1,)):
            c = numbers(*addend, dtype=dtype)
            agrees(torch.baddbmm, c, a, b)
            agrees(lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5, alpha=-2), c, a, b)


@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("right", LAYOUTS)
def test_layouts(left, right):
    a, b = numbers(50, 5, 6), numbers(50, 6, 11)
    agrees(torch.bmm, laid_out(a, left), laid_out(b, right))
    out = torch.empty(11, 5, 50).permute(2, 1, 0)
    agrees(lambda o, a, b: torch.bmm(a, b, out=o), out, laid_out(a, left), laid_out(b, right))


def test_what_is_written_and_read():
    a, b, c = numbers(9, 4, 6), numbers(9, 6, 5), numbers(9, 4, 5)
    agrees(lambda c, a, b: c.baddbmm_(a, b, beta=2), c, a, b)
    agrees(lambda c, a, b: torch.baddbmm(c, a, b, beta=0), torch.full_like(c, torch.nan), a, b)
    agrees(lambda a, b: torch.bmm(a.flip(0), b, out=torch.empty_like(a @ b)), a, b)
    x = torch.randn(6, 4, 4, dtype=torch.complex64)
    agrees(lambda x: torch.bmm(x.imag, x.conj().imag), x)
    agrees(lambda x: torch.bmm(x, x.mH), x)
    for view in (lambda c: c[:, :1], lambda c: c[:, :, :1], lambda c: c.diagonal(0, 1, 2)[:, None]):
        for size in (3, 8, 9, 16):
            x, y, z = (numbers(20, size, size, seed=seed) for seed in range(3))
            agrees(lambda c, a, b, v=view: torch.baddbmm(v(c), a, b, out=c), x, y, z)
    nothing = torch.full((9, 8, 8), torch.nan)
    agrees(lambda c, a: torch.baddbmm(c, a, c, alpha=0), numbers(9, 8, 8), nothing)
    square = numbers(7, 3, 3)
    agrees(lambda x: torch.bmm(x, x, out=torch.empty_like(x)), square)
    same_error(lambda x: torch.bmm(x, x[:, :2]), square)
    gradients_agree(lambda a, b: torch.bmm(a, b).square(), a, b)


def test_products_do_not_wait():
    x = torch.rand(2000, 3, 3, device="loom")
    with held():
        y = x @ x @ x.mT
        assert not torch.loom.current_stream().query()
    torch.testing.assert_close(y.cpu(), x.cpu() @ x.cpu() @ x.cpu().mT)


def test_thread_counts_do_not_matter():
    x, y = numbers(5000, 3, 7).to("loom"), numbers(5000, 7, 9).to("loom")
    whole = torch.bmm(x, y)
    for begin in (0, 17, 4900):
        assert torch.equal(
            whole[begin : begin + 100], torch.bmm(x[begin : begin + 100], y[begin : begin + 100])
        )
