# SPDX-License-Identifier: BSD-3-Clause
"""Mixed precision: autocast's lists and the gradient scaler."""

import pytest
import torch
from torch import nn


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_products_run_in_lower_precision(dtype):
    a = torch.randn(8, 8, device="loom")
    with torch.autocast("loom", dtype=dtype):
        assert torch.is_autocast_enabled("loom")
        assert torch.get_autocast_dtype("loom") == dtype
        c = a @ a
        assert c.dtype == dtype
        assert nn.functional.linear(a, a).dtype == dtype
        assert nn.functional.softmax(c, -1).dtype == torch.float32
        assert (c + a).dtype == torch.float32
    assert (a @ a).dtype == torch.float32
    torch.testing.assert_close(c.float().cpu(), a.cpu() @ a.cpu(), rtol=0.1, atol=0.2)


def test_other_data_types_are_refused():
    with pytest.warns(UserWarning, match="loom"), torch.autocast("loom", dtype=torch.float64):
        assert not torch.is_autocast_enabled("loom")


def test_autocast_of_the_cpu_leaves_loom_alone():
    a = torch.randn(4, 4, device="loom")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (a @ a).dtype == torch.float32


def test_scaled_training_learns():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)).to("loom")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("loom", init_scale=2.0**10)
    x = torch.randn(64, 8, device="loom")
    y = x.sum(1, keepdim=True)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        with torch.autocast("loom", dtype=torch.float16):
            loss = nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]


def test_the_scaler_skips_infinite_gradients():
    weight = nn.Parameter(torch.ones(3, device="loom"))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("loom", init_scale=4.0, growth_interval=1)
    scaler.scale((weight * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.detach().cpu().tolist() == [1, 1, 1]
    assert scaler.get_scale() == 2.0
