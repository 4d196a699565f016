# SPDX-License-Identifier: BSD-3-Clause
"""Matrices that are factorised panel by panel, on all cores."""

import pytest
import torch
from compare import agrees, gradients_agree, same_error, to_loom

SHAPES = [(256, 256), (330, 330), (300, 701), (701, 300), (512, 257)]
DTYPES = [torch.float32, torch.float64]
linalg = torch.linalg


def matrix(*shape, dtype=torch.float64, seed=3):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def regular(*shape, dtype=torch.float64):
    """Far from singular: float32 has as many digits as it needs."""
    return matrix(*shape, dtype=dtype) + 20 * torch.eye(shape[-2], shape[-1], dtype=dtype)


def positive(size, dtype=torch.float64):
    a = matrix(size, size)
    return (a @ a.mT / size + torch.eye(size)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_factors(shape, dtype):
    for a in (regular(*shape, dtype=dtype), regular(*shape[::-1], dtype=dtype).mT):
        agrees(linalg.lu_factor_ex, a)
        agrees(linalg.lu, a)
        for mode in ("reduced", "complete", "r"):
            agrees(lambda a, mode=mode: linalg.qr(a, mode), a)
        agrees(torch.geqrf, a)
        if a.size(0) >= a.size(1):
            reflections, scales = torch.geqrf(a)
            agrees(linalg.householder_product, reflections, scales)
            agrees(linalg.householder_product, reflections.contiguous(), scales[:256])


@pytest.mark.parametrize("shape", [(400, 400), (300, 500)], ids=str)
def test_pivots(shape):
    agrees(linalg.lu_factor_ex, matrix(*shape))
    agrees(lambda a: linalg.lu(a, pivot=True), matrix(*shape))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [256, 330, 512])
def test_square_matrices(size, dtype):
    a, b = regular(size, size, dtype=dtype), matrix(size, 70, dtype=dtype)
    agrees(linalg.inv_ex, a)
    agrees(linalg.inv, a.mT)
    agrees(linalg.slogdet, a)
    agrees(linalg.det, a / 20)
    for left, right in ((True, b), (True, b[:, 3]), (True, b.mT.contiguous().mT), (False, b.mT)):
        agrees(lambda a, b, left=left: linalg.solve(a, b, left=left), a, right)
        agrees(lambda a, b, left=left: linalg.solve_ex(a.mT, b, left=left), a, right)
    lu, pivots = linalg.lu_factor(a)
    for adjoint in (False, True):
        agrees(lambda *x, adjoint=adjoint: linalg.lu_solve(*x, adjoint=adjoint), lu, pivots, b)
    for upper in (False, True):
        agrees(lambda a, upper=upper: linalg.cholesky_ex(a, upper=upper), positive(size, dtype))
        for triangle in (a, a.mT):
            for left, right in ((True, b), (False, b.mT)):
                agrees(
                    lambda a, b, upper=upper, left=left: linalg.solve_triangular(
                        a, b, upper=upper, left=left
                    ),
                    triangle,
                    right,
                )
        agrees(
            lambda a, b, upper=upper: linalg.solve_triangular(
                a, b, upper=upper, unitriangular=True
            ),
            a / 100,
            b,
        )


def test_only_one_triangle_is_read():
    a, nan = positive(300), torch.full((300, 300), torch.nan).double()
    lower = torch.ones(300, 300).tril().bool()
    agrees(linalg.cholesky, a.where(lower, nan))
    agrees(lambda a: linalg.cholesky(a, upper=True), a.where(lower.mT, nan))


def test_batches():
    a, b = regular(2, 520, 520), matrix(2, 520, 5)
    agrees(linalg.lu_factor_ex, a)
    agrees(linalg.qr, a)
    agrees(linalg.solve, a, b)
    agrees(linalg.solve, a, b[0, :, 0].expand(2, 520))
    agrees(linalg.solve, a[0], b)  # one matrix for two right-hand sides
    agrees(linalg.inv, a)
    agrees(linalg.cholesky, torch.stack([positive(520), 2 * positive(520)]))
    agrees(linalg.lu_factor_ex, regular(3, 300, 300))


