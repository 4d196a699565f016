# SPDX-License-Identifier: BSD-3-Clause
"""Deferred operators whose shapes loom infers itself: transforms, factorisations, selections."""

import pytest
import torch
from compare import agrees, gradients_agree, natively, same_error, to_loom
from ops_support import keep_busy

F = torch.nn.functional
aten = torch.ops.aten


def numbers(*shape, dtype=torch.float32, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def complexes(*shape, dtype=torch.complex64):
    return torch.complex(numbers(*shape).double(), numbers(*shape, seed=4).double()).to(dtype)


# --- Fourier transforms ----------------------------------------------------------------------

LAYOUTS = [
    lambda x: x,
    lambda x: x.transpose(0, 2),
    lambda x: x.permute(1, 2, 0, 3),
    lambda x: x[:, ::2],
    lambda x: x[:1].expand(3, -1, -1, -1),
]
DIMS = [(0,), (1,), (-1,), (0, 1), (1, 0), (2, 3), (3, 1), (0, 2, 3), (3, 2, 1, 0)]


@pytest.mark.parametrize("layout", range(len(LAYOUTS)))
@pytest.mark.parametrize("dims", DIMS, ids=str)
def test_transforms(layout, dims):
    for dtype, norm in ((torch.float32, "forward"), (torch.float64, "ortho")):
        x = LAYOUTS[layout](numbers(3, 4, 5, 6, dtype=dtype))
        z = LAYOUTS[layout](complexes(3, 4, 5, 6, dtype=dtype.to_complex()))
        agrees(lambda z: torch.fft.fftn(z, dim=dims, norm=norm), z)  # noqa: B023
        agrees(lambda z: torch.fft.ifftn(z, dim=dims, norm=norm), z)  # noqa: B023
        agrees(lambda x: torch.fft.rfftn(x, dim=dims), x)
        agrees(lambda z: torch.fft.irfftn(z, dim=dims), z)
        agrees(lambda z: torch.fft.irfft(z, n=7, dim=dims[0]), z)
        agrees(lambda x: torch.fft.fft(x, dim=dims[0]), x)
        agrees(lambda x: aten._fft_r2c(x, [d % 4 for d in dims], 0, False), x)
        agrees(lambda z: torch.fft.hfft(z, dim=dims[0]), z)


PLANES = [
    lambda x: x,
    lambda x: x.t(),
    lambda x: x[:, ::2],
    lambda x: x.view(1, 700, 200),
    lambda x: x.view(7, 100, 200),
    lambda x: x.view(20, 7, 1000),
]


@pytest.mark.parametrize("plane", range(len(PLANES)))
@pytest.mark.parametrize("norm", ["forward", "ortho"])
def test_transforms_of_planes_in_steps(plane, norm):
    x, z = PLANES[plane](numbers(700, 200)), PLANES[plane](complexes(700, 200))
    for dims in (None, (-1, -2), (0, -1)):
        for function in (torch.fft.fftn, torch.fft.ifftn, torch.fft.irfftn, torch.fft.hfftn):
            agrees(lambda z, f=function, d=dims: f(z, dim=d, norm=norm), z)
        for function in (torch.fft.fftn, torch.fft.rfftn, torch.fft.ihfftn):
            agrees(lambda x, f=function, d=dims: f(x, dim=d, norm=norm), x)
    agrees(lambda z: torch.fft.fftn(z.conj()), z)


def test_transforms_of_conjugates_and_given_sizes():
    z = complexes(4, 9)
    agrees(lambda z: torch.fft.fft(z.conj()), z)
    agrees(lambda z: torch.fft.fft(z, n=5, dim=0), z)
    agrees(lambda z: torch.fft.fft2(z, s=(3, 12)), z)
    agrees(
        lambda x: torch.stft(x, 16, 4, return_complex=True, window=torch.ones_like(x[0, :16])),
        numbers(2, 200),
    )
    gradients_agree(lambda x: torch.fft.rfft(x).abs(), numbers(3, 16))
    gradients_agree(lambda x: torch.fft.fft2(x).abs(), numbers(300, 300).double())
    gradients_agree(lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * 2), numbers(3, 8, 9))


def test_transforms_refuse_what_cpu_refuses():
    same_error(torch.fft.fft, torch.ones(3, 0))
    same_error(lambda x: torch.fft.fft(x, dim=2), torch.ones(3, 4))
    same_error(torch.fft.rfft, torch.ones(3, dtype=torch.complex64))
    same_error(torch.fft.fft, torch.ones(4).bfloat16())
    same_error(lambda x: aten._fft_r2c(x, [0], 0, True), torch.ones(3, dtype=torch.int64))


def test_inferred_operators_do_not_wait():
    x = torch.ones(4, 64, device="loom")
    keep_busy()
    result = natively(torch.fft.rfft, x)
    assert not torch.loom.current_stream().query()
    assert result[:, 0].tolist() == [64] * 4


