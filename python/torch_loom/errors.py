# SPDX-License-Identifier: BSD-3-Clause
"""Errors of kernels, which run later than the call: whether they say where the call was.

An error that depends on data, such as an index out of range, is raised at the next synchronisation,
and again whenever the host looks at a value that lacks because of it. Every function may be called
from any thread.
"""

import sys
import traceback

from . import _C

__all__ = ["is_error_stacks_enabled", "set_error_stacks"]

_MOST_FRAMES = 32


def set_error_stacks(enabled: bool) -> None:
    r"""Have errors of kernels say where in the Python program they were launched, or not.

    For a kernel of a backward pass they also say where the forward operator was called, if that was
    while stacks were on. It costs tens of microseconds a launch. ``LOOM_ERROR_STACKS=1`` in the
    environment has it on from the beginning.

    Args:
        enabled (bool): for the launches of all threads from now on.

    Example::

        >>> torch.loom.set_error_stacks(True)
    """
    _C._set_error_stacks(bool(enabled))


def is_error_stacks_enabled() -> bool:
    r"""Return whether errors of kernels say where they were launched."""
    return _C._error_stacks()


def _frames() -> str:
    """Return the calling thread's frames as a traceback shows them; called by the library."""
    frame = sys._getframe(1) if hasattr(sys, "_getframe") else None
    walked = list(traceback.walk_stack(frame))[:_MOST_FRAMES]
    return "".join(traceback.StackSummary.extract(reversed(walked)).format())
