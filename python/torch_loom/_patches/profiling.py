# SPDX-License-Identifier: BSD-3-Clause
"""Tables of the profiler: names of their columns."""

import functools
from typing import Any

from torch.autograd import profiler_util

from .._replace import replace


def apply() -> None:
    """Let tables be sorted by ``self_loom_time_total`` and its like, as their columns are called.

    PyTorch knows the names of cuda, xpu and privateuse1.
    """
    original = profiler_util._build_table

    @functools.wraps(original)
    def build_table(events: Any, sort_by: str | None = None, *rest: Any, **named: Any) -> Any:
        if sort_by is not None:
            sort_by = sort_by.replace("loom", "device")
        return original(events, sort_by, *rest, **named)  # type: ignore[no-untyped-call]

    replace(profiler_util, "_build_table", build_table)
