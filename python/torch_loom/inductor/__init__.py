# SPDX-License-Identifier: BSD-3-Clause
"""The backend of ``torch.compile`` on loom: PyTorch's Inductor, with loom's way to run kernels.

Inductor lowers a graph, fuses and generates C++ loop nests; what is here makes each group of them
one command of the current stream, and each nest one grid of blocks on the device's cores. How, and
what holds: docs/design/compile.md.

Importing this package imports nothing of ``torch._inductor``, which takes seconds: when Inductor is
first used, it looks for loom's scheduling, and :func:`register` is called.
"""

import functools

__all__ = ["register"]


@functools.cache
def register() -> None:
    """Tell Inductor of loom. Called by Inductor's own registration; once is enough."""
    try:
        from . import (
            decisions,
            flex_attention,
            operators,
            reduce_overhead,
            registration,
            stream_order,
            unasked_replays,
        )

        decisions.apply()
        operators.lower()
        flex_attention.apply()
        reduce_overhead.apply()
        registration.apply()
        stream_order.apply()
        unasked_replays.apply()
    except AttributeError as error:  # which Inductor would take for a backend without one
        raise ImportError(
            f"torch-loom: torch.compile of this torch does not suit loom: {error}"
        ) from error
