# SPDX-License-Identifier: BSD-3-Clause
"""Graphed callables: modules and functions that train and infer as the eager ones."""

import copy

import pytest
import torch
from torch import nn

import torch_loom
from support.graphs import DEVICE, assert_same, make_mlp, nothing_left  # noqa: F401


def assert_trains_alike(graphed, eager, batches, accumulate=1, set_to_none=True):
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (graphed, eager)]
    for batch in batches:
        for model, optimizer in zip((graphed, eager), optimizers, strict=True):
            optimizer.zero_grad(set_to_none=set_to_none)
            for part in range(accumulate):
                model(batch + part).square().sum().backward()
            optimizer.step()
        for ours, theirs in zip(graphed.parameters(), eager.parameters(), strict=True):
            assert_same(ours.grad, theirs.grad)
            assert_same(ours, theirs)


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_graphed_module_trains_as_the_eager_one(accumulate, set_to_none):
    model = make_mlp()
    eager = copy.deepcopy(model)
    graphed = torch_loom.make_graphed_callables(model, (torch.randn(4, 16, device=DEVICE),))
    assert graphed is model
    batches = [torch.randn(4, 16, device=DEVICE) for _ in range(4)]
    assert_trains_alike(graphed, eager, batches, accumulate, set_to_none)


def test_a_part_of_a_network_is_graphed():
    body, head = make_mlp(), nn.Linear(8, 3).to(DEVICE)
    first = nn.Linear(16, 16).to(DEVICE)
    eager = copy.deepcopy(nn.Sequential(first, body, head))
    sample = torch.randn(4, 16, device=DEVICE, requires_grad=True)
    graphed = nn.Sequential(first, torch.loom.make_graphed_callables(body, (sample,)), head)
    assert_trains_alike(graphed, eager, [torch.randn(4, 16, device=DEVICE) for _ in range(3)])


def test_several_callables_share_a_pool():
    parts = (make_mlp(), nn.Linear(8, 8).to(DEVICE))
    eager = copy.deepcopy(nn.Sequential(*parts))
    samples = (
        (torch.randn(4, 16, device=DEVICE),),
        (torch.randn(4, 8, device=DEVICE, requires_grad=True),),
    )
    graphed = nn.Sequential(*torch.loom.make_graphed_callables(parts, samples))
    assert_trains_alike(graphed, eager, [torch.randn(4, 16, device=DEVICE) for _ in range(3)])


def test_a_graphed_function_takes_and_returns_trees_and_integers():
    def function(pair, scale):
        total = pair["a"] * scale + pair["b"]
        return {"total": total, "best": total.argmax()}

    sample = {"a": torch.ones(3, device=DEVICE), "b": torch.ones(3, device=DEVICE)}
    scale = torch.ones(3, device=DEVICE, requires_grad=True)
    graphed = torch.loom.make_graphed_callables(function, (sample, scale))
    real = {"a": torch.tensor([1.0, 5, 2], device=DEVICE), "b": torch.zeros(3, device=DEVICE)}
    factor = torch.full((3,), 2.0, device=DEVICE, requires_grad=True)
    result = graphed(real, factor)
    assert result["total"].tolist() == [2, 10, 4]
    assert result["best"].item() == 1
    assert not result["best"].requires_grad
    result["total"].sum().backward()
    assert factor.grad.tolist() == [1, 5, 2]


def test_a_graphed_module_drops_out_anew_and_runs_eagerly_in_evaluation():
    model = make_mlp(dropout=0.5)
    x = torch.ones(4, 16, device=DEVICE)
    eager = copy.deepcopy(model).eval()
    torch.loom.make_graphed_callables(model, (x,))
    first, second = model(x).detach().cpu(), model(x).detach().cpu()
    assert not torch.equal(first, second)
    model.eval()
    assert_same(model(x), eager(x))


def test_graphed_callables_refuse_what_they_cannot_do():
    x = torch.ones(4, 16, device=DEVICE)
    hooked = make_mlp()
    hooked.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="without hooks"):
        torch.loom.make_graphed_callables(hooked, (x,))
    with pytest.raises(TypeError, match="tensors only"):
        torch.loom.make_graphed_callables(torch.add, (x, 1))
    with torch.autocast(DEVICE), pytest.raises(RuntimeError, match="cache_enabled=False"):
        torch.loom.make_graphed_callables(make_mlp(), (x,))
    with pytest.raises(RuntimeError, match="aten::nonzero"):
        torch.loom.make_graphed_callables(torch.nonzero, (x,))
    graphed = torch.loom.make_graphed_callables(make_mlp(), (x,))
    with pytest.raises(ValueError, match=r"shape \(4, 16\), got \(5, 16\)"):
        graphed(torch.ones(5, 16, device=DEVICE))
