# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of profiles share: a model to profile, and ways to find things in a profile."""

import torch
from torch import nn
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity

BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]


def model_and_input(device="loom"):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    return model, torch.randn(32, 64).to(device)


def on_device(prof):
    """What ran on loom, without the spans of record_function."""
    return [
        e
        for e in prof.events()
        if e.device_type == DeviceType.PrivateUse1 and not e.is_user_annotation
    ]


def average(prof, key, device_type=DeviceType.CPU):
    (found,) = [e for e in prof.key_averages() if e.key == key and e.device_type == device_type]
    return found
