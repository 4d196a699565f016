# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile: forward, backward and optimiser, steps that are queued one after the other."""

import copy

import pytest
import torch
from compile_support import assert_equal, generated_kernels
from torch import nn
from torch.nn import functional as F  # noqa: N812

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


class Perceptron(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Linear(20, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 64), nn.Tanh()
        )


class Image(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3),
            nn.BatchNorm2d(32),
            nn.SiLU(),
        )

    def forward(self, x):
        return self.body(x).mean((2, 3))


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0, batch_first=True)

    def forward(self, x):
        return self.layer(self.embedding(x)).mean(1)


MODELS = {
    "perceptron": (Perceptron, torch.randn(32, 20)),
    "convolutions_and_batch_norm": (Image, torch.randn(8, 3, 20, 20)),
    "transformer_layer": (Text, torch.randint(50, (8, 12))),
}


def train(model, x, steps, *, forward=None, make_optimizer=None, compiled_step=False):
    """Losses of some steps; the host looks at none before the last."""
    forward = model if forward is None else forward
    make = make_optimizer or (lambda parameters: torch.optim.SGD(parameters, 0.05, momentum=0.9))
    optimizer = make(model.parameters())
    step = torch.compile(optimizer.step) if compiled_step else optimizer.step
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = forward(x).square().mean()
        loss.backward()
        step()
        losses.append(loss.detach())
    return torch.stack(losses)


@pytest.mark.parametrize("name", MODELS)
def test_training_has_the_losses_and_parameters_of_eager_cpu(name):
    make, x = MODELS[name]
    on_cpu = make()
    on_loom = copy.deepcopy(on_cpu).to("loom")
    expected = train(on_cpu, x, 8)
    actual = train(on_loom, x.to("loom"), 8, forward=torch.compile(on_loom, fullgraph=True))
    assert_equal(actual, expected, **CLOSE)
    assert_equal(dict(on_loom.state_dict()), dict(on_cpu.state_dict()), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda p: torch.optim.AdamW(p, 1e-2),
        lambda p: torch.optim.AdamW(p, 1e-2, foreach=False),
        lambda p: torch.optim.Adam(p, 1e-2, amsgrad=True),
        lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9, nesterov=True),
        lambda p: torch.optim.RMSprop(p, 1e-2),
    ],
    ids=["adamw", "adamw_one_by_one", "adam_amsgrad", "sgd", "rmsprop"],
)
def test_compiled_optimizer_takes_many_queued_steps(make_optimizer):
    on_cpu = Perceptron()
    on_loom = copy.deepcopy(on_cpu).to("loom")
    x = torch.randn(16, 20)
    expected = train(on_cpu, x, 40, make_optimizer=make_optimizer)
    actual = train(on_loom, x.to("loom"), 40, make_optimizer=make_optimizer, compiled_step=True)
    assert_equal(actual, expected, rtol=1e-3, atol=1e-4)
    assert_equal(dict(on_loom.state_dict()), dict(on_cpu.state_dict()), rtol=1e-3, atol=1e-3)


def test_autocast_is_compiled_as_it_is_eager():
    model, x = Perceptron().to("loom"), torch.randn(32, 20, device="loom")

    def forward(x):
        with torch.autocast("loom"):
            return model(x)

    torch._inductor.metrics.reset()
    actual = torch.compile(forward, fullgraph=True)(x)
    assert generated_kernels() > 0
    expected = forward(x)
    assert actual.dtype == expected.dtype
    assert_equal(actual, expected, rtol=5e-2, atol=5e-2)


def test_checkpointed_activations_are_computed_again():
    from torch.utils.checkpoint import checkpoint

    model, x = Perceptron(), torch.randn(9, 20)
    on_loom = copy.deepcopy(model).to("loom")

    def forward(model, x):
        return checkpoint(model, x, use_reentrant=False).square().sum()

    forward(model, x).backward()
    torch.compile(forward)(on_loom, x.to("loom")).backward()
    for actual, expected in zip(on_loom.parameters(), model.parameters(), strict=True):
        assert_equal(actual.grad, expected.grad, **CLOSE)


def test_gradients_of_functions_by_torch_func():
    def gradient(x):
        return torch.func.vmap(torch.func.grad(lambda row: F.softplus(row).prod()))(x)

    x = torch.randn(6, 5)
    assert_equal(torch.compile(gradient)(x.to("loom")), gradient(x))
