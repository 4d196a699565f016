# SPDX-License-Identifier: BSD-3-Clause
"""Deferred operators whose shapes loom infers itself: selections, counts and losses."""

import pytest
import torch
from compare import agrees, gradients_agree, natively, same_error, to_loom
from ops_support import numbers

F = torch.nn.functional
aten = torch.ops.aten


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
