# SPDX-License-Identifier: BSD-3-Clause
"""What the suite measures: a module a group, each with `workloads() -> list[Workload]`."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from workloads.workload import Workload

GROUPS = ("pointwise", "kernels", "training", "inference", "optimizer")
SIZES = (10**4, 10**5, 10**6, 10**7, 10**8)


def collect(
    groups: Iterable[str] = GROUPS, sizes: Iterable[int] | None = None, quick: bool = False
) -> dict[str, Workload]:
    """The workloads of the groups by their keys.

    With `sizes`, those of other sizes are left out, where a workload has one; without, those of
    huge size are there only for the few that say so. `quick` leaves one of each kind.
    """
    wanted = set(SIZES if sizes is None else sizes)
    found = [
        w for group in groups for w in importlib.import_module(f"workloads.{group}").workloads()
    ]
    return {
        w.key: w
        for w in found
        if (not w.size or w.size in wanted)
        and (w.common or sizes is not None)
        and (w.quick or not quick)
    }
