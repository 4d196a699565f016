# SPDX-License-Identifier: BSD-3-Clause
"""Compiled models train on loom as eager ones on cpu."""

import pytest
import torch

from models.training import losses
from models.zoo import OPTIMIZERS, ZOO

pytestmark = pytest.mark.thorough

SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ZOO if name not in ("mlp", "gpt")]


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("name", ["mlp", "gpt", *SLOW])
def test_losses_are_those_of_cpu(name: str, mode: str) -> None:
    def compiled(model: torch.nn.Module) -> torch.nn.Module:
        return torch.compile(model, mode=mode, dynamic=False)

    # In float64, as training multiplies rounding errors: what differs there is no rounding.
    task, optimizer = ZOO[name], OPTIMIZERS["adamw"]
    actual = losses(task, optimizer, "loom", torch.float64, wrap=compiled)
    expected = losses(task, optimizer, "cpu", torch.float64)
    torch.testing.assert_close(actual, expected, rtol=1e-7, atol=1e-9)
