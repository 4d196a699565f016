# SPDX-License-Identifier: BSD-3-Clause
"""A small training, by ranks on loom and by one process on the cpu that has all ranks' data."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

STEPS = 3
BATCH = 4


def make_model(norm: bool = False) -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU()]
    if norm:
        layers.insert(1, nn.BatchNorm1d(32))
    return nn.Sequential(*layers, nn.Linear(32, 4))


def data(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(STEPS, BATCH, 16, generator=generator)
    return x, torch.randn(STEPS, BATCH, 4, generator=generator)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()


def alone(norm: bool = False, optimizer: str = "SGD", lr: float = 0.05) -> dict[str, torch.Tensor]:
    """Weights of one process on the cpu that has all ranks' data."""
    model = make_model(norm)
    update = getattr(torch.optim, optimizer)(model.parameters(), lr=lr)
    all_data = [data(rank) for rank in range(dist.get_world_size())]
    for i in range(STEPS):
        x = torch.cat([d[0][i] for d in all_data])
        step(model, update, x, torch.cat([d[1][i] for d in all_data]))
    return {name: value.detach() for name, value in model.state_dict().items()}


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    x, y = (part.to("loom") for part in data(dist.get_rank()))
    for i in range(STEPS):
        step(model, optimizer, x[i], y[i])


def check(model: nn.Module, expected: dict[str, torch.Tensor]) -> None:
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value.cpu(), expected[name], rtol=2e-4, atol=2e-5)
