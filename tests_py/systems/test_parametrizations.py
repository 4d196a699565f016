# SPDX-License-Identifier: BSD-3-Clause
"""Parametrizations: constrained weights, moved, trained, saved and removed."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

LOOM = "loom"


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


class Symmetric(nn.Module):
    """A square matrix by its upper triangle."""

    def forward(self, x):
        return x.triu() + x.triu(1).mT

    def right_inverse(self, x):
        return x.triu()


class Exponential(nn.Module):
    def forward(self, x):
        return x.matrix_exp()


class Rank(nn.Module):
    """A matrix as the product of two parameters."""

    def forward(self, left, right):
        return left @ right

    def right_inverse(self, x):
        u, s, v = torch.linalg.svd(x, full_matrices=False)
        return u[:, :2] * s[:2], v[:2]


KINDS = {
    "weight norm": parametrizations.weight_norm,
    "spectral norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
    "cayley": lambda m: parametrizations.orthogonal(m, orthogonal_map="cayley"),
    "householder": lambda m: parametrizations.orthogonal(m, orthogonal_map="householder"),
    "symmetric": lambda m: parametrize.register_parametrization(m, "weight", Symmetric()),
    "two parameters": lambda m: parametrize.register_parametrization(m, "weight", Rank()),
}


def train(module, x, steps=3):
    """The results of some steps and the state after them, on the host."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    results = []
    for _ in range(steps):
        optimizer.zero_grad()
        result = module(x)
        assert result.device == x.device
        result.square().mean().backward()
        optimizer.step()
        results.append(result.detach().cpu())
    return results, {name: value.cpu() for name, value in module.state_dict().items()}


@pytest.mark.parametrize("kind", KINDS)
def test_parametrised_modules_train_as_on_cpu(kind):
    module = KINDS[kind](nn.Linear(5, 5))
    x = torch.randn(7, 5)
    mine = copy.deepcopy(module).to(LOOM)
    assert mine.weight.is_loom
    assert {t.device.type for t in mine.state_dict().values()} == {LOOM}
    result, expected = train(mine, x.to(LOOM)), train(module, x)
    torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["weight norm", "spectral norm", "orthogonal", "symmetric"])
def test_modules_are_parametrised_on_loom(kind):
    linear = nn.Linear(5, 5).to(LOOM)
    module = KINDS[kind](linear)
    assert all(p.is_loom for p in module.parameters())
    before = module.weight.detach().clone()
    results, _ = train(module, torch.randn(7, 5, device=LOOM))
    assert not torch.equal(module.weight, before)
    assert torch.stack(results).isfinite().all()


@pytest.mark.parametrize("map_name", ["matrix_exp", "cayley", "householder"])
def test_orthogonal_weights_stay_orthogonal(map_name):
    module = parametrizations.orthogonal(nn.Linear(6, 4).to(LOOM), orthogonal_map=map_name)
    train(module, torch.randn(7, 6, device=LOOM), steps=10)
    product = module.weight.detach() @ module.weight.detach().T
    torch.testing.assert_close(product, torch.ones(4, device=LOOM).diag(), rtol=0, atol=1e-5)


def test_spectral_norms_are_one():
    module = parametrizations.spectral_norm(nn.Linear(8, 6).to(LOOM), n_power_iterations=20)
    for _ in range(5):
        module.weight  # noqa: B018  # each look in training mode is a step of the iteration
    assert torch.linalg.matrix_norm(module.weight, 2).item() == pytest.approx(1, abs=1e-3)


def test_a_chain_of_parametrisations():
    module = nn.Linear(4, 4).to(LOOM)
    skew = nn.Module()
    skew.forward = lambda x: x.triu(1) - x.triu(1).mT
    parametrize.register_parametrization(module, "weight", skew)
    parametrize.register_parametrization(module, "weight", Exponential())
    product = module.weight @ module.weight.T
    torch.testing.assert_close(product, torch.ones(4, device=LOOM).diag(), rtol=0, atol=1e-5)
    assert module.weight.det().item() == pytest.approx(1, abs=1e-4)


def test_assigning_goes_through_the_right_inverse():
    module = KINDS["symmetric"](nn.Linear(3, 3).to(LOOM))
    target = torch.randn(3, 3, device=LOOM)
    target = target + target.T
    module.weight = target
    torch.testing.assert_close(module.weight.detach(), target)
    assert module.parametrizations.weight.original.tril(-1).eq(0).all()


def test_the_weight_is_computed_once_while_cached():
    calls = []

    class Counted(Symmetric):
        def forward(self, x):
            calls.append(x.device.type)
            return super().forward(x)

    module = nn.RNNCell(4, 4).to(LOOM)
    parametrize.register_parametrization(module, "weight_hh", Counted())
    calls.clear()
    x = torch.randn(2, 4, device=LOOM)
    with parametrize.cached():
        state = torch.zeros(2, 4, device=LOOM)
        for _ in range(5):
            state = module(x, state)
    assert calls == [LOOM]
    state.sum().backward()
    assert module.parametrizations.weight_hh.original.grad.is_loom


@pytest.mark.parametrize("kind", ["weight norm", "orthogonal", "two parameters"])
def test_states_are_saved_and_loaded_across_devices(kind, tmp_path):
    module = KINDS[kind](nn.Linear(5, 5)).to(LOOM)
    torch.save(module.state_dict(), tmp_path / "state.pt")
    other = KINDS[kind](nn.Linear(5, 5))
    other.load_state_dict(torch.load(tmp_path / "state.pt", map_location="cpu"))
    torch.testing.assert_close(module.weight.cpu(), other.weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("keep", [True, False])
def test_parametrisations_are_removed(keep):
    module = KINDS["symmetric"](nn.Linear(4, 4)).to(LOOM)
    constrained = module.weight.detach().clone()
    original = module.parametrizations.weight.original
    parametrize.remove_parametrizations(module, "weight", leave_parametrized=keep)
    assert type(module) is nn.Linear
    assert module.weight is original
    assert module.weight.is_loom
    assert torch.equal(module.weight, constrained if keep else constrained.triu())
