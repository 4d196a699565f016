# SPDX-License-Identifier: BSD-3-Clause
"""How a loop nest becomes a grid of blocks: Inductor's constructs for OpenMP, written as loom's.

A region that OpenMP's threads would share is a function of the number of a block, `tid`, which the
device's cores call. The loops that are shared are cut into parts that follow each other in their
common order; how many there are depends on shapes only.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from torch._inductor.codegen.cpp import LoopLevel, WorkSharing
from torch._inductor.codegen.cpp_utils import cexpr_index

from .inner_loop import Invariants

__all__ = ["BLOCK_COUNT", "BlockLoop", "Blocks", "trips_of"]

BLOCK_COUNT = "loom_block_count"
"""The variable of generated code that has the number of blocks of a grid."""


class Blocks(WorkSharing):
    """Opens and closes the grid around a loop nest."""

    def __init__(self, code: Any) -> None:
        super().__init__(code)
        self.count = "1"  # an expression of C++, for the next grid

    def parallel(self, threads: int) -> None:
        """Open a grid. Nothing is shared between nests: a grid has no barrier inside."""
        assert not self.in_parallel
        self.in_parallel = True
        self.code.writeline(f"const int64_t {BLOCK_COUNT} = {self.count};")
        self.code.writeline(f"loom_kernel::run_blocks(grid, {BLOCK_COUNT}, [&](const int64_t tid)")
        self.stack.callback(self.code.writeline, ");")
        self.stack.enter_context(self.code.indent())

    def single(self) -> bool:
        """Whether a nest that is not shared must say so: it stands between grids, never inside."""
        return False


class BlockLoop(LoopLevel):
    """One of the loops that the blocks of a grid share."""

    members: Sequence["BlockLoop"]
    invariants: Invariants

    @classmethod
    def share(cls, loops: Sequence[LoopLevel]) -> list["BlockLoop"]:
        """The same loops, outermost first, cut into the parts of blocks."""
        fields = [field.name for field in dataclasses.fields(LoopLevel)]
        members = [cls(**{name: getattr(loop, name) for name in fields}) for loop in loops]
        for member, loop in zip(members, loops, strict=True):
            member.members = members
            member.invariants = getattr(loop, "invariants", None) or Invariants()
        return members

    def lines(self) -> list[str]:
        """What stands before the body of this loop."""
        if len(self.members) == 1:
            return [self._part(), *self._counted_loop("loom_part.begin", "loom_part.end")]
        if self is self.members[0]:
            return [
                self._part(),
                "for (int64_t loom_trip = loom_part.begin; loom_trip < loom_part.end;)",
            ]
        if self is not self.members[-1]:
            return []  # its variable is computed before the innermost loop
        return self._innermost()

    def _part(self) -> str:
        return f"const loom_kernel::Part loom_part({trips_of(self.members)}, tid, {BLOCK_COUNT});"

    def _innermost(self) -> list[str]:
        # The shared loops run as one, from `loom_trip` on: as far as the innermost of them goes at
        # once, which is then an ordinary loop that compilers know how to vectorise.
        lines = [
            f"const int64_t loom_trips = {trips_of([self])};",
            "const int64_t loom_first = loom_trip % loom_trips;",
            "const int64_t loom_last = "
            "std::min(loom_trips, loom_first + (loom_part.end - loom_trip));",
            "int64_t loom_outer = loom_trip / loom_trips;",
            "loom_trip += loom_last - loom_first;",
        ]
        for loop in reversed(self.members[:-1]):
            trips = trips_of([loop])
            lines.append(f"const int64_t {loop.var} = {loop._at(f'(loom_outer % {trips})')};")
            lines.append(f"loom_outer /= {trips};")
        return [*lines, *self._counted_loop("loom_first", "loom_last")]

    def _counted_loop(self, first: str, last: str) -> list[str]:
        end = f"{self.var}_end"
        step = cexpr_index(self.steps)
        return [
            f"const int64_t {end} = std::min<int64_t>({cexpr_index(self.size)}, {self._at(last)});",
            *self.invariants.before_loop(),
            f"for (int64_t {self.var} = {self._at(first)}; {self.var} < {end}; "
            f"{self.var} += {step})",
        ]

    def _at(self, trip: str) -> str:
        """The variable's value at a trip of this loop."""
        return f"{cexpr_index(self.offset)} + {trip} * {cexpr_index(self.steps)}"


def trips_of(loops: Sequence[LoopLevel]) -> str:
    """How often the body of some loops runs, as an expression of C++."""
    return " * ".join(
        f"loom_kernel::trip_count({cexpr_index(loop.offset)}, {cexpr_index(loop.size)}, "
        f"{cexpr_index(loop.steps)})"
        for loop in loops
    )
