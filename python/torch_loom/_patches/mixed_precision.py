# SPDX-License-Identifier: BSD-3-Clause
"""torch.autocast: the dtype that it has where none is given."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from .. import amp
from .._replace import replace
from .._utils import is_loom_name


def apply() -> None:
    """Give ``torch.autocast("loom")`` its default dtype in every thread."""
    # torch.autocast("loom") takes the dtype that PyTorch keeps for each thread, float16 for a
    # backend that is not built in; see amp.DEFAULT_AUTOCAST_DTYPE.
    amp._set_default_of_this_thread()  # the importing thread has it without being asked
    original: Callable[..., None] = torch.autocast.__init__

    @functools.wraps(original)
    def __init__(self: torch.autocast, device_type: str, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if is_loom_name(device_type):
            amp._set_default_of_this_thread()
        original(self, device_type, *args, **kwargs)

    replace(torch.autocast, "__init__", __init__)
