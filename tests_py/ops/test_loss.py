# SPDX-License-Identifier: BSD-3-Clause
"""Losses."""

import pytest
import torch
from compare import agrees, assert_same, gradients_agree, same_error, to_loom
from torch.autograd import forward_ad

F = torch.nn.functional


def numbers(*shape, seed=23):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def classes(*shape):
    return torch.randint(10, shape, generator=torch.Generator().manual_seed(29))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("rows", [1, 37, 20_000])
def test_cross_entropy(reduction, rows):
    scores, target = numbers(rows, 10), classes(rows)
    agrees(lambda x, t: F.cross_entropy(x, t, reduction=reduction), scores, target)
    gradients_agree(lambda x, t: F.cross_entropy(x, t, reduction=reduction), scores, target)
    agrees(
        lambda x, t, w: F.nll_loss(x, t, w, ignore_index=3, reduction=reduction),
        scores,
        target,
        numbers(10).abs(),
    )


# Forward mode compiles its decompositions with TorchScript.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_a_tangent_that_only_the_gradient_of_cross_entropy_has(reduction):
    scores, target = numbers(37, 10), classes(37)
    factor, tangent = (numbers(*([37] if reduction == "none" else []), seed=s) for s in (1, 2))

    def tangent_of_gradient(x, target, factor, tangent):
        x = x.detach().requires_grad_()
        loss = F.cross_entropy(x, target, reduction=reduction, ignore_index=3)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(factor, tangent)
            (gradient,) = torch.autograd.grad((loss * dual).square().sum(), x)
            return forward_ad.unpack_dual(gradient).tangent.detach().clone()

    agrees(tangent_of_gradient, scores, target, factor, tangent)


def test_a_sample_without_a_batch():
    agrees(F.cross_entropy, numbers(10), classes())
    gradients_agree(F.cross_entropy, numbers(10), classes())


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_mse_loss(reduction):
    x, target = numbers(300, 400), numbers(300, 400, seed=1)
    agrees(lambda x, t: F.mse_loss(x, t, reduction=reduction), x, target)
    gradients_agree(lambda x, t: F.mse_loss(x, t, reduction=reduction), x, target)
    agrees(lambda x, t: F.smooth_l1_loss(x, t, reduction=reduction), x, target)


def test_a_target_out_of_range_is_reported_at_the_next_synchronisation():
    loss = F.cross_entropy(numbers(4, 10).to("loom"), torch.tensor([1, 2, 12, 3]).to("loom"))
    with pytest.raises((IndexError, RuntimeError), match="Target 12 is out of bounds"):
        loss.item()
    assert numbers(4).to("loom").sum().isfinite().item()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.nll_loss(x, x[:, 0]),
        lambda x: F.nll_loss(x, torch.zeros(3, dtype=torch.int64, device=x.device)),
        lambda x: torch.ops.aten.mse_loss(x, x[:, :3]),
    ],
)
def test_errors(function):
    same_error(function, numbers(4, 5))


MIXED = [
    (torch.float32, torch.float64),
    (torch.float64, torch.float32),
    (torch.bfloat16, torch.float32),
]


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(("dtype", "of_target"), MIXED)
def test_losses_of_several_dtypes(dtype, of_target, reduction):
    x, target = numbers(300, 400).to(dtype), numbers(300, 400, seed=1).to(of_target)
    for loss in (F.huber_loss, F.mse_loss, F.smooth_l1_loss):
        agrees(lambda x, t, loss=loss: loss(x, t, reduction=reduction), x, target)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(("dtype", "of_target"), MIXED)
@pytest.mark.parametrize("rows", [3, 300])
def test_gradients_of_several_dtypes(dtype, of_target, reduction, rows):
    def gradient(loss):
        def run(x, t):
            result = loss(x, t, reduction=reduction)
            return torch.autograd.grad(result, x, torch.ones_like(result))

        return run

    x = numbers(rows, 400).to(dtype).requires_grad_()
    target = numbers(rows, 400, seed=1).to(of_target)
    agrees(gradient(F.mse_loss), x, target)
    agrees(gradient(F.smooth_l1_loss), x, target)
    same_error(gradient(F.huber_loss), x, target)


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_huber_loss_in_an_output_of_another_dtype(dtype, reduction):
    agrees(
        lambda x, t, o: torch.ops.aten.huber_loss.out(x, t, reduction, 1.0, out=o),
        numbers(40),
        numbers(40, seed=1).double(),
        torch.empty(0, dtype=dtype),
    )


