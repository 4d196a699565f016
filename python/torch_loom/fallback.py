# SPDX-License-Identifier: BSD-3-Clause
"""Which operators had no asynchronous kernel, how often, for how long, and called from where.

Every operator works on loom. One without a kernel of its own waits for its stream and runs the cpu
kernel on the same memory; that costs the overlap with the host, and is counted here. Every function
may be called from any thread.
"""

from dataclasses import dataclass

from . import _C

__all__ = ["Fallback", "fallbacks", "host_waits", "reset_fallbacks"]


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
