# SPDX-License-Identifier: BSD-3-Clause
"""The cost of a small call while loom has the name of CUDA."""

import time

import pytest
import torch

import torch_loom

pytestmark = pytest.mark.usefixtures("loom_names")

_LIMIT = 1.3
_CALLS = 500
_ROUNDS = 12

CALLS = {
    "add": lambda x, device: x + x,
    "relu": lambda x, device: torch.relu(x),
    "empty": lambda x, device: torch.empty(4, device=device),
    "empty_like": lambda x, device: torch.empty_like(x),
    "to itself": lambda x, device: x.to(device),
    "device of a string": lambda x, device: torch.device(device),
    "device of a tensor": lambda x, device: x.device,
    "type of a device": lambda x, device: x.device.type,
    "shape": lambda x, device: x.shape,
    "is_cuda": lambda x, device: x.is_cuda,
    "current stream": lambda x, device: getattr(torch, device).current_stream(),
    "event": lambda x, device: getattr(torch, device).Event().record(),
}


def _nanoseconds(call, device):
    x = torch.ones(4, device=device)
    begin = time.perf_counter_ns()
    for _ in range(_CALLS):
        call(x, device)
    elapsed = time.perf_counter_ns() - begin
    torch.loom.synchronize()
    return elapsed / _CALLS


@pytest.mark.parametrize("name", CALLS)
def test_a_small_call_costs_what_it_did(name):
    off, on = [], []
    for _ in range(_ROUNDS):  # one beside the other, so that both have the machine's good moments
        off.append(_nanoseconds(CALLS[name], "loom"))
        with torch_loom.as_cuda():
            on.append(_nanoseconds(CALLS[name], "cuda"))
    assert min(on) <= _LIMIT * min(off), f"{min(off):.0f} ns became {min(on):.0f} ns"
