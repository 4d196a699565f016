# SPDX-License-Identifier: BSD-3-Clause
"""Pruning: masks on weights, made permanent, and sparsifiers that train with them."""

import io

import pytest
import torch
from torch import nn
from torch.ao.pruning import WeightNormSparsifier
from torch.nn.utils import prune

DEVICES = ("cpu", "loom")


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def train(model: nn.Module, device: str, steps: int = 3) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.linspace(-1, 1, 48).view(6, 8).to(device)
    losses = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(x), torch.arange(6, device=device) % 4)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


METHODS = {
    "l1": lambda layer: prune.l1_unstructured(layer, "weight", amount=0.3),
    "rows": lambda layer: prune.ln_structured(layer, "weight", amount=0.5, n=2, dim=0),
    "custom": lambda layer: prune.custom_from_mask(
        layer, "weight", torch.ones_like(layer.weight).tril()
    ),
    "twice": lambda layer: prune.l1_unstructured(
        prune.ln_structured(layer, "weight", amount=0.5, n=2, dim=1), "weight", amount=5
    ),
}


@pytest.mark.parametrize("method", METHODS)
def test_pruned_layers_train_and_keep_their_zeros(method: str) -> None:
    losses, weights = {}, {}
    for device in DEVICES:
        model = network().to(device)
        METHODS[method](model[0])
        assert model[0].weight_mask.device.type == device
        losses[device] = train(model, device)
        mask = model[0].weight_mask.clone()
        prune.remove(model[0], "weight")
        assert isinstance(model[0].weight, nn.Parameter)
        assert model[0].weight[mask == 0].count_nonzero().item() == 0
        weights[device] = model[0].weight.detach().cpu()
    torch.testing.assert_close(losses["loom"], losses["cpu"])
    torch.testing.assert_close(weights["loom"], weights["cpu"])


def test_global_pruning() -> None:
    masks = {}
    for device in DEVICES:
        model = network().to(device)
        layers = [(model[0], "weight"), (model[2], "weight")]
        prune.global_unstructured(layers, pruning_method=prune.L1Unstructured, amount=0.4)
        masks[device] = [layer.weight_mask.cpu() for layer, _ in layers]
    assert all(map(torch.equal, masks["loom"], masks["cpu"]))


def test_random_pruning_takes_its_share() -> None:
    layer = prune.random_unstructured(nn.Linear(8, 16).to("loom"), "weight", amount=0.25)
    assert layer.weight_mask.device.type == "loom"
    assert (layer.weight_mask == 0).sum().item() == 32


def test_a_pruned_model_moves_and_is_saved() -> None:
    model = network()
    prune.l1_unstructured(model[0], "weight", amount=0.3)
    x = torch.ones(2, 8)
    expected, mask = model(x), model[0].weight_mask.clone()
    model.to("loom")
    torch.testing.assert_close(model(x.to("loom")).cpu(), expected)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    state = torch.load(file, map_location="cpu")
    assert torch.equal(state["0.weight_mask"], mask)


def test_weight_norm_sparsifier_trains_and_squashes() -> None:
    losses, weights = {}, {}
    for device in DEVICES:
        model = network().to(device)
        sparsifier = WeightNormSparsifier(
            sparsity_level=0.5, sparse_block_shape=(1, 4), zeros_per_block=4
        )
        sparsifier.prepare(model, [{"tensor_fqn": "0.weight"}, {"tensor_fqn": "2.weight"}])
        losses[device] = []
        for _ in range(3):
            losses[device] += train(model, device, steps=1)
            sparsifier.step()
        sparsifier.squash_mask()
        weights[device] = [model[i].weight.detach() for i in (0, 2)]
        assert {weight.device.type for weight in weights[device]} == {device}
        assert all((w == 0).float().mean().item() == 0.5 for w in weights[device])
    torch.testing.assert_close(losses["loom"], losses["cpu"])
    for mine, theirs in zip(weights["loom"], weights["cpu"], strict=True):
        torch.testing.assert_close(mine.cpu(), theirs)
