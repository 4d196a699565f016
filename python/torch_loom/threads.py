# SPDX-License-Identifier: BSD-3-Clause
"""How many cores a kernel runs on.

``torch.set_num_threads`` is a setting of the host's own kernels and has no effect on loom.
"""

from . import _C
from .device import device_count

__all__ = ["get_num_threads", "set_num_threads"]


def set_num_threads(num_threads: int) -> None:
    r"""Let kernels run on so many cores of their device at most.

    Takes effect at once, for work that is queued too, on all devices and streams: each stream has
    a thread of its own, which counts. Results do not depend on it. At first it is what
    ``LOOM_THREADS`` says, or the device's share of the host's cores.

    ``torch.set_num_threads`` has no effect on loom, nor has this on ``cpu``.

    Args:
        num_threads (int): the number of cores, from 1 to those of the largest device.

    Raises:
        TypeError: when ``num_threads`` is no int.
        RuntimeError: when there are not so many.

    Example::

        >>> torch.loom.set_num_threads(1)
        >>> torch.loom.get_num_threads()
        1
    """
    if isinstance(num_threads, bool) or not isinstance(num_threads, int):
        kind = type(num_threads).__name__
        raise TypeError(f"torch.loom.set_num_threads: expected an int, got {kind}")
    most = max(_C._get_device_properties(index).core_count for index in range(device_count()))
    if not 1 <= num_threads <= most:
        raise RuntimeError(
            f"torch.loom.set_num_threads: expected 1 to {most} cores, got {num_threads}; devices "
            "have as many cores as LOOM_THREADS says when they are first used"
        )
    _C._set_core_limit(num_threads)


def get_num_threads() -> int:
    r"""Return on how many cores of the current device a kernel may run.

    Returns:
        int: what :func:`set_num_threads` was told, at most the device's cores.
    """
    return _C._get_core_limit(-1)
