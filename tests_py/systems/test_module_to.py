# SPDX-License-Identifier: BSD-3-Clause
"""Moving modules: parameters keep their identity, ties and optimisers, as on CUDA."""

import copy

import pytest
import torch
from torch import nn


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.inner = nn.Linear(8, 8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, tokens):
        return self.head(torch.relu(self.inner(self.embed(tokens)))) * self.scale


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Tied()


MOVES = {
    "to": lambda m: m.to("loom"),
    "loom": lambda m: m.loom(),
    "to_device": lambda m: m.to(torch.device("loom", 0)),
    "to_dtype": lambda m: m.to("loom", torch.float64),
}


@pytest.mark.parametrize("move", MOVES)
def test_parameters_keep_their_identity(model, move):
    before = list(model.parameters())
    assert MOVES[move](model) is model
    after = list(model.parameters())
    assert all(a is b for a, b in zip(before, after, strict=True))
    assert all(p.is_loom and p.is_leaf and p.requires_grad for p in after)
    assert model.scale.is_loom


@pytest.mark.parametrize("move", MOVES)
def test_tied_weights_stay_tied(model, move):
    MOVES[move](model)
    assert model.head.weight is model.embed.weight
    with torch.no_grad():
        model.embed.weight.fill_(3)
    assert model.head.weight.cpu().eq(3).all()


def test_there_and_back_again(model):
    values = [p.detach().clone() for p in model.parameters()]
    before = list(model.parameters())
    model.to("loom").to("loom:1").cpu()
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(values, model.parameters(), strict=True))
    assert model.head.weight is model.embed.weight


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_an_optimizer_made_before_the_move_still_works(model, name):
    reference = copy.deepcopy(model)
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.1)
    reference_optimizer = getattr(torch.optim, name)(reference.parameters(), lr=0.1)
    model.to("loom")
    tokens, targets = torch.randint(11, (2, 16), generator=torch.Generator().manual_seed(1))
    for _ in range(3):
        for m, o in ((model, optimizer), (reference, reference_optimizer)):
            device = m.embed.weight.device
            o.zero_grad()
            nn.functional.cross_entropy(m(tokens.to(device)), targets.to(device)).backward()
            o.step()
    for mine, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine.detach().cpu(), theirs.detach(), rtol=1e-4, atol=1e-5)


def test_gradients_move_along(model):
    model(torch.tensor([1, 2])).sum().backward()
    gradient = model.embed.weight.grad.clone()
    model.to("loom")
    assert model.embed.weight.grad.is_loom
    torch.testing.assert_close(model.embed.weight.grad.cpu(), gradient)


def test_deepcopy_keeps_ties_and_shares_nothing(model):
    model.to("loom")
    twin = copy.deepcopy(model)
    assert twin.head.weight is twin.embed.weight
    assert twin.embed.weight.is_loom
    with torch.no_grad():
        twin.embed.weight.zero_()
    assert model.embed.weight.cpu().ne(0).any()


def test_state_dict_loads_across_devices(model):
    state = {name: value + 1 for name, value in model.state_dict().items()}
    model.to("loom")
    model.load_state_dict(state)
    assert torch.equal(model.inner.bias.detach().cpu(), state["inner.bias"])
    other = Tied()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.inner.bias, state["inner.bias"])


def test_to_empty_and_meta():
    with torch.device("meta"):
        model = Tied()
    model.to_empty(device="loom")
    assert all(p.is_loom for p in model.parameters())
    assert model.inner(torch.ones(1, 8, device="loom")).shape == (1, 8)


def test_modules_are_made_on_the_default_device():
    with torch.device("loom:1"):
        model = Tied()
    assert model.embed.weight.device == torch.device("loom", 1)
    assert torch.ones(2).device == torch.device("cpu")


def test_recurrent_networks_move():
    torch.manual_seed(0)
    network = nn.LSTM(4, 5, num_layers=2, batch_first=True)
    x = torch.randn(3, 7, 4)
    expected, (hidden, _) = network(x)
    network.to("loom")
    result, (loom_hidden, _) = network(x.to("loom"))
    torch.testing.assert_close(result.cpu(), expected)
    torch.testing.assert_close(loom_hidden.cpu(), hidden)


def test_module_loom_takes_a_device_index(model):
    assert model.loom(1).embed.weight.device == torch.device("loom", 1)
