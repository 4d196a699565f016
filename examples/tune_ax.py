# SPDX-License-Identifier: BSD-3-Clause
"""Ax: Bayesian search for a learning rate and a width of a model that trains on loom.

pip install 'torch-loom[examples]'
python examples/tune_ax.py
"""

import torch
from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig
from torch import nn


def problem(count=256):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 8, generator=generator)
    return x, (x[:, :1] * x[:, 1:2] > 0).float()


def train(lr, width, epochs=5, device=None):
    """The loss of one trial after some epochs, a tensor on the accelerator."""
    torch.manual_seed(0)
    device = device or torch.accelerator.current_accelerator()
    x, y = (tensor.to(device) for tensor in problem())
    model = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(epochs):
        for batch, target in zip(x.split(64), y.split(64), strict=True):
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(model(batch), target)
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        return nn.functional.binary_cross_entropy_with_logits(model(x), y)


def search(trials=6, epochs=5):
    """Run some trials, the later ones where a Gaussian process expects the most."""
    client = Client(random_seed=0)
    client.configure_experiment(
        parameters=[
            RangeParameterConfig(
                name="lr", bounds=(1e-4, 1e-1), parameter_type="float", scaling="log"
            ),
            ChoiceParameterConfig(
                name="width", values=[8, 16, 32], parameter_type="int", is_ordered=True
            ),
        ]
    )
    client.configure_optimization(objective="-loss")
    client.configure_generation_strategy(
        method="fast", initialization_budget=3, allow_exceeding_initialization_budget=True
    )
    for _ in range(trials):
        for index, parameters in client.get_next_trials(max_trials=1).items():
            loss = train(**parameters, epochs=epochs)
            client.complete_trial(trial_index=index, raw_data={"loss": loss.item()})
    return client


if __name__ == "__main__":
    parameters, prediction, trial, _ = search().get_best_parameterization()
    print("best, trial", trial, parameters, prediction)