# --- factorisations --------------------------------------------------------------------------

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


# --- selections, counts and losses -----------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16], ids=str)
def test_order_statistics(dtype):
    x = (numbers(3, 5, 7) * 99).to(dtype)
    for dim in (0, 1, -1):
        for keepdim in (False, True):
            agrees(lambda x: torch.kthvalue(x, 2, dim, keepdim), x)  # noqa: B023
            agrees(lambda x: torch.median(x, dim, keepdim), x)  # noqa: B023
            agrees(lambda x: torch.nanmedian(x, dim, keepdim), x)  # noqa: B023
    agrees(lambda x: torch.median(x, 0), x[0, 0, 0])
    agrees(lambda x: torch.kthvalue(x.transpose(0, 2), 1, 1), x)
    same_error(lambda x: torch.kthvalue(x, 9, 0), x)
    same_error(lambda x: torch.kthvalue(x, 1, 3), x)
    same_error(lambda x: torch.median(x, 0), x[:0])


def test_order_statistics_into_given_tensors():
    x = numbers(3, 5)

    def into(x, values, indices):
        return torch.kthvalue(x, 2, 1, out=(values, indices))

    agrees(into, x, torch.empty(3), torch.empty(3, dtype=torch.long))
    agrees(into, x, torch.empty(6)[::2], torch.empty(0, dtype=torch.long))
    same_error(into, x, torch.empty(3), torch.empty(3))
    # The memory of an empty out= stays its own.
    buffer = torch.zeros(8, device="loom")
    torch.kthvalue(
        x.to("loom"), 2, 1, out=(buffer[:0], torch.empty(0, dtype=torch.long, device="loom"))
    )
    torch.testing.assert_close(buffer[:3].cpu(), torch.kthvalue(x, 2, 1).values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64], ids=str)
def test_logcumsumexp(dtype):
    x = numbers(4, 5).to(dtype)
    for dim in (0, 1):
        agrees(lambda x: torch.logcumsumexp(x, dim), x)  # noqa: B023
        agrees(lambda x: torch.logcumsumexp(x.t(), dim), x)  # noqa: B023
    same_error(lambda x: torch.logcumsumexp(x, 0), torch.arange(3))


def test_nonzero_static():
    x = numbers(4, 5) * (numbers(4, 5, seed=6) > 0)
    for size in (0, 3, 50):
        agrees(lambda x: torch.nonzero_static(x, size=size, fill_value=-7), x)  # noqa: B023
        agrees(lambda x: torch.nonzero_static(x[0, 0], size=size), x)  # noqa: B023
    same_error(lambda x: torch.nonzero_static(x, size=-1), x)


def test_histograms():
    x, weight = numbers(30, 3), numbers(30, 3, seed=7).abs()
    for density in (False, True):
        agrees(lambda x: torch.histogram(x, 7, density=density), x)  # noqa: B023
        agrees(
            lambda x, w: torch.histogram(x, 7, weight=w, range=(-1, 1), density=density),  # noqa: B023
            x,
            weight,
        )
        agrees(lambda x, b: torch.histogram(x, b, density=density), x, torch.tensor([-1.0, 0, 2]))  # noqa: B023
    same_error(lambda x: torch.histogram(x, 0), x)
    same_error(lambda x: torch.histogram(x, 3, range=(2, 1)), x)
    same_error(lambda x: torch.histogram(x, 3), x.long())


