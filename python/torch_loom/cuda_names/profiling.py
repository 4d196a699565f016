# SPDX-License-Identifier: BSD-3-Clause
"""The profiler: ``ProfilerActivity.CUDA`` and its columns."""

import functools
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.autograd import profiler, profiler_util
from torch.profiler import ProfilerActivity

from .changes import Changes


def apply(changes: Changes) -> None:
    """Profile loom where a program asks for CUDA, and call it so in tables and events."""
    known_profile: Any = profiler.profile.__init__
    known_event: Any = profiler_util.FunctionEvent.__init__
    known_events: Any = profiler_util.EventList.__init__
    known_supported: Any = torch.profiler.supported_activities

    @functools.wraps(known_profile)
    def profile(self: Any, *args: Any, **named: Any) -> None:
        # PyTorch finds the activities of a device, and the times of its events, by its own name.
        if named.pop("use_cuda", False) or named.get("use_device") == "cuda":
            named["use_device"] = "loom"
        known_profile(self, *args, **named)

    @functools.wraps(known_event)
    def event(self: Any, *args: Any, **named: Any) -> None:
        if named.get("device_type") == DeviceType.PrivateUse1:
            named["device_type"] = DeviceType.CUDA
        known_event(self, *args, **_called_cuda(named))

    @functools.wraps(known_events)
    def events(self: Any, *args: Any, **named: Any) -> None:
        known_events(self, *args, **_called_cuda(named))

    def supported_activities() -> set[ProfilerActivity]:
        return {*known_supported(), ProfilerActivity.CUDA}

    changes.set(profiler.profile, "__init__", profile)
    changes.set(profiler_util.FunctionEvent, "__init__", event)
    changes.set(profiler_util.EventList, "__init__", events)
    changes.set(torch.profiler, "supported_activities", supported_activities)


def _called_cuda(named: dict[str, Any]) -> dict[str, Any]:
    return named | {"use_device": "cuda"} if named.get("use_device") == "loom" else named
