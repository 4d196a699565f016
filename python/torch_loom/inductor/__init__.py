# SPDX-License-Identifier: BSD-3-Clause
"""The backend of ``torch.compile`` on loom: PyTorch's Inductor, with loom's way to run kernels.

Inductor lowers a graph, fuses and generates C++ loop nests; what is here makes each group of them
one command of the current stream, and each nest one grid of blocks on the device's cores. How, and
what holds: docs/design/compile.md.

Importing this package imports nothing of ``torch._inductor``, which takes seconds: when Inductor is
first used, it looks for loom's scheduling, and :func:`register` is called.
"""

import functools
import sys
import warnings
from types import ModuleType

from .. import _replace, _torch_features

__all__ = ["register"]


@functools.cache
def register() -> bool:
    """Tell Inductor of loom, if Inductor is still what loom's part of it was made for.

    Called by Inductor's own registration, and where a graph enters it; once is enough.

    Returns:
        bool: whether Inductor knows loom. If not, there was a warning that says why.
    """
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

        for name, module in list(sys.modules.items()):
            if name.startswith(f"{__name__}."):
                _replace.check_overrides(_classes_of(module))
        decisions.apply()
        operators.lower()
        flex_attention.apply()
        reduce_overhead.apply()
        registration.apply()
        stream_order.apply()
        unasked_replays.apply()
    except (AttributeError, ImportError, KeyError, TypeError) as error:
        warnings.warn(
            f"torch-loom: the Inductor of torch {_torch_features.MINOR} does not suit loom: "
            f"{error!r}. torch.compile calls loom's operators, without kernels of its own.",
            stacklevel=2,
        )
        return False
    return True


def _classes_of(module: ModuleType) -> list[type]:
    things = vars(module).values()
    return [x for x in things if isinstance(x, type) and x.__module__ == module.__name__]
