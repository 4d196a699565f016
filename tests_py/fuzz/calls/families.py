# SPDX-License-Identifier: BSD-3-Clause
"""All families of calls by name."""

from __future__ import annotations

from collections.abc import Callable

from calls import convolution, images, layers, movement, places, pointwise, products, rows
from calls.call import Call
from calls.draw import Draw

MODULES = [convolution, images, products, rows, pointwise, places, movement, layers]
FAMILIES: dict[str, Callable[[Draw], Call]] = {
    family.__name__: family for module in MODULES for family in module.FAMILIES
}


def random_call(family: str, seed: int) -> Call:
    """The call of a seed: always the same one."""
    return FAMILIES[family](Draw(family, seed))
