# SPDX-License-Identifier: BSD-3-Clause
"""What a product or convolution reads is there until what follows has joined its command."""

import pytest
import torch
from compile_support import LOOM, assert_equal
from torch import nn

pytestmark = pytest.mark.thorough


def commands_behind_work(call):
    """The names of the call's commands, submitted while the device has something else to do."""
    work = torch.randn(1024, 1024, device=LOOM)
    torch.loom.synchronize()
    with torch.profiler.profile() as profile:
        work @ work
        call()
        torch.loom.synchronize()
    on_device = torch.autograd.DeviceType.PrivateUse1
    return [e.name for e in profile.events() if e.device_type == on_device][1:]


def test_norms_join_convolutions_whose_input_is_read_no_more():
    layers = [
        layer
        for _ in range(3)
        for layer in (nn.Conv2d(256, 256, 1, bias=False), nn.BatchNorm2d(256), nn.ReLU())
    ]
    model = nn.Sequential(*layers).eval()
    x = torch.randn(1, 256, 32, 32)
    with torch.no_grad():
        expected = model(x)
        compiled, on_loom = torch.compile(model.to(LOOM), fullgraph=True), x.to(LOOM)
        for _ in range(3):
            actual = compiled(on_loom)
        assert_equal(actual, expected, atol=1e-4, rtol=1e-4)
        commands = commands_behind_work(lambda: compiled(on_loom))
    assert len(commands) == 3, commands
    for command in commands:
        assert command.startswith("fused: convolution, native_batch_norm, loom_fused_"), commands


def test_memory_is_given_to_the_next_product():
    model = nn.Sequential(*(nn.Conv2d(256, 256, 1) for _ in range(6))).eval().to(LOOM)
    x = torch.randn(1, 256, 64, 64, device=LOOM)
    one = x.numel() * x.element_size()
    compiled = torch.compile(model, fullgraph=True)
    with torch.no_grad():
        compiled(x)
        torch.loom.synchronize()
        torch.loom.reset_peak_memory_stats()
        before = torch.loom.memory_allocated()
        compiled(x)
        torch.loom.synchronize()
    assert torch.loom.max_memory_allocated() - before <= 2.5 * one