@pytest.mark.parametrize("flat", [False, True])
def test_ctc_loss_of_many_samples(flat):
    generator = torch.Generator().manual_seed(4)
    lengths = torch.randint(1, 30, (16,), generator=generator)
    steps = torch.randint(60, 90, (16,), generator=generator).tolist()
    rows = torch.randint(1, 20, (16, 33), generator=generator)
    targets = torch.cat([row[:n] for row, n in zip(rows, lengths, strict=True)]) if flat else rows

    def loss(scores, targets):
        given = (steps, lengths.tolist())
        return F.ctc_loss(scores.log_softmax(-1), targets, *given, reduction="none")

    for scores in (numbers(90, 16, 20), numbers(16, 90, 20).transpose(0, 1)):
        agrees(loss, scores, targets)
        gradients_agree(lambda s: loss(s, targets.to(s.device)), scores)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_ctc_loss(dtype, reduction):
    scores = numbers(12, 3, 6, dtype=dtype)
    rows = torch.randint(1, 6, (3, 5), generator=torch.Generator().manual_seed(2))
    lengths = (4, 3, 5)
    flat = torch.cat([row[:n] for row, n in zip(rows, lengths, strict=True)])
    steps = (12, 11, 9)
    for targets in (rows, flat, rows.int(), rows.t().contiguous().t()):
        for given in ((steps, lengths), (torch.tensor(steps), torch.tensor(lengths))):

            def loss(scores, targets):
                return F.ctc_loss(
                    scores.log_softmax(-1),
                    targets,
                    *given,  # noqa: B023
                    reduction=reduction,
                )

            agrees(loss, scores, targets)
            gradients_agree(lambda s: loss(s, targets.to(s.device)), scores.clone())  # noqa: B023
    same_error(lambda s, t: F.ctc_loss(s, t, (12, 11), lengths), scores, rows)
    same_error(lambda s, t: F.ctc_loss(s, t, (12, 11, 19), lengths), scores, rows)
    same_error(lambda s, t: F.ctc_loss(s, t, (12, 11, 9), lengths, blank=6), scores, rows)
    same_error(lambda s, t: F.ctc_loss(s, t, (12, 11, 9), (4, 3, 9)), scores, rows)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_multilabel_margin_loss(reduction):
    target = torch.tensor([[2, 0, -1, 1], [3, -1, 0, 0], [0, 1, 2, 3]])
    for x, labels in (
        (numbers(3, 4), target),
        (numbers(4), target[0]),
        (numbers(), target[0, 1]),
    ):

        def loss(x):
            return F.multilabel_margin_loss(x, labels.to(x.device), reduction=reduction)  # noqa: B023

        agrees(loss, x)
        gradients_agree(loss, x)
    same_error(F.multilabel_margin_loss, numbers(3, 4), target[:2])
    same_error(F.multilabel_margin_loss, numbers(3, 4), target.int())


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_embedding_bag(mode, dtype):
    table, indices = numbers(10, 4, dtype=dtype), torch.tensor([1, 2, 4, 5, 4, 3, 2, 9])
    offsets = torch.tensor([0, 2, 2, 5])
    for padding in (None, 2):
        for last in (False, True):
            places = torch.tensor([0, 2, 2, 5, 8]) if last else offsets

            def bag(table):
                return F.embedding_bag(
                    indices.to(table.device),
                    table,
                    places.to(table.device),  # noqa: B023
                    mode=mode,
                    padding_idx=padding,  # noqa: B023
                    include_last_offset=last,  # noqa: B023
                )

            agrees(bag, table)
            if dtype != torch.bfloat16:
                gradients_agree(bag, table.clone())
    for name in ("_embedding_bag", "_embedding_bag_forward_only"):
        for padding in (-1, 2):
            for last in (False, True):
                number = ["sum", "mean", "max"].index(mode)
                actual = natively(
                    getattr(aten, name),
                    *to_loom((table, indices, offsets)),
                    False,
                    number,
                    False,
                    None,
                    last,
                    padding,
                )
                expected = getattr(aten, name)(
                    table, indices, offsets, False, number, False, None, last, padding
                )
                assert [x.shape for x in actual] == [x.shape for x in expected]


def test_embedding_bag_with_weights():
    table, indices, weights = numbers(10, 4), torch.tensor([[1, 2], [4, 5], [4, 3]]), numbers(3, 2)
    agrees(
        lambda t, i, w: F.embedding_bag(i, t, mode="sum", per_sample_weights=w),
        table,
        indices,
        weights,
    )
    gradients_agree(
        lambda t, w: F.embedding_bag(indices.to(t.device), t, mode="sum", per_sample_weights=w),
        table,
        weights,
    )


def test_embedding_bag_of_unknown_words():
    table, indices = torch.ones(10, 4, device="loom"), torch.tensor([[1, 20]], device="loom")
    F.embedding_bag(indices, table)
    with pytest.raises(RuntimeError, match="_embedding_bag"):
        torch.loom.synchronize()


def test_gradients_of_distributions_and_pools():
    x = numbers(3, 4).abs() + 0.5
    agrees(aten._standard_gamma_grad, x, x * 0.8)
    agrees(
        aten._dirichlet_grad, x.softmax(-1), x, x.sum(-1, keepdim=True).expand(3, 4).contiguous()
    )
    gradients_agree(
        lambda x: F.multi_margin_loss(x, torch.tensor([1, 0, 3], device=x.device)), x.clone()
    )
    samples = torch.rand(1, 2, 3, generator=torch.Generator().manual_seed(1))
    gradients_agree(
        lambda x: F.fractional_max_pool3d(x, 2, 3, _random_samples=samples.to(x.device)),
        numbers(1, 2, 6, 6, 6),
    )
    mask = torch.zeros(2, 5, dtype=torch.bool)
    mask[:, 3:] = True
    agrees(lambda x, m: torch._masked_softmax(x, m, 1, 1), numbers(2, 2, 5, 5), mask)


def test_fused_adagrad_runs_later():
    weights = {}
    for device in ("cpu", "loom"):
        weight = numbers(3, 4).to(device).requires_grad_()
        optimizer = torch.optim.Adagrad([weight], lr=0.1, fused=True)
        for step in range(3):
            weight.grad = numbers(3, 4, seed=step).to(device)
            if device == "loom":
                natively(optimizer.step)
            else:
                optimizer.step()
        weights[device] = weight.detach().cpu()
    torch.testing.assert_close(weights["loom"], weights["cpu"])
