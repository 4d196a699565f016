# SPDX-License-Identifier: BSD-3-Clause
"""Which operators had no asynchronous kernel, how often, for how long, and called from where.

Every operator works on loom. One without a kernel of its own waits for its stream and runs the cpu
kernel on the same memory; that costs the overlap with the host, and is counted here. Every function
may be called from any thread.
"""

from dataclasses import dataclass

from . import _C
from ._utils import device_name

__all__ = [
    "Fallback",
    "fallbacks",
    "get_sync_debug_mode",
    "host_waits",
    "reset_fallbacks",
    "set_sync_debug_mode",
]

_MODES = ("default", "warn", "error")


@dataclass(frozen=True)
class Fallback:
    """The fallbacks of one operator since the start or :func:`reset_fallbacks`.

    Attributes:
        count (int): how often it fell back.
        seconds (float): host time spent in them, waiting for the stream included.
        callers (dict): how often from which source line, ``"file.py:12"``.
    """

    count: int
    seconds: float
    callers: dict[str, int]


def fallbacks() -> dict[str, Fallback]:
    r"""Return what fell back, by operator and overload name, the most expensive first.

    Example::

        >>> torch.loom.fallbacks()
        {'aten::median': Fallback(count=1, seconds=0.002, callers={'train.py:12': 1})}
    """
    rows = sorted(_C._fallbacks(), key=lambda row: -row[2])
    return {name: Fallback(count, seconds, callers) for name, count, seconds, callers in rows}


def reset_fallbacks() -> None:
    r"""Forget all fallbacks counted so far."""
    _C._reset_fallbacks()


def host_waits() -> int:
    r"""Return how often a thread of the host has waited for a device since the process began.

    Reading a value (``item``, a copy to the cpu, ``nonzero``) waits, and so does a fallback whose
    stream is busy. A loop that should run ahead of the device keeps this number still.
    """
    return _C._host_waits()


def set_sync_debug_mode(debug_mode: int | str) -> None:
    r"""Set what happens where an operator makes its caller wait for a device.

    Reading a value (``item``, a copy to the cpu, ``nonzero``) waits, and so does a fallback. What a
    program asks to wait for (``synchronize``, events) is left alone.

    Args:
        debug_mode (int or str): ``"default"`` or 0 for nothing, ``"warn"`` or 1 for a warning,
            ``"error"`` or 2 for a RuntimeError.

    Raises:
        ValueError: for another mode.
    """
    mode = _MODES.index(debug_mode) if debug_mode in _MODES else debug_mode
    if mode not in range(len(_MODES)):
        raise ValueError(
            f"torch.{device_name()}.set_sync_debug_mode: expected one of {_MODES} or its number, "
            f"got {debug_mode!r}"
        )
    _C._set_sync_debug_mode(int(mode))


def get_sync_debug_mode() -> int:
    r"""Return the number of the mode that :func:`set_sync_debug_mode` has set."""
    return _C._sync_debug_mode()
