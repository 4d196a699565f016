# SPDX-License-Identifier: BSD-3-Clause
"""What generated wrappers call for streams and events, which they name by Dynamo's numbers.

All nodes of a graph run on the stream that is current, whatever stream they were written for. So
that stream waits wherever one of those does, and those wait for it before they are waited for.
"""

from collections.abc import Sequence
from typing import Any

import torch

__all__ = [
    "enter",
    "leave",
    "record_event",
    "record_stream",
    "sync_dealloc",
    "synchronize_device",
    "synchronize_event",
    "synchronize_stream",
    "wait_event",
    "wait_stream",
]


def _object(index: int) -> Any:
    from torch._dynamo.graph_bytecode_inputs import get_external_object_by_index

    return get_external_object_by_index(index)


def enter(side_streams: Sequence[int]) -> None:
    """Begin a graph after what is on the streams that its nodes were written for."""
    for index in side_streams:
        _follow(_object(index))


def leave(side_streams: Sequence[int], results: Sequence[Any]) -> None:
    """Have these streams go on after the graph, and use its results as if they were their own."""
    for index in side_streams:
        stream = _object(index)
        _lead(stream)
        for result in results:
            if isinstance(result, torch.Tensor) and result.device == stream.device:
                result.record_stream(stream)


def record_event(event: int, stream: int) -> None:
    """Record an event for what the program has put on a stream so far."""
    _lead(_object(stream))
    _object(event).record(_object(stream))


def wait_event(event: int, stream: int) -> None:
    """Make a stream, and the graph, wait for an event."""
    _object(event).wait(_object(stream))
    _follow(_object(stream))


def wait_stream(waiting: int, waited_for: int) -> None:
    """Make a stream, and the graph, wait for another one, and for the graph's work on that."""
    _follow(_object(waited_for))
    _lead(_object(waiting))


def synchronize_event(event: int) -> None:
    """Wait on the host for an event."""
    _object(event).synchronize()


def synchronize_stream(stream: int) -> None:
    """Wait on the host for a stream, and for the graph's work on it."""
    _lead(_object(stream))
    _object(stream).synchronize()


def synchronize_device(device_type: str, index: int) -> None:
    """Wait on the host for a device."""
    torch.accelerator.synchronize(torch.device(device_type, index))


def record_stream(tensor: torch.Tensor, stream: int) -> None:
    """Keep a tensor's memory until a stream has come here."""
    _lead(_object(stream))
    tensor.record_stream(_object(stream))


def sync_dealloc(event: int, stream: int, tensor: torch.Tensor) -> None:
    """Give memory back after its last use: that was on the graph's stream, too."""


def _current(stream: torch.Stream) -> torch.Stream:
    return torch._C._accelerator_getStream(stream.device_index)


def _follow(stream: torch.Stream) -> None:
    current = _current(stream)
    if current != stream:
        current.wait_stream(stream)


def _lead(stream: torch.Stream) -> None:
    current = _current(stream)
    if current != stream:
        stream.wait_stream(current)
