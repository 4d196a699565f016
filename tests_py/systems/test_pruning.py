# SPDX-License-Identifier: BSD-3-Clause
"""Pruning: masks by every method, locally and globally, through training and saving."""

import copy

import pytest
import torch
from torch import nn
from torch.ao.pruning import WeightNormSparsifier
from torch.nn.utils import prune

LOOM = "loom"

METHODS = {
    "l1": lambda m: prune.l1_unstructured(m, "weight", amount=0.3),
    "count": lambda m: prune.l1_unstructured(m, "weight", amount=7),
    "rows": lambda m: prune.ln_structured(m, "weight", amount=0.5, n=2, dim=0),
    "columns": lambda m: prune.ln_structured(m, "weight", amount=2, n=float("inf"), dim=1),
    "importance": lambda m: prune.l1_unstructured(
        m, "weight", amount=0.3, importance_scores=m.weight.detach().square().flip(0)
    ),
    "custom": lambda m: prune.custom_from_mask(m, "weight", (m.weight > 0).to(m.weight)),
    "nothing": lambda m: prune.identity(m, "weight"),
}


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(2, 6, 3)
        self.inner = nn.Linear(6, 16)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        return self.out(torch.relu(self.inner(torch.relu(self.convolution(x)).mean((2, 3)))))


@pytest.fixture
def network():
    torch.manual_seed(0)
    return Network()


@pytest.mark.parametrize("layer", ["convolution", "inner"])
@pytest.mark.parametrize("method", METHODS)
def test_the_same_weights_are_pruned_as_on_cpu(network, layer, method):
    mine = copy.deepcopy(network).to(LOOM)
    for model in (network, mine):
        METHODS[method](getattr(model, layer))
    pruned, expected = getattr(mine, layer), getattr(network, layer)
    assert pruned.weight_mask.is_loom
    assert pruned.weight_orig.is_loom
    assert torch.equal(pruned.weight_mask.cpu(), expected.weight_mask)
    assert torch.equal(pruned.weight.detach().cpu(), expected.weight.detach())


@pytest.mark.parametrize("structured", [False, True])
def test_random_pruning_follows_the_seed(structured):
    def mask(seed):
        torch.manual_seed(seed)
        layer = nn.Linear(40, 30).to(LOOM)
        if structured:
            prune.random_structured(layer, "weight", amount=0.4, dim=0)
        else:
            prune.random_unstructured(layer, "weight", amount=0.4)
        assert layer.weight_mask.is_loom
        return layer.weight_mask

    assert mask(1).mean().item() == pytest.approx(0.6)
    assert torch.equal(mask(1), mask(1))
    assert not torch.equal(mask(1), mask(2))


def test_pruning_twice_prunes_what_was_left():
    layer = nn.Linear(20, 10).to(LOOM)
    prune.l1_unstructured(layer, "weight", amount=0.5)
    first = layer.weight_mask.clone()
    prune.ln_structured(layer, "weight", amount=0.5, n=2, dim=0)
    assert isinstance(next(iter(layer._forward_pre_hooks.values())), prune.PruningContainer)
    assert (layer.weight_mask <= first).all()
    assert layer.weight_mask.any(1).sum().item() == 5


def parameters_of(model):
    return [(model.convolution, "weight"), (model.inner, "weight"), (model.out, "weight")]


def test_global_pruning_finds_the_smallest_weights_of_all_layers(network):
    mine = copy.deepcopy(network).to(LOOM)
    for model in (network, mine):
        prune.global_unstructured(
            parameters_of(model), pruning_method=prune.L1Unstructured, amount=0.4
        )
    for (pruned, _), (expected, _) in zip(parameters_of(mine), parameters_of(network), strict=True):
        assert torch.equal(pruned.weight_mask.cpu(), expected.weight_mask)
    kept = sum(layer.weight_mask.sum().item() for layer, _ in parameters_of(mine))
    total = sum(layer.weight_mask.numel() for layer, _ in parameters_of(mine))
    assert kept == total - round(0.4 * total)


def train(model, x, y, steps=5):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().cpu())
    return losses, {name: value.cpu() for name, value in model.state_dict().items()}


def test_pruned_models_train_as_on_cpu(network):
    mine = copy.deepcopy(network).to(LOOM)
    for layer, name in (*parameters_of(network), *parameters_of(mine)):
        prune.l1_unstructured(layer, name, amount=0.4)
    x, y = torch.randn(8, 2, 7, 7), torch.randn(8, 3)
    masked = mine.inner.weight_mask == 0
    before = mine.inner.weight_orig.detach().clone()
    result, expected = train(mine, x.to(LOOM), y.to(LOOM)), train(network, x, y)
    torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-5)
    assert result[0][-1] < result[0][0]
    mine(x.to(LOOM))
    assert mine.inner.weight[masked].eq(0).all()
    assert torch.equal(mine.inner.weight_orig[masked], before[masked])


def test_pruning_is_made_permanent(network):
    network.to(LOOM)
    prune.l1_unstructured(network.inner, "weight", amount=0.4)
    expected = network.inner.weight.detach().clone()
    assert prune.is_pruned(network)
    prune.remove(network.inner, "weight")
    assert not prune.is_pruned(network)
    assert isinstance(network.inner.weight, nn.Parameter)
    assert network.inner.weight.is_loom
    assert torch.equal(network.inner.weight, expected)


def test_masks_are_saved_and_loaded_across_devices(network, tmp_path):
    mine = copy.deepcopy(network).to(LOOM)
    for model in (network, mine):
        prune.l1_unstructured(model.inner, "weight", amount=0.4)
    with torch.no_grad():
        mine.inner.weight_orig.mul_(2)
    torch.save(mine.state_dict(), tmp_path / "pruned.pt")
    network.load_state_dict(torch.load(tmp_path / "pruned.pt", map_location="cpu"))
    x = torch.randn(2, 2, 7, 7)
    torch.testing.assert_close(network(x), mine(x.to(LOOM)).cpu(), rtol=1e-4, atol=1e-5)


class EverySecond(prune.BasePruningMethod):
    """A user's own method."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        mask = default_mask.clone()
        mask.view(-1)[::2] = 0
        return mask


def test_a_method_of_ones_own():
    layer = nn.Linear(4, 3).to(LOOM)
    EverySecond.apply(layer, "bias")
    assert layer.bias_mask.tolist() == [0, 1, 0]
    result = layer(torch.zeros(1, 4, device=LOOM))
    torch.testing.assert_close(result[0], layer.bias_orig * layer.bias_mask)
    result.sum().backward()
    assert layer.bias_orig.grad.tolist() == [0, 1, 0]


def test_a_sparsifier_trains_as_on_cpu(network):
    theirs, mine = copy.deepcopy(network), copy.deepcopy(network).to(LOOM)
    x, y = torch.randn(8, 2, 5, 5), torch.randn(8, 3)
    results = []
    for model, device in ((theirs, "cpu"), (mine, LOOM)):
        sparsifier = WeightNormSparsifier(0.5, sparse_block_shape=(1, 4), zeros_per_block=4)
        sparsifier.prepare(model, [{"tensor_fqn": "inner.weight"}, {"tensor_fqn": "out.weight"}])
        for _ in range(3):
            losses, _ = train(model, x.to(device), y.to(device), steps=1)
            sparsifier.step()
        sparsifier.squash_mask()
        assert (model.out.weight == 0).float().mean().item() == pytest.approx(0.5)
        results.append((losses, model.out.weight.detach().cpu(), model.inner.weight.detach().cpu()))
    torch.testing.assert_close(results[1], results[0])
