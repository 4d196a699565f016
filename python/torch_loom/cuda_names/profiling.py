# SPDX-License-Identifier: BSD-3-Clause
"""The profiler: ``ProfilerActivity.CUDA`` and its columns."""

import contextlib
import functools
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.autograd import profiler, profiler_util
from torch.profiler import ProfilerActivity

from .. import _C
from .changes import Changes


def apply(changes: Changes) -> None:
    """Profile loom where a program asks for CUDA, and call it so in tables and events."""
    known_profile: Any = profiler.profile.__init__
    known_event: Any = profiler_util.FunctionEvent.__init__
    known_supported: Any = torch.profiler.supported_activities

    @functools.wraps(known_profile)
    def profile(self: Any, *args: Any, **named: Any) -> None:
        asked = named.pop("use_cuda", False) or named.get("use_device") in ("cuda", "loom")
        if asked:
            named["use_device"] = "loom"
        with _C._HushedName() if asked else contextlib.nullcontext():
            known_profile(self, *args, **named)
        if asked and self.use_device == "loom":
            self.use_device = "cuda"  # what the results are called

    @functools.wraps(known_event)
    def event(self: Any, *args: Any, **named: Any) -> None:
        if named.get("device_type") == DeviceType.PrivateUse1:
            named["device_type"] = DeviceType.CUDA
        known_event(self, *args, **named)

    def supported_activities() -> set[ProfilerActivity]:
        return {*known_supported(), ProfilerActivity.CUDA}

    changes.set(profiler.profile, "__init__", profile)
    changes.set(profiler_util.FunctionEvent, "__init__", event)
    changes.set(torch.profiler, "supported_activities", supported_activities)
