# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of graphs have in common."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

DEVICE = "loom"


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Each test of a module that imports this ends with no capture and no error under way."""
    yield
    assert not torch.loom.is_current_stream_capturing()
    torch.accelerator.synchronize()


def capture(function, **kwargs):
    """Capture a call on a stream of its own; return the graph and what the call returned."""
    graph = torch.loom.Graph()
    with torch.loom.graph(graph, **kwargs):
        result = function()
    return graph, result


def make_mlp(width=32, dropout=0.0):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(16, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 8)
    ).to(DEVICE)


def assert_same(left, right):
    torch.testing.assert_close(left, right, rtol=0, atol=0)
