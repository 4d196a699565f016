# SPDX-License-Identifier: BSD-3-Clause
"""Nests that do nothing but copy what lies in another order: they are the operator's copy.

It goes through memory in tiles and writes past the caches, which compiled loops do not.
"""

import math

from torch._inductor.virtualized import V

from .program_steps import Operand
from .programs import Nest, call_argument

__all__ = ["is_copy", "write"]

# A call of an operator costs some microseconds more than one of a kernel.
_FEWEST_ELEMENTS = 4096


def is_copy(nest: Nest) -> bool:
    """Whether elements are copied from one buffer to another, with their dtype."""
    if [step[0] for step in nest.steps] != ["load"] or len(nest.stored) != 1:
        return False
    ((to, value),), (read,) = nest.stored.values(), nest.loads()
    whole = to.dtype == value.dtype == read.dtype and to.sizes == nest.sizes
    # Of every second element the operator's tiles are half empty.
    return whole and 1 in read.strides and math.prod(nest.sizes) >= _FEWEST_ELEMENTS


def write(nest: Nest) -> None:
    """Make it a part of the wrapper."""
    for node in nest.nodes:
        node.mark_run()
    ((to, _),) = nest.stored.values()
    # In the order of what is written, whatever that of the loops is.
    order = sorted(range(len(nest.sizes)), key=lambda d: -to.strides[d])
    views = [_view(operand, nest.sizes, order) for operand in (to, nest.loads()[0])]
    V.graph.wrapper_code.writeline("{}.copy_({})".format(*views))


def _view(operand: Operand, sizes: tuple[int, ...], order: list[int]) -> str:
    seen = list(zip(sizes, operand.sizes, operand.strides, strict=True))
    strides = [0 if own != size else stride for size, own, stride in seen]
    shape, steps = (tuple(numbers[d] for d in order) for numbers in (sizes, strides))
    return f"reinterpret_tensor({call_argument(operand.name)}, {shape}, {steps}, {operand.offset})"
