# SPDX-License-Identifier: BSD-3-Clause
"""What mixed precision may use: ``torch.autocast("loom")`` and ``torch.amp.GradScaler("loom")``."""

import functools
import threading
from typing import Any

import torch

__all__ = [
    "DEFAULT_AUTOCAST_DTYPE",
    "GradScaler",
    "autocast",
    "custom_bwd",
    "custom_fwd",
    "get_amp_supported_dtype",
    "get_autocast_dtype",
    "is_autocast_enabled",
    "is_bf16_supported",
    "set_autocast_dtype",
    "set_autocast_enabled",
]

# Host processors that have instructions for 16 bit floats at all have them for bfloat16; products
# of float16 are computed in float32, of copies.
DEFAULT_AUTOCAST_DTYPE = torch.bfloat16
"""The dtype of ``torch.autocast("loom")`` where none is given: the fast one on host processors.

For float16 instead, call :func:`set_autocast_dtype` (``torch.set_autocast_dtype`` in a new thread
cannot be told from PyTorch's own default there), or name the dtype.
"""

# That of the device's name now: "cuda" has another one (cuda_names/mixed_precision.py).
_default_dtype = DEFAULT_AUTOCAST_DTYPE
_thread = threading.local()


class autocast(torch.amp.autocast_mode.autocast):  # noqa: N801  # a name of torch.cuda.amp's
    r"""``torch.autocast("loom", ...)``.

    Args:
        enabled (bool): whether autocast is on inside. Default: ``True``.
        dtype (torch.dtype, optional): Default: what :func:`get_autocast_dtype` returns.
        cache_enabled (bool): whether casts of weights are kept inside. Default: ``True``.
    """

    def __init__(
        self, enabled: bool = True, dtype: torch.dtype | None = None, cache_enabled: bool = True
    ) -> None:
        super().__init__("loom", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    r"""``torch.amp.GradScaler("loom", ...)``, with the arguments that follow the device there."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__("loom", *args, **named)


custom_fwd = functools.partial(torch.amp.custom_fwd, device_type="loom")
"""``torch.amp.custom_fwd`` for loom."""
custom_bwd = functools.partial(torch.amp.custom_bwd, device_type="loom")
"""``torch.amp.custom_bwd`` for loom."""


def get_amp_supported_dtype() -> list[torch.dtype]:
    r"""Return the data types that ``torch.autocast("loom", dtype=...)`` accepts."""
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    r"""Return whether ``torch.bfloat16`` tensors work: they do on every host.

    Args:
        including_emulation (bool): accepted for code written for CUDA.
    """
    return True


def is_autocast_enabled() -> bool:
    r"""Return whether this thread is inside ``torch.autocast("loom")``."""
    return torch.is_autocast_enabled("loom")


def set_autocast_enabled(enabled: bool) -> None:
    r"""Switch autocast for loom on or off in this thread; ``torch.autocast`` does it for a region.

    Args:
        enabled (bool): whether operators on loom tensors follow autocast's lists from now on.
    """
    torch.set_autocast_enabled("loom", enabled)


def get_autocast_dtype() -> torch.dtype:
    r"""Return the dtype that ``torch.autocast("loom")`` uses in this thread where none is given."""
    _set_default_of_this_thread()
    return torch.get_autocast_dtype("loom")


def set_autocast_dtype(dtype: torch.dtype) -> None:
    r"""Set the dtype that ``torch.autocast("loom")`` uses in this thread where none is given.

    Args:
        dtype (torch.dtype): one of :func:`get_amp_supported_dtype`.

    Raises:
        ValueError: for another dtype.
    """
    if dtype not in get_amp_supported_dtype():
        raise ValueError(
            f"set_autocast_dtype: expected one of {get_amp_supported_dtype()}, got {dtype}"
        )
    _thread.default = None
    torch.set_autocast_dtype("loom", dtype)


def _set_default_of_this_thread() -> None:
    # PyTorch keeps the dtype per thread, float16 in a new one, and offers no way to change that.
    # `default` is what this function has set last, None where the program has chosen.
    default = getattr(_thread, "default", torch.float16)
    if default is None or default == _default_dtype:
        return
    _thread.default = None
    if torch.get_autocast_dtype("loom") == default:
        _thread.default = _default_dtype
        torch.set_autocast_dtype("loom", _default_dtype)
