# SPDX-License-Identifier: BSD-3-Clause
"""Losses."""

import pytest
import torch
from compare import agrees, gradients_agree, same_error

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
