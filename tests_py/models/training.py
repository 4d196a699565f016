# SPDX-License-Identifier: BSD-3-Clause
"""Steps of training of the zoo's models."""

import contextlib
from collections.abc import Callable

import torch

from .zoo import Task

STEPS = 20


def batches(task: Task, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(1)
    return [task.batch() for _ in range(count)]


def step(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, task: Task, batch, autocast: bool
) -> torch.Tensor:
    inputs, targets = batch
    context = torch.autocast("loom", torch.bfloat16) if autocast else contextlib.nullcontext()
    with context:
        loss = task.loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def losses(
    task: Task,
    optimizer: Callable[..., torch.optim.Optimizer],
    device: str,
    dtype: torch.dtype = torch.float32,
    noise: int = 0,
    wrap: Callable[[torch.nn.Module], torch.nn.Module] = lambda model: model,
) -> list[float]:
    """Losses of some steps.

    `noise` seeds changes of the parameters by about their rounding; what `wrap` makes of the model
    is called.
    """
    torch.manual_seed(0)
    model = task.model().to(device, dtype)
    if noise:
        torch.manual_seed(noise)
        for parameter in model.parameters():
            parameter.data.mul_(1 + 1e-6 * torch.randn_like(parameter))
    made, called = optimizer(model.parameters()), wrap(model)

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(device, dtype if tensor.is_floating_point() else None)

    return torch.stack(
        [
            step(called, made, task, [moved(t) for t in batch], autocast=False)
            for batch in batches(task, STEPS)
        ]
    ).tolist()
