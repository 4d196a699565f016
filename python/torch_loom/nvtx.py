# SPDX-License-Identifier: BSD-3-Clause
"""Named ranges of a program, in the profiler's traces.

The names are those of :mod:`torch.cuda.nvtx`. A range is what ``torch.profiler.record_function``
makes: :mod:`torch.profiler` shows it, with the work that was submitted inside. Every function may
be called from any thread.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.autograd.profiler import record_function

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

_thread = threading.local()
_started: dict[int, record_function] = {}


def _stack() -> list[record_function]:
    if not hasattr(_thread, "stack"):
        _thread.stack = []
    stack: list[record_function] = _thread.stack
    return stack


def _enter(message: str) -> record_function:
    entered = record_function(message)
    entered.__enter__()  # type: ignore[no-untyped-call]
    return entered


def range_push(message: str) -> int:
    r"""Begin a range inside those that this thread has begun, and return their number so far.

    Args:
        message (str): the name of the range.
    """
    stack = _stack()
    stack.append(_enter(message))
    return len(stack) - 1


def range_pop() -> int:
    r"""End the range that this thread began last, and return how many are left; -2 if none was."""
    stack = _stack()
    if not stack:
        return -2
    stack.pop().__exit__(None, None, None)
    return len(stack)


def range_start(message: str) -> int:
    r"""Begin a range that may end on another thread, and return its id.

    Args:
        message (str): the name of the range.
    """
    entered = _enter(message)
    _started[id(entered)] = entered
    return id(entered)


def range_end(range_id: int) -> None:
    r"""End the range that :func:`range_start` began. Does nothing for another id."""
    entered = _started.pop(range_id, None)
    if entered is not None:
        entered.__exit__(None, None, None)


def mark(message: str) -> None:
    r"""Put a range without a length at this point.

    Args:
        message (str): the name of the mark.
    """
    with record_function(message):
        pass


@contextmanager
def range(message: str, *args: Any, **named: Any) -> Iterator[None]:
    r"""Context manager and decorator: a range around what is inside.

    Args:
        message (str): the name, which ``str.format`` fills with the other arguments.
        *args: arguments of ``message``.
        **named: arguments of ``message``.
    """
    range_push(message.format(*args, **named))
    try:
        yield
    finally:
        range_pop()