def test_gradients():
    a, b = regular(260, 260), matrix(260, 3)
    gradients_agree(linalg.solve, a, b)
    gradients_agree(linalg.inv, a)
    gradients_agree(lambda a: linalg.qr(a).R, a)
    gradients_agree(linalg.cholesky, positive(260))
    gradients_agree(lambda a: linalg.slogdet(a).logabsdet, a)


@pytest.mark.parametrize("place", [0, 63, 64, 200, 299])
def test_singular_matrices(place):
    a = regular(300, 300)
    a[:, place] = 0
    for function in (linalg.lu_factor_ex, linalg.inv_ex):
        on_loom, expected = function(to_loom(a)), function(a)
        assert on_loom.info.item() == expected.info.item() == place + 1
    same_error(linalg.solve, a, a)
    same_error(linalg.inv, a)
    agrees(linalg.det, a)
    agrees(linalg.slogdet, a)
    bad = positive(300)
    bad[place, place] = -1
    assert linalg.cholesky_ex(to_loom(bad)).info.item() == place + 1
    same_error(linalg.cholesky, bad)


def test_out():
    a = regular(300, 300)
    for made in (torch.empty(300, 300), torch.empty(300, 300).mT, torch.empty(0)):
        made = made.double()
        inverse = to_loom(made)
        linalg.inv(to_loom(a), out=inverse)
        torch.testing.assert_close(inverse.cpu(), linalg.inv(a))


def test_strided_out():
    """Of vectors and numbers, too."""
    a, b = regular(300, 300), regular(2, 600, 600)
    own, other = to_loom(a), to_loom(b)

    def gaps(*shape, dtype=torch.float64):
        return torch.empty(*shape, 2, dtype=dtype, device="loom")[..., 0]

    def columns(*shape):
        return torch.empty(*shape, dtype=torch.float64, device="loom").mT

    made = linalg.lu_factor(own, out=(columns(300, 300), gaps(300, dtype=torch.int32)))
    torch.testing.assert_close(tuple(x.cpu() for x in made), tuple(linalg.lu_factor(a)))
    made = linalg.solve(own, own[0], out=gaps(300))
    torch.testing.assert_close(made.cpu(), linalg.solve(a, a[0]))
    made = linalg.inv_ex(own[None], out=(columns(1, 300, 300), gaps(1, dtype=torch.int32)))
    torch.testing.assert_close(made.inverse.cpu(), linalg.inv(a[None]))
    made = linalg.slogdet(other, out=(gaps(2), gaps(2)))
    torch.testing.assert_close(tuple(x.cpu() for x in made), tuple(linalg.slogdet(b)))


def test_errors():
    singular = torch.zeros(300, 300)
    linalg.inv_ex(to_loom(regular(300, 300)).float(), check_errors=True)
    same_error(lambda a: linalg.inv_ex(a, check_errors=True), singular)
    same_error(lambda a: linalg.solve_ex(a, a, check_errors=True), singular)
    for a, b in ((singular, singular.to("loom")), (singular.to("loom"), singular)):
        with pytest.raises(RuntimeError, match="same device"):
            linalg.solve_triangular(a, b, upper=True)


def test_captured():
    a, b = to_loom(regular(300, 300)), to_loom(matrix(300, 4))
    graph, stream = torch.accelerator.Graph(), torch.Stream("loom")
    with stream, graph:
        solution = linalg.solve_ex(a, b).result
        q, r = linalg.qr(a)
    for seed in (5, 6):
        other = regular(300, 300) + matrix(300, 300, seed=seed)
        a.copy_(other)
        graph.replay()
        torch.testing.assert_close(solution.cpu(), linalg.solve(other, b.cpu()))
        torch.testing.assert_close((q @ r).cpu(), other)


def test_bits_do_not_depend_on_the_number_of_cores(check):
    program = """
        import torch, torch_loom
        torch.manual_seed(0)
        a = torch.randn(700, 500).to("loom")
        square = a.mT @ a + torch.eye(500, device="loom")
        for made in (*torch.linalg.lu_factor(a), *torch.linalg.qr(a),
                     torch.linalg.inv(square), torch.linalg.cholesky(square)):
            print(made.double().sum().item().hex())
    """
    one, *others = (check(program, LOOM_THREADS=threads).out for threads in ("1", "2", "8"))
    assert others == [one, one]
