# SPDX-License-Identifier: BSD-3-Clause
"""The innermost loop of a nest, and what stands before it because it is the same at every step.

A compiler must load again what may have been stored to since, and computes again what depends on
it: the root of a row's variance, say, for each vector of the row.
"""

import re
from typing import Any

from torch._inductor.codegen.common import IndentedBuffer
from torch._inductor.codegen.cpp import CppVecKernel, LoopLevel

__all__ = ["InnerLoop", "Invariants", "take_invariants"]

_DEFINITION = re.compile(r"auto (tmp\d+) = (.*);")
_WORD = re.compile(r"[A-Za-z_]\w*")
_POINTER = re.compile(r"(in|out|in_out)_ptr\d+")


class Invariants:
    """Definitions that are written before an innermost loop, or in its body if no loop is there."""

    def __init__(self) -> None:
        self._definitions: list[tuple[str, str]] = []
        self._stand_before_loop = False

    def define(self, name: str, value: str) -> None:
        """Add one, of C++, that may use those that were added before."""
        self._definitions.append((name, value))

    def before_loop(self) -> list[str]:
        """Lines for any place right before a loop, without braces of their own."""
        self._stand_before_loop = True
        return [f"if (auto {name} = {value}; true)" for name, value in self._definitions]

    def in_body(self) -> list[str]:
        """Lines for the beginning of a block, where outer loops are those of another nest."""
        if self._stand_before_loop:
            return []
        return [f"auto {name} = {value};" for name, value in self._definitions]


class InnerLoop(LoopLevel):
    """An innermost loop with definitions before it."""

    def __init__(self, loop: LoopLevel, invariants: Invariants) -> None:
        """The same loop."""
        vars(self).update(vars(loop))
        self.invariants = invariants

    def lines(self) -> list[str] | None:
        """What stands before the body; None where there is no trip."""
        lines = super().lines()
        return None if lines is None else [*self.invariants.before_loop(), *lines]


def take_invariants(kernel: CppVecKernel, loop: LoopLevel) -> Invariants:
    """Remove from a kernel what is the same at all steps of its innermost loop, the tiled one."""
    names: set[str] = set()
    stored = {match[0] for match in _POINTER.finditer(_text(kernel.stores))}
    taken = Invariants()
    for buffer in (kernel.loads, kernel.compute):
        kept = []
        for line in buffer._lines:
            found = _DEFINITION.fullmatch(line.strip()) if isinstance(line, str) else None
            if found and _is_invariant(kernel, loop, found[1], found[2], names, stored):
                names.add(found[1])
                taken.define(found[1], found[2])
            else:
                kept.append(line)
        buffer._lines[:] = kept
    return taken


def _is_invariant(
    kernel: CppVecKernel, loop: LoopLevel, name: str, value: str, names: set[str], stored: set[str]
) -> bool:
    words = set(_WORD.findall(value))
    varies = str(loop.var) in words or any(
        word.startswith(("tmp", "masked_", "local_buffer")) and word not in names for word in words
    )
    if varies or "[&]" in value:
        return False
    read = [word for word in words if _POINTER.fullmatch(word)]
    # A buffer that is written in place has a second name.
    in_place = any(name.startswith("in_out") for name in stored)
    if any(name in stored or (in_place and not name.startswith("in_ptr")) for name in read):
        return False
    variable: Any = kernel.cse.varname_map.get(name)
    dtype = getattr(variable, "dtype", None)
    # A division of integers may not be made where no step would make it.
    return dtype is not None and dtype.is_floating_point


def _text(buffer: IndentedBuffer) -> str:
    return str(buffer.getvalue())
