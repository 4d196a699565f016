# SPDX-License-Identifier: BSD-3-Clause
"""What became of pointwise operators and row reductions: the programs they were fused to.

Operators that are called one after the other on operands of one shape become one program, which
runs when its results are needed. Values that nobody refers to by then are never written to memory.
Results do not depend on what was fused. Every function may be called from any thread.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from . import _C

__all__ = [
    "FusedProgram",
    "fusion",
    "fusion_report",
    "is_fusion_enabled",
    "reset_fusion_report",
]


@dataclass(frozen=True)
class FusedProgram:
    """All runs of one program since the start or :func:`reset_fusion_report`.

    Attributes:
        operators (tuple): the operators it was first made of, in order. Programs that do the same
            to their operands are one.
        instructions (str): what it does, one instruction a line.
        compiled (bool): whether it runs as machine code; else it is interpreted.
        runs (int): how often it ran.
        elements (int): elements of its results' shape, over all runs.
        bytes (int): what it moved between memory and registers.
        bytes_saved (int): what the operators would have moved beyond that, one by one.
        seconds (float): time on the worker; of operators that ran on the parts of a product or a
            convolution as these were computed, the sum of what the parts took on all cores.
    """

    operators: tuple[str, ...]
    instructions: str
    compiled: bool
    runs: int
    elements: int
    bytes: int
    bytes_saved: int
    seconds: float


def fusion_report() -> list[FusedProgram]:
    r"""Return the programs that ran, those that took the most time first.

    Example::

        >>> y = torch.relu(x * a + b)
        >>> torch.loom.synchronize()
        >>> torch.loom.fusion_report()[0].operators
        ('mul', 'add', 'relu')
    """
    programs = [
        FusedProgram(
            tuple(operators),
            instructions,
            compiled,
            runs,
            elements,
            moved,
            max(unfused - moved, 0),
            seconds,
        )
        for operators, instructions, compiled, runs, elements, moved, unfused, seconds in (
            _C._fusion_report()
        )
    ]
    return sorted(programs, key=lambda program: -program.seconds)


def reset_fusion_report() -> None:
    r"""Forget what was counted so far."""
    _C._reset_fusion_report()


def is_fusion_enabled() -> bool:
    r"""Whether operators that this thread calls are fused."""
    return _C._fusion_enabled()


@contextlib.contextmanager
def fusion(enabled: bool) -> Iterator[None]:
    r"""Switch fusion on or off for the operators that this thread calls inside.

    Off, each operator runs by itself; the results are the same.

    Example::

        >>> with torch.loom.fusion(False):
        ...     y = torch.relu(x * a + b)
    """
    before = _C._fusion_enabled()
    _C._set_fusion_enabled(enabled)
    try:
        yield
    finally:
        _C._set_fusion_enabled(before)
