# SPDX-License-Identifier: BSD-3-Clause
"""Factorisations and systems of equations, whose shapes loom infers itself."""

import pytest
import torch
from compare import agrees, gradients_agree, natively, same_error, to_loom
from ops_support import complexes, numbers

BATCHES = [(), (1,), (3,), (2, 3)]
FIELDS = [torch.float32, torch.float64, torch.complex64]


def matrices(*shape, dtype=torch.float64, seed=3):
    if dtype.is_complex:
        return complexes(*shape, dtype=dtype)
    return numbers(*shape, dtype=dtype, seed=seed)


FORMS = [
    lambda a: a,
    lambda a: a.mT,
    lambda a: a.mT.contiguous().mT,
    lambda a: a.mT.conj(),
    lambda a: a.mH.contiguous().mT.conj(),
    lambda a: a.conj(),
]


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("dtype", FIELDS, ids=str)
def test_triangular_systems(batch, dtype):
    a = matrices(*batch, 4, 4, dtype=dtype) + 3 * torch.eye(4, dtype=dtype)
    b = matrices(4, 6, dtype=dtype, seed=5)
    for upper in (False, True):
        for form in FORMS:
            for left, right in ((True, b), (False, b.mT), (True, b.expand(*batch, 4, 6))):
                agrees(
                    lambda a, b: torch.linalg.solve_triangular(form(a), b, upper=upper, left=left),  # noqa: B023
                    a,
                    right,
                )
    agrees(lambda a, b: torch.linalg.solve_triangular(a, b, upper=True, unitriangular=True), a, b)


def test_triangular_systems_have_gradients_and_refusals():
    a, b = numbers(3, 4, 4).double() + 4 * torch.eye(4), numbers(3, 4, 2).double()
    gradients_agree(lambda a, b: torch.linalg.solve_triangular(a, b, upper=True), a, b)
    solve = torch.linalg.solve_triangular
    same_error(lambda a, b: solve(a, b, upper=True), a, b[:, :3])
    same_error(lambda a, b: solve(a, b, upper=True), a[:, :3], b)
    same_error(lambda a, b: solve(a, b, upper=True), a, numbers(2, 4, 2).double())


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("dtype", FIELDS, ids=str)
def test_reflections(batch, dtype):
    for rows, columns in ((5, 3), (4, 4), (3, 5)):
        a = matrices(*batch, rows, columns, dtype=dtype)
        agrees(torch.geqrf, a)
        agrees(torch.geqrf, a.mT)
        if rows < columns:
            continue
        reflections, tau = torch.geqrf(a)
        agrees(torch.linalg.householder_product, reflections, tau)
        agrees(torch.orgqr, reflections.contiguous(), tau)
        other = matrices(*batch, rows, 2, dtype=dtype, seed=9)
        agrees(torch.ormqr, reflections, tau, other)
        agrees(lambda a, t, o: torch.ormqr(a, t, o, transpose=True), reflections, tau, other)
        agrees(lambda a, t, o: torch.ormqr(a, t, o, left=False), reflections, tau, other.mT)
    same_error(torch.linalg.householder_product, matrices(3, 5), matrices(3))
    same_error(torch.ormqr, matrices(5, 3), matrices(3), matrices(4, 2))


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("dtype", FIELDS, ids=str)
def test_eigenvectors(batch, dtype):
    # Far apart, so that they come in the same order and with the same phases.
    a = matrices(*batch, 4, 4, dtype=dtype) / 10 + torch.diag(torch.arange(4)).to(dtype)
    agrees(torch.linalg.eig, a)
    agrees(torch.linalg.eigvals, a)
    same_error(torch.linalg.eig, matrices(3, 4))


def test_eigenvectors_of_what_is_not_finite():
    torch.linalg.eig(torch.full((2, 2), float("nan"), device="loom"))
    with pytest.raises(RuntimeError, match="input tensor should not contain infs or NaNs"):
        torch.loom.synchronize()


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss", None])
@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_least_squares(driver, batch):
    for rows, columns in ((5, 3), (3, 5), (4, 4)):
        a = matrices(*batch, rows, columns)
        for b in (matrices(*batch, rows, 2, seed=8), matrices(*batch, rows, seed=8)):
            if b.dim() == a.dim() - 1 and not batch:
                b = matrices(rows, seed=8)
            on_loom, expected = to_loom((a, b)), torch.linalg.lstsq(a, b, driver=driver)
            data_decide = driver in ("gelsd", "gelss") and rows > columns
            solve = torch.linalg.lstsq if data_decide else natively
            extra = () if data_decide else (torch.linalg.lstsq,)
            actual = solve(*extra, *on_loom, driver=driver)
            for got, wanted in zip(actual, expected, strict=True):
                assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
                if wanted.numel() > 1:
                    assert got.stride() == wanted.stride()
                torch.testing.assert_close(got.cpu(), wanted)
    same_error(torch.linalg.lstsq, matrices(5, 3), matrices(4, 2))
    same_error(lambda a, b: torch.linalg.lstsq(a, b, driver="x"), matrices(5, 3), matrices(5, 2))
