# SPDX-License-Identifier: BSD-3-Clause
"""What the families of calls draw from: sizes, dtypes, operands and what a result is used for."""

from __future__ import annotations

import dataclasses
import math
import random
import re
from collections.abc import Callable
from typing import Any

import torch

from calls.call import LAYOUTS, WRITABLE, Call, Operand

FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
COMPLEX = [torch.complex64, torch.complex128]
DTYPES = [*FLOATS, *INTEGERS, torch.bool, *COMPLEX]

# Ways of calling whose results are derivatives.
DERIVED = {"gradients", "leaves", "second", "jvp"}
# One call in this many has more elements than one core takes.
LARGE_EVERY = 6


class Draw:
    """Random choices for one call; the same ones for the same seed."""

    def __init__(self, family: str, seed: int) -> None:
        self.random = random.Random(f"{family} {seed}")
        self.large = self.random.randrange(LARGE_EVERY) == 0
        self.values = self.pick(["normal"] * 12 + ["infinite", "infinite", "huge", "tiny", "whole"])
        self.float = self.pick([torch.float32] * 4 + [torch.bfloat16] * 3 + FLOATS[2:])

    def finite_products(self) -> None:
        """For sums of products, which of huge numbers are NaN or not as the order has it."""
        if self.values == "huge":
            self.values = "normal"

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, items: Any) -> Any:
        return self.random.choice(items)

    def upto(self, most: int, most_if_large: int | None = None, least: int = 1) -> int:
        if self.large and most_if_large:
            most = most_if_large
        return self.random.randint(least, max(least, most))

    def some(self, make: Callable[[], Any], count: int) -> list[Any]:
        return [make() for _ in range(count)]

    def shape(self, elements: int = 2000, dims: int | None = None) -> tuple[int, ...]:
        """Up to five dimensions of some sizes, now and then with none of something."""
        if self.large:
            elements *= 100
        dims = (
            self.random.choices(range(6), weights=[1, 4, 8, 6, 3, 1])[0] if dims is None else dims
        )
        shape = [1] * dims
        for d in self.random.sample(range(dims), dims):
            left = elements // math.prod(shape)
            usual = min(left, round(elements ** (1 / dims)))
            shape[d] = self.pick([1, self.upto(min(left, 9)), self.upto(left), max(usual, 1)])
        if shape and self.chance(0.02):
            shape[self.random.randrange(dims)] = 0
        return tuple(shape)

    def less(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts to this one."""
        kind = self.random.randrange(4)
        if kind < 2:
            return shape
        if kind == 2:
            return shape[self.random.randint(0, len(shape)) :]
        return tuple(1 if self.chance(0.5) else n for n in shape)

    def operand(self, shape: Any, dtype: torch.dtype | None = None, **more: Any) -> Operand:
        """In any layout that may be written to, unless the layout is given."""
        layout = more.pop("layout", None)
        if layout is None:
            layout = self.pick(["dense"] * 6 + ["last"] * 3 + WRITABLE)
        more.setdefault("values", self.values)
        seed = self.random.randrange(1_000_000)
        return Operand(tuple(shape), dtype or self.float, seed, layout, **more)

    def read(self, shape: Any, dtype: torch.dtype | None = None, **more: Any) -> Operand:
        """In any layout at all."""
        return self.operand(shape, dtype, layout=self.pick(["dense"] * 3 + LAYOUTS), **more)

    def indices(self, shape: Any, limit: int, **more: Any) -> Operand:
        dtype = self.pick([torch.int64, torch.int64, torch.int32]) if more.pop("any", 0) else None
        return self.read(shape, dtype or torch.int64, limit=limit, **more)

    def constant(self, shape: Any, dtype: torch.dtype | None = None, **more: Any) -> Operand:
        """An operand whose gradient is not asked for."""
        return dataclasses.replace(self.operand(shape, dtype, **more), grad=False)

    def way(self, call: Call, *, gradients: bool, out: bool = False) -> Call:
        """The call in one of the ways in which it can be made."""
        ways = ["plain"] * 6 + ["stream", "twice"]
        # The second of two calls would begin with what the first one rounded, near a pole perhaps.
        # Which NaN arithmetic on operands makes is nobody's, and bytes show it.
        shows_nans = ".view(torch.uint8)" in call.code and any(
            o.values in ("infinite", "special") for o in call.operands
        )
        if (call.exact or not re.search(r"\w_\(", call.code)) and not shows_nans:
            ways += ["queued"] * 4
        # Which elements are the largest depends on how they are rounded, and half types have many.
        halves = any(o.dtype in (torch.float16, torch.bfloat16) for o in call.operands)
        if gradients and not (halves and call.code.endswith(".amax(-1)")):
            ways += ["gradients"] * 9 + ["vmap", "jvp", "second", "autocast", "leaves"]
        if out:
            ways += ["out"] * 5
        return dataclasses.replace(call, way=self.pick(ways), seed=self.random.randrange(1_000_000))

    def used(self, code: str) -> str:
        """The code, its result sometimes taken by what may be one command with it."""
        if self.chance(0.6):
            return code
        return self.pick([
            "torch.relu({})", "F.silu({})", "({}) * 2 + 1", "torch.sigmoid({})", "F.gelu({})",
            "({}).sum(-1)", "({}).mean(-1, keepdim=True)", "torch.tanh({}).neg()",
            "({}).to(torch.float32)", "({}).exp().add(1)", "({}).abs().amax(-1)",
        ]).format(code)  # fmt: skip

    def made(self, name: str) -> str:
        """The name of an operand, or of what has just been computed from it."""
        if self.chance(0.75):
            return name
        return self.pick(["({} * 2)", "{}.relu()", "({} + 1)", "{}.neg()", "{}.contiguous()",
                          "{}.tanh()", "{}.clone()"]).format(name)  # fmt: skip
