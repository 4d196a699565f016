# SPDX-License-Identifier: BSD-3-Clause
"""What Dynamo and Inductor ask of a device, answered by ``torch.loom``."""

from types import ModuleType
from typing import Any

import torch

from .. import amp, device as devices, memory, streams
from .._replace import check_overrides
from .hushed import answer_for_cuda

__all__ = ["get_raw_stream", "register"]

# How many there are is known from the first use of loom on, when LOOM_DEVICES is read.
_MOST_DEVICES = 16


def get_raw_stream(device_index: int) -> int:
    """The id of the device's current stream, for code that passes streams as numbers."""
    return streams.current_stream(device_index).stream_id


def register(device_interface: ModuleType) -> None:
    """Give `torch._dynamo.device_interface`, which has just been imported, loom's answers."""
    interface = _make_interface(device_interface)
    check_overrides([interface])
    device_interface.register_interface_for_device("loom", interface)
    for index in range(_MOST_DEVICES):
        device_interface.register_interface_for_device(f"loom:{index}", interface)
    answer_for_cuda(device_interface)


def _make_interface(device_interface: ModuleType) -> type[Any]:
    base: Any = device_interface.DeviceInterface

    class LoomInterface(base):  # type: ignore[misc]
        """The functions of ``torch.loom`` under the names of PyTorch's interface."""

        device = devices.device
        # Dynamo takes streams and events of these classes into graphs.
        Event = torch.Event
        Stream = streams.Stream

        class Worker:
            """The same for processes that compile: they ask this one for what they need."""

            set_device = staticmethod(devices.set_device)
            current_device = staticmethod(devices.current_device)
            get_device_properties = staticmethod(devices.get_device_properties)

        current_device = staticmethod(devices.current_device)
        set_device = staticmethod(devices.set_device)
        exchange_device = staticmethod(devices._exchange_device)
        maybe_exchange_device = staticmethod(devices._maybe_exchange_device)
        device_count = staticmethod(devices.device_count)
        is_available = staticmethod(devices.is_available)
        synchronize = staticmethod(devices.synchronize)
        stream = staticmethod(streams.stream)
        current_stream = staticmethod(streams.current_stream)
        set_stream = staticmethod(streams.set_stream)
        get_raw_stream = staticmethod(get_raw_stream)
        memory_allocated = staticmethod(memory.memory_allocated)

        @staticmethod
        def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
            streams.set_stream(
                torch.Stream(
                    stream_id=stream_id, device_index=device_index, device_type=device_type
                )
            )

        @staticmethod
        def get_compute_capability(device: Any = None) -> str:
            return devices.get_device_properties(device).simd

        @staticmethod
        def is_bf16_supported(including_emulation: bool = False) -> bool:
            return amp.is_bf16_supported()

        # torch 2.15 asks the interface what earlier versions ask the scheduling, or know by name.
        @staticmethod
        def backend_features(device: Any = None) -> set[Any]:
            from .scheduling import LoomScheduling

            return set(LoomScheduling.get_backend_features(torch.device("loom", 0)))

        @classmethod
        def is_graph_capture_supported(cls, device: Any = None) -> bool:
            return True  # by replays of loom's own: reduce_overhead.py

    return LoomInterface