@pytest.mark.parametrize("strided", [torch.Tensor.t, lambda x: x[:, ::2], lambda x: x[:1]])
def test_huber_loss_is_laid_out_like_its_input(strided):
    x = strided(numbers(6, 8))
    agrees(lambda x, t: torch.ops.aten.huber_loss(x, t), x, x.contiguous())
    agrees(lambda x, t: torch.ops.aten.huber_loss(x, t, 0), x, x.contiguous())
    agrees(lambda x, t: torch.ops.aten.huber_loss(x, t, 0), x, numbers(3, *x.shape))


def test_huber_loss_of_integers_is_refused():
    for reduction in ("none", "mean"):
        same_error(
            lambda x, t, r=reduction: F.huber_loss(x, t, reduction=r), classes(4), numbers(4)
        )


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("name", ["huber_loss", "mse_loss", "smooth_l1_loss"])
def test_outputs_of_integers_are_refused(name, reduction):
    loss = getattr(torch.ops.aten, name).out
    same_error(lambda x, t, o: loss(x, t, reduction, out=o), numbers(4), numbers(4), classes(4))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("rows", [5, 1000])
def test_binary_cross_entropy_in_a_given_output(rows, reduction, weighted):
    x, target = numbers(rows, 300).sigmoid(), numbers(rows, 300, seed=1).sigmoid()
    weight = numbers(300).abs() if weighted else None

    def into(x, t, o):
        w = None if weight is None else weight.to(x.device)
        return torch.ops.aten.binary_cross_entropy.out(x, t, w, reduction, out=o)

    agrees(into, x, target, torch.zeros(rows, 300))
    same_error(into, x, target, torch.zeros(rows, 300, dtype=torch.float64))


@pytest.mark.parametrize("reduction", [1, 2])
@pytest.mark.parametrize("shape", [(), (0,), (3,)])
def test_binary_cross_entropy_in_an_output_of_another_size(shape, reduction):
    def into(x, t, o):
        return torch.ops.aten.binary_cross_entropy.out(x, t, None, reduction, out=o)

    def into_weighted(x, t, o):
        return torch.ops.aten.binary_cross_entropy.out(x, t, x, reduction, out=o)

    x, target, output = numbers(5).sigmoid(), numbers(5, seed=1).sigmoid(), torch.zeros(shape)
    same_error(into_weighted, x, target, output)
    on_loom = into(*to_loom((x, target, output)))
    assert_same(on_loom, into(x, target, output))


@pytest.mark.parametrize(
    ("function", "shape", "of_target"),
    [
        (lambda x, t: F.nll_loss(x, t, x[0].double()), (40_000, 10), torch.int64),
        (lambda x, t: F.nll_loss(x.int(), t), (40_000, 10), torch.int64),
        (lambda x, t: F.nll_loss(x, t), (40_000, 10), torch.int32),
        (lambda x, t: F.nll_loss(x, t, x[0, :, 0, 0].double()), (64, 10, 40, 40), torch.int64),
        (lambda x, t: F.nll_loss(x, t), (64, 10, 40, 40), torch.int32),
        (lambda x, t: F.nll_loss(x, t, reduction="none"), (64, 10, 40, 40), torch.int32),
    ],
)
def test_labels_of_a_dtype_that_is_refused_beyond_the_size_of_a_trial(function, shape, of_target):
    target = classes(shape[0], *shape[2:]).to(of_target)
    same_error(function, numbers(*shape), target)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_a_target_of_a_dtype_that_is_refused_beyond_the_size_of_a_trial(reduction):
    x = numbers(700, 700).sigmoid()

    def loss(x, t):
        return F.binary_cross_entropy(x, t, reduction=reduction)

    same_error(loss, x, x.double())
    same_error(loss, x.int(), x.int())


@pytest.mark.parametrize("place", [0, 1, 2])
def test_binary_cross_entropy_in_the_place_of_an_operand(place):
    def into(*operands):
        return torch.ops.aten.binary_cross_entropy.out(*operands, 1, out=operands[place])

    operands = [numbers(40, seed=seed).sigmoid() for seed in range(3)]
    on_loom = into(*to_loom(operands))
    assert_same(on_loom, into(*operands))
