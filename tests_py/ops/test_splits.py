# SPDX-License-Identifier: BSD-3-Clause
"""Kernels of ATen that are cut into blocks: values of cpu, the same ones on any number of cores."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from split_checks import (
    Case,
    all_cores,
    check_cores,
    check_gradients,
    check_values,
    grid,
    on_host,
    places,
    positive,
    random,
    triangles,
)
from torch.nn import functional as F  # noqa: N812

__all__ = ["all_cores"]  # a fixture

CASES: dict[str, Case] = {
    "fft of rows": (lambda x: torch.fft.fft(x), (random(256, 512),)),
    "fft of columns": (lambda x: torch.fft.rfft(x, dim=0), (random(256, 512),)),
    "fft of all dimensions": (lambda x: torch.fft.fft2(x), (random(256, 256).double(),)),
    "irfft": (lambda x: torch.fft.irfft(x), (random(256, 257, dtype=torch.complex64),)),
    "stft": (
        lambda x, w: torch.stft(x, 400, window=w, return_complex=True),
        (random(4, 40000), torch.hann_window(400)),
    ),
    "roll of both": (lambda x: x.roll((5, -13), (1, 0)), (random(700, 300),)),
    "roll twice": (lambda x: x.roll((5, 3), (-2, 0)), (random(700, 300),)),
    "flip of rows": (lambda x: x.flip(0), (random(700, 300),)),
    "flip of both": (lambda x: x.flip(0, 1), (random(700, 300),)),
    "flip of a transposed": (lambda x: x.t().flip(1), (random(700, 300),)),
    "flip between": (lambda x: x.flip(-2), (random(3, 500, 301),)),
    "roll": (lambda x: x.roll(5, 1), (random(700, 300),)),
    "roll of all": (lambda x: x.roll(5), (random(700, 300),)),
    "kthvalue": (lambda x: x.kthvalue(7, 1), (random(600, 200),)),
    "kthvalue kept": (lambda x: x.kthvalue(7, 0, keepdim=True), (random(200, 600),)),
    "mode": (lambda x: x.mode(0), (random(100, 900).mul(3).round(),)),
    "median": (lambda x: x.median(-1), (random(10, 60, 100),)),
    "nanmedian": (lambda x: x.nanmedian(1), (random(10, 60, 100).log(),)),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), (random(300, 200),)),
    "rows by index": (lambda x, i: x[i], (random(700, 30), places(9000, 700))),
    "columns by index": (lambda x, i: x[:, i], (random(700, 300), places(900, 300))),
    "places by two indices": (
        lambda x, i, j: x[i[:, None], j[None]],
        (random(700, 300), places(500, 700), places(200, 300)),
    ),
    "places by indices apart": (
        lambda x, i: x[i, :, i],
        (random(20, 300, 20), places(900, 20)),
    ),
    "places by one index": (lambda x, i: x[i[:1]], (random(2, 300, 300), places(5, 2))),
    "searchsorted": (torch.searchsorted, (random(500).sort().values, random(90000))),
    "searchsorted of rows": (
        torch.searchsorted,
        (random(300, 50).sort().values, random(300, 200)),
    ),
    "searchsorted of as many": (
        torch.searchsorted,
        (random(20000).sort().values, random(20000)),
    ),
    "bucketize": (torch.bucketize, (random(300, 400), random(400).sort().values)),
    "bucketize of as many": (torch.bucketize, (random(20000), random(20000).sort().values)),
    "isin": (torch.isin, (places(90000, 500), places(80, 500))),
    "index_add": (lambda x, i: x.index_add(0, i, x[:400]), (random(700, 300), places(400, 700))),
    "index_copy": (lambda x, i: x.index_copy(1, i, x), (random(700, 300), torch.arange(300))),
    "index_reduce": (
        lambda x, i: x.index_reduce(1, i, x, "amax"),
        (random(90, 300, 20), places(300, 300)),
    ),
    "cdist of rows": (lambda x, y: torch.cdist(x, y, p=1.5), (random(700, 5), random(90, 5))),
    "cdist of Euclid": (torch.cdist, (random(700, 5), random(90, 5))),
    "cdist of Euclid, near": (torch.cdist, (random(5000, 3), random(20, 3))),
    "cdist with a batch": (
        lambda x, y: torch.cdist(x, y, p=1.0),
        (random(300, 40, 5), random(1, 30, 5)),
    ),
    "pdist": (torch.pdist, (random(300, 90),)),
    "renorm of rows": (lambda x: x.renorm(2, 0, 5.0), (random(700, 300),)),
    "renorm of columns": (lambda x: x.renorm(1.5, -1, 5.0), (random(300, 700).t(),)),
    "svdvals of oblongs": (torch.linalg.svdvals, (random(90, 20, 30),)),
    # Errors are relative to the largest eigenvalue, here about one.
    "eigvalsh": (lambda x: torch.linalg.eigvalsh(x @ x.mT / 80), (random(4, 30, 20, 20),)),
    "complex": (torch.complex, (random(500, 300), random(300))),
    "frexp": (torch.frexp, (random(700, 300),)),
    "frexp of columns": (lambda x: torch.frexp(x.t()), (random(700, 300),)),
    "xlogy of a column": (torch.special.xlog1py, (random(700, 300).abs(), random(700, 1).abs())),
    "cross": (
        lambda x, y: torch.linalg.cross(x, y, dim=1),
        (random(900, 3, 70), random(900, 3, 70)),
    ),
    "cross of one": (
        lambda x, y: torch.linalg.cross(x, y, dim=1),
        (random(900, 3, 70), random(1, 3, 1)),
    ),
    "cholesky": (torch.linalg.cholesky, (positive(30, 40, 40),)),
    "cholesky of a batch of batches": (torch.linalg.cholesky, (positive(1, 30, 40, 40),)),
    "cholesky_solve": (torch.cholesky_solve, (random(30, 40, 5).double(), triangles(30, 40, 40))),
    "cholesky_inverse": (torch.cholesky_inverse, (triangles(30, 40, 40),)),
    "solve": (torch.linalg.solve, (positive(30, 40, 40), random(30, 40, 3).double())),
    "solve of vectors": (torch.linalg.solve, (positive(40, 40, 40), random(40, 40).double())),
    "solve of one for all": (torch.linalg.solve, (positive(40, 40, 40), random(40, 2).double())),
    "solve_triangular": (
        lambda a, b: torch.linalg.solve_triangular(a, b, upper=False),
        (triangles(30, 40, 40), random(30, 40, 3).double()),
    ),
    "lu": (torch.linalg.lu, (positive(30, 40, 30 + 10),)),
    "lu_factor": (torch.linalg.lu_factor, (positive(30, 40, 40),)),
    "inv": (torch.linalg.inv, (positive(30, 40, 40),)),
    "det": (torch.linalg.det, (positive(30, 20, 20),)),
    "slogdet": (torch.linalg.slogdet, (positive(2, 30, 20, 20),)),
    "qr": (lambda x: torch.linalg.qr(x), (positive(30, 40, 40),)),
    "qr without q": (lambda x: torch.linalg.qr(x, mode="r"), (positive(30, 40, 40),)),
    "eigh": (lambda x: torch.linalg.eigh(x).eigenvalues, (positive(30, 20, 20),)),
    "svdvals": (torch.linalg.svdvals, (positive(30, 20, 20),)),
    "matrix_exp": (torch.matrix_exp, (positive(30, 20, 20) / 100,)),
    "unfold": (lambda x: F.unfold(x, 3), (random(8, 4, 60, 60),)),
    "unfold of one": (lambda x: F.unfold(x, 3), (random(4, 160, 60),)),
    "fold": (lambda x: F.fold(x, (60, 60), 3), (random(8, 36, 58 * 58),)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 5), (random(8, 16, 60, 60),)),
    "adaptive_avg_pool2d of one": (
        lambda x: F.adaptive_avg_pool2d(x, 5),
        (random(1, 64, 60, 60),),
    ),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, 3), (random(4, 9, 16, 20, 20),)),
    "grid_sample": (
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        (random(6, 3, 40, 40), grid(6, 40, 40, 2)),
    ),
    "grid_sample of volumes": (
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        (random(4, 3, 10, 20, 20), grid(4, 10, 20, 20, 3)),
    ),
    "cdist": (torch.cdist, (random(20, 30, 9), random(20, 40, 9))),
    "huber_loss of each": (
        lambda x, y: F.huber_loss(x, y, reduction="none", delta=0.7),
        (random(700, 300), random(701, 300)[1:]),
    ),
    "huber_loss": (F.huber_loss, (random(700, 300), random(701, 300)[1:])),
    "smooth_l1_loss": (F.smooth_l1_loss, (random(700, 300), random(701, 300)[1:])),
    "binary_cross_entropy of each": (
        lambda x, y: F.binary_cross_entropy(x, y, reduction="none"),
        (random(700, 300).sigmoid(), random(701, 300)[1:].sigmoid()),
    ),
    "binary_cross_entropy": (
        F.binary_cross_entropy,
        (random(700, 300).sigmoid(), random(701, 300)[1:].sigmoid(), random(300).abs()),
    ),
    "binary_cross_entropy_with_logits": (
        F.binary_cross_entropy_with_logits,
        (random(700, 300), random(701, 300)[1:].sigmoid()),
    ),
    "logsigmoid": (F.logsigmoid, (random(700, 300),)),
    "nll_loss": (
        lambda x, y: F.nll_loss(x, y, torch.arange(1.0, 4.0, device=x.device)),
        (random(90000, 3), places(90000, 3)),
    ),
    "nll_loss of each": (
        lambda x, y: F.nll_loss(x, y, reduction="none", ignore_index=1),
        (random(90000, 3), places(90000, 3)),
    ),
    "nll_loss of images": (
        lambda x, y: F.nll_loss(x, y, reduction="sum", ignore_index=2),
        (random(900, 3, 10, 10), places(90000, 3).view(900, 10, 10)),
    ),
    "nll_loss of each pixel": (
        lambda x, y: F.nll_loss(x, y, torch.arange(1.0, 4.0, device=x.device), reduction="none"),
        (random(900, 3, 10, 10), places(90000, 3).view(900, 10, 10)),
    ),
    "mean of nll_loss of images": (
        lambda x, y: F.nll_loss(x, y, torch.arange(1.0, 4.0, device=x.device)),
        (random(900, 3, 10, 10), places(90000, 3).view(900, 10, 10)),
    ),
    "dot": (torch.dot, (random(500_001).double(), random(500_001).double())),
    "dot of floats": (torch.dot, (random(500_001).abs(), random(500_002)[1:].abs())),
    "dot of gaps": (lambda x: torch.dot(x[::2], x[1::2]), (random(500_000).double(),)),
    "vdot": (torch.vdot, (random(300_000, dtype=torch.complex128),) * 2),
    "dot of integers": (torch.dot, (torch.arange(300_000), torch.arange(300_000) % 7)),
}


pytestmark = pytest.mark.filterwarnings("ignore:index_reduce.. is in beta:UserWarning")


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_cpu(name: str) -> None:
    check_values(CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_cores_do_not_matter(name: str) -> None:
    check_cores(CASES[name])


GRADIENTS = (
    "fft of rows",
    "cdist of rows",
    "cdist with a batch",
    "pdist",
    "flip of rows",
    "complex",
    "cholesky",
    "solve",
    "inv",
    "unfold",
    "fold",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "grid_sample",
    "grid_sample of volumes",
    "logcumsumexp",
    "rows by index",
    "columns by index",
    "dot",
    "dot of floats",
    "huber_loss of each",
    "huber_loss",
    "smooth_l1_loss",
    "binary_cross_entropy_with_logits",
    "logsigmoid",
    "nll_loss",
    "nll_loss of each",
    "nll_loss of images",
    "nll_loss of each pixel",
    "mean of nll_loss of images",
)


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_those_of_cpu(name: str) -> None:
    check_gradients(CASES[name])


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_gradients_of_probabilities(reduction: str) -> None:
    gradients = []
    for device in ("cpu", "loom"):
        x = random(700, 300).sigmoid().to(device).requires_grad_()
        y = random(701, 300)[1:].sigmoid().to(device)
        F.binary_cross_entropy(x, y, reduction=reduction).mul(3).sum().backward()
        gradients.append(x.grad.cpu())
    torch.testing.assert_close(gradients[1], gradients[0])


def test_a_probability_outside_of_its_bounds_is_refused() -> None:
    x = random(700, 300).sigmoid()
    x[600, 7] = 1.5
    with pytest.raises(RuntimeError, match="all elements of input should be between 0 and 1"):
        F.binary_cross_entropy(x.to("loom"), x.clamp(0, 1).to("loom")).item()


@pytest.mark.parametrize("shape", [(90000, 3), (900, 3, 10, 10)])
def test_a_label_outside_of_its_bounds_is_refused(shape: tuple[int, ...]) -> None:
    labels = places(90000, 3)
    labels[80000] = 7
    labels = labels.view(shape[0], *shape[2:])
    for reduction in ("none", "sum"):
        with pytest.raises(IndexError, match="Target 7 is out of bounds"):
            F.nll_loss(random(*shape).to("loom"), labels.to("loom"), reduction=reduction).cpu()


def test_a_refusal_of_one_block_is_that_of_the_call() -> None:
    matrices = positive(30, 40, 40)
    matrices[17] = -matrices[17]
    with pytest.raises(torch.linalg.LinAlgError, match=r"\(Batch element 17\)"):
        torch.linalg.cholesky(matrices.to("loom")).cpu()


def test_batch_numbers_of_errors_are_those_of_the_call() -> None:
    matrices = positive(2000, 8, 8)
    matrices[1500] = -matrices[1500]
    for _ in range(2):
        with pytest.raises(torch.linalg.LinAlgError, match=r"\(Batch element 1500\)"):
            torch.ops.aten.cholesky(matrices.to("loom")).cpu()
    matrices[1500] = torch.nan
    for function in (torch.linalg.svd, torch.linalg.eigh):
        with pytest.raises(torch.linalg.LinAlgError, match=r"\(Batch element 1500\)"):
            function(matrices.to("loom"))[0].cpu()


OUT: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], int]] = {
    "searchsorted": (torch.searchsorted, (random(1000).sort().values, random(400000)), 1),
    "bucketize": (torch.bucketize, (random(400000), random(1000).sort().values), 1),
    "im2col": (
        lambda x, out: torch.ops.aten.im2col(x, (3, 3), (1, 1), (0, 0), (1, 1), out=out),
        (random(16, 8, 60, 62),),
        1,
    ),
    "flip": (lambda x, out: torch.ops.aten.flip(x, [0], out=out), (random(700, 300),), 1),
    "complex": (torch.complex, (random(700, 300), random(700, 300)), 1),
    "kthvalue": (lambda x, out: torch.kthvalue(x, 5, 1, out=out), (random(600, 200),), 2),
    "median": (lambda x, out: torch.median(x, 1, out=out), (random(600, 200),), 2),
    "index": (
        lambda x, i, out: torch.ops.aten.index.Tensor_out(x, [i], out=out),
        (random(700, 30), places(9000, 700)),
        1,
    ),
}


@pytest.mark.parametrize("name", OUT)
@pytest.mark.parametrize("fits", [True, False])
def test_given_results_are_written_whole(name: str, fits: bool) -> None:
    function, inputs, count = OUT[name]
    found = []
    for device in ("cpu", "loom"):
        own = [each.to(device) for each in inputs]
        empty = tuple(torch.empty(0, device=device) for _ in range(count))
        dtypes = {"searchsorted": [torch.int64], "bucketize": [torch.int64]}.get(name)
        dtypes = dtypes or ([torch.complex64] if name == "complex" else [torch.float32])
        dtypes = dtypes if count == 1 else [torch.float32, torch.int64]
        out = [each.to(dtype) for each, dtype in zip(empty, dtypes, strict=True)]
        given = out[0] if count == 1 else tuple(out)
        function(*own, out=given)
        if fits:
            for each in out:
                each.zero_()
            function(*own, out=given)
        found.append([each.cpu() for each in out])
    torch.testing.assert_close(found[1], found[0])


PIVOTED: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "lu_unpack": torch.lu_unpack,
    "lu_unpack of the pivots": lambda lu, pivots: torch.lu_unpack(lu, pivots, unpack_data=False)[0],
}


@pytest.mark.parametrize("name", PIVOTED)
@pytest.mark.parametrize("shape", [(64, 60, 40), (64, 40, 60), (40, 40, 40)])
def test_pivots_of_a_batch_are_cut_with_it(name: str, shape: tuple[int, ...]) -> None:
    lu, pivots = torch.linalg.lu_factor(random(*shape).double())
    expected = PIVOTED[name](lu, pivots)
    found = PIVOTED[name](lu.to("loom"), pivots.to("loom"))
    torch.testing.assert_close(on_host(found), on_host(expected))


@pytest.mark.parametrize("left", [False, True])
def test_one_right_hand_side_for_as_many_matrices_as_it_has_rows(left: bool) -> None:
    lu, pivots = torch.linalg.lu_factor(positive(32, 32, 32))
    b = random(32, 32).double()
    expected = torch.linalg.lu_solve(lu, pivots, b, left=left)
    found = torch.linalg.lu_solve(lu.to("loom"), pivots.to("loom"), b.to("loom"), left=left)
    torch.testing.assert_close(found.cpu(), expected)


@pytest.mark.parametrize("shape", [(100, 40, 30), (2, 400, 100)])
def test_reflectors_of_a_batch(shape: tuple[int, ...]) -> None:
    h, tau = torch.geqrf(random(*shape).double())
    for function in (torch.linalg.householder_product, lambda h, t: torch.ormqr(h, t, h)):
        expected = function(h, tau)
        torch.testing.assert_close(function(h.to("loom"), tau.to("loom")).cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_parts_of_an_inner_product_are_not_rounded(dtype: torch.dtype) -> None:
    a = torch.full((1 << 20,), 10.0, dtype=dtype)
    b = a.clone()
    b[1 << 19 :] = -10
    assert torch.dot(a.to("loom"), b.to("loom")).item() == 0


def test_inner_products_of_zeros_without_memory() -> None:
    x, zeros = torch.arange(5.0, device="loom"), torch._efficientzerotensor((5,), device="loom")
    for function in (torch.dot, torch.vdot):
        assert function(x, zeros).item() == function(zeros, x).item() == 0


def test_inner_products_of_bools_are_refused_at_the_call() -> None:
    x = torch.ones(10, dtype=torch.bool, device="loom")
    with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
        torch.dot(x, x)


def test_an_expanded_result_is_written_as_on_cpu() -> None:
    x = random(700, 300)
    for device in ("cpu", "loom"):
        one = torch.zeros(1, device=device).expand(700, 300)
        with pytest.raises(RuntimeError, match="unsupported operation"):
            torch.complex(
                x.to(device), x.to(device), out=one.to(torch.complex64)[:1].expand(700, 300)
            )
