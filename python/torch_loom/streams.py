# SPDX-License-Identifier: BSD-3-Clause
"""Streams and events. A stream runs its work in order; streams run beside each other.

The current stream belongs to the thread, one per device, as in CUDA. Streams and events may be used
from any thread.
"""

from types import TracebackType
from typing import Any

import torch

from . import _C
from ._utils import DeviceLike, _get_device_index, device_name, is_loom

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "is_current_stream_capturing",
    "set_stream",
    "stream",
]


class _EventType(type):
    """Lets ``isinstance(event, torch.loom.Event)`` say yes to loom's events."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and is_loom(instance.device)


class Event(torch.Event, metaclass=_EventType):
    r"""A mark in a stream, to wait for and to measure time with.

    The constructor takes the arguments of :class:`torch.cuda.Event` and returns a
    :class:`torch.Event` of a loom device: torch's own methods accept no subclass of it. An event
    that was never recorded counts as complete; ``record()`` moves the mark, ``wait()`` makes a
    stream wait for it and ``synchronize()`` the host, ``elapsed_time()`` is in milliseconds.

    Args:
        enable_timing (bool): whether to take the time when the mark is reached. Default: ``False``.
        blocking (bool): accepted for code written for CUDA; waiting always sleeps in the end.
        interprocess (bool): not supported.
        device (torch.device or str or int, optional): whose event. Default: the current device.

    Raises:
        ValueError: when ``interprocess`` is true.
    """

    def __new__(  # type: ignore[misc]  # returns what isinstance() takes for an Event
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        *,
        device: DeviceLike = None,
    ) -> torch.Event:
        """Create an event that is not recorded yet."""
        if interprocess:
            raise ValueError(f"torch.{device_name()}.Event: expected interprocess=False, got True")
        where = torch.device("loom", _get_device_index(device, optional=True))
        return torch.Event(where, enable_timing=enable_timing, blocking=blocking)


class Stream(torch.Stream):
    r"""A queue of work on one device: in order within itself, unordered to other streams.

    Streams come from a pool of 32 of each priority; when it is used up they are handed out again.
    Used as a context manager, a stream is the current one inside the ``with`` block.

    Args:
        device (torch.device or str or int, optional): the device. Default: the current device.
        priority (int): 0 or, for work to be preferred, -1. Values outside are clamped.

    Raises:
        RuntimeError: when there is no such device.
    """

    def __new__(cls, device: DeviceLike = None, priority: int = 0, **kwargs: Any) -> "Stream":
        """Take a stream from the device's pool, or name an existing one by its ids."""
        if "stream_id" in kwargs:
            return super().__new__(cls, **kwargs)
        where = torch.device("loom", _get_device_index(device, optional=True))
        return super().__new__(cls, where, priority=priority, **kwargs)

    # torch.compile follows the methods below, but not super() in a class made of torch.Stream.

    def wait_event(self, event: torch.Event) -> None:
        r"""Make later work of this stream wait for ``event``. The host does not wait."""
        torch.Stream.wait_event(self, event)

    def wait_stream(self, stream: torch.Stream) -> None:
        r"""Make later work of this stream wait for what is on ``stream`` now."""
        torch.Stream.wait_stream(self, stream)

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        r"""Record an event on this stream and return it.

        Args:
            event (Event, optional): the event. Default: a new one.
        """
        if event is None:
            event = Event(device=self.device)
        event.record(self)
        return event

    def query(self) -> bool:
        r"""Return whether everything submitted to this stream is done."""
        return torch.Stream.query(self)

    def synchronize(self) -> None:
        r"""Wait on the host for everything on this stream. Other Python threads run meanwhile.

        Raises:
            Exception: what a kernel of this stream raised since the last synchronisation, once.
        """
        torch.Stream.synchronize(self)

    @property
    def priority(self) -> int:
        r"""0, or -1 for a stream of high priority."""
        return _C._stream_priority(self.stream_id, self.device_index)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        r"""Return the lowest and the highest priority, ``(0, -1)``."""
        return _C._stream_priority_range()

    def __repr__(self) -> str:
        return f"<torch.{device_name()}.Stream device={self.device} id={self.stream_id:#x}>"


def _wrap(stream: torch.Stream) -> Stream:
    return Stream(
        stream_id=stream.stream_id,
        device_index=stream.device_index,
        device_type=stream.device_type,
    )


def current_stream(device: DeviceLike = None) -> Stream:
    r"""Return the calling thread's current stream of a device.

    Args:
        device (torch.device or str or int, optional): the device. Default: the current device.

    Raises:
        RuntimeError: when there is no such device.
    """
    return _wrap(torch._C._accelerator_getStream(_get_device_index(device, optional=True)))


def default_stream(device: DeviceLike = None) -> Stream:
    r"""Return the stream that is current where nobody chose another one. Args as above."""
    return _wrap(_C._default_stream(_get_device_index(device, optional=True)))


def set_stream(stream: torch.Stream | None) -> None:
    r"""Make ``stream`` the calling thread's current stream, and its device the current device.

    Args:
        stream (Stream, optional): the stream; ``None`` changes nothing.

    Raises:
        ValueError: when the stream is not a loom stream.
    """
    if stream is None:
        return
    if not is_loom(stream.device):
        name = device_name()
        raise ValueError(f"torch.{name}.set_stream: expected a {name} stream, got {stream}")
    torch._C._accelerator_setStream(stream)


class StreamContext:
    r"""Context manager that makes a stream current and brings stream and device back afterwards.

    Args:
        stream (Stream, optional): the stream; ``None`` changes nothing.
    """

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is None:
            return
        self._outer = current_stream()
        self._replaced = current_stream(self.stream.device)
        set_stream(self.stream)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.stream is None:
            return
        set_stream(self._replaced)
        set_stream(self._outer)


def stream(stream: torch.Stream | None) -> StreamContext:
    r"""Return a context manager that makes ``stream`` current. See :class:`StreamContext`.

    Example::

        >>> side = torch.loom.Stream()
        >>> side.wait_stream(torch.loom.current_stream())
        >>> with torch.loom.stream(side):
        ...     y = x @ w
    """
    return StreamContext(stream)


def is_current_stream_capturing() -> bool:
    r"""Return whether a graph captures the current stream."""
    return current_stream().is_capturing()
