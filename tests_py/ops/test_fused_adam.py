# SPDX-License-Identifier: BSD-3-Clause
"""Steps of Adam and AdamW with fused=True, against those of cpu in float64."""

import itertools

import pytest
import torch

SHAPES = ((), (1,), (15,), (64, 33), (70_000,), (3, 70_001))


def parameters(device, dtype):
    generator = torch.Generator().manual_seed(1)
    made = []
    for shape in SHAPES:
        parameter = torch.nn.Parameter(torch.randn(shape, generator=generator).to(device, dtype))
        parameter.grad = torch.randn(shape, generator=generator).to(device, dtype)
        made.append(parameter)
    return made


@pytest.mark.parametrize(
    ("kind", "weight_decay", "maximize", "amsgrad"),
    list(
        itertools.product(
            (torch.optim.Adam, torch.optim.AdamW), (0.0, 0.1), (False, True), (False, True)
        )
    ),
)
def test_three_steps(kind, weight_decay, maximize, amsgrad):
    results = []
    for device, dtype in (("cpu", torch.float64), ("loom", torch.float32)):
        made = parameters(device, dtype)
        optimizer = kind(
            made,
            lr=0.01,
            betas=(0.8, 0.999),
            weight_decay=weight_decay,
            maximize=maximize,
            amsgrad=amsgrad,
            fused=True,
        )
        for step in range(3):
            optimizer.step()
            for parameter in made:
                parameter.grad.mul_(-0.5 if step else 2.0)
        state = [optimizer.state[parameter] for parameter in made]
        last = [
            *(parameter.detach() for parameter in made),
            *(one["exp_avg"] for one in state),
            *(one["exp_avg_sq"] for one in state),
        ]
        results.append([tensor.cpu().double() for tensor in last])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=2e-5, atol=1e-6)


def test_a_learning_rate_of_the_device_and_permuted_parameters():
    results = []
    for device in ("cpu", "loom"):
        parameter = torch.nn.Parameter(torch.arange(12.0).view(3, 4).t().to(device))
        parameter.grad = torch.ones_like(parameter)
        optimizer = torch.optim.AdamW(
            [parameter], lr=torch.tensor(0.5, device=device), weight_decay=0.1, fused=True
        )
        optimizer.step()
        results.append(parameter.detach().cpu())
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_infinite_parameters_stay_what_they_are(kind):
    parameter = torch.nn.Parameter(torch.tensor([-float("inf"), 1.0], device="loom"))
    parameter.grad = torch.zeros_like(parameter)
    optimizer = kind([parameter], weight_decay=0.0, fused=True)
    optimizer.step()
    assert parameter.tolist() == [-float("inf"), 1.0]
    assert optimizer.state[parameter]["exp_avg"].tolist() == [0.0, 0.0]


def test_without_momentum_the_mean_is_the_gradient():
    parameter = torch.nn.Parameter(torch.ones(20, device="loom"))
    optimizer = torch.optim.Adam([parameter], betas=(0.0, 0.99), fused=True)
    for gradient in (1.0, 1e-9):
        parameter.grad = torch.full_like(parameter, gradient)
        optimizer.step()
    assert torch.equal(optimizer.state[parameter]["exp_avg"], parameter.grad)


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_lazy_clones_keep_their_values(kind):
    parameter = torch.nn.Parameter(torch.ones(100, device="loom"))
    clone = torch._lazy_clone(parameter.detach())
    parameter.grad = torch.ones_like(parameter)
    kind([parameter], lr=0.1, fused=True).step()
    assert clone.eq(1).all()
    assert parameter.lt(1).all()


def test_strides_of_single_elements_do_not_count():
    """A gradient may have other strides where its size is 1: each step is that of a dense one."""
    results = []
    for strides in ((8, 1, 1, 1), (8, 1, 8, 8)):
        parameter = torch.nn.Parameter(torch.arange(64.0, device="loom").view(8, 8, 1, 1))
        gradient = torch.linspace(-1, 1, 64, device="loom").view(8, 8, 1, 1)
        parameter.grad = gradient.as_strided((8, 8, 1, 1), strides)
        torch.optim.AdamW([parameter], fused=True).step()
        results.append(parameter.detach())
    assert torch.equal(*results)


def test_lists_of_other_lengths_are_refused():
    one = [torch.ones(3, device="loom")]
    settings = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8}
    settings |= {"amsgrad": False, "maximize": False}
    with pytest.raises(RuntimeError, match="expected lists of one length, got 1 parameters and 0"):
        torch._fused_adam_(one, one, one, one, [], [], **settings)
