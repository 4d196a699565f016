# SPDX-License-Identifier: BSD-3-Clause
"""A call of operators as data: what its ``repr`` prints makes the same call again."""

from __future__ import annotations

import dataclasses
import functools
import math
import string
from collections.abc import Sequence

import torch
from torch import Tensor

LAYOUTS = ["dense", "last", "permuted", "sliced", "rows", "offset", "expanded", "overlapping"]
# Laid out so that no two elements share memory.
WRITABLE = LAYOUTS[:6]


# A tensor of more elements than MANY is a part of a few that are made once.
MANY, KEPT = 2048, 1 << 20


@functools.cache
def kept_normals() -> Tensor:
    return torch.randn(KEPT, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def normals(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Of a normal distribution, in float64; nobody may write them."""
    count = math.prod(shape)
    if not MANY < count < KEPT // 2:
        return torch.randn(shape, generator=generator, dtype=torch.float64)
    first = int(torch.randint(KEPT - count, (), generator=generator))
    return kept_normals()[first : first + count].view(shape)


@dataclasses.dataclass(frozen=True)
class Operand:
    """A tensor on cpu that is the same each time that it is made.

    Attributes:
        layout: one of LAYOUTS.
        values: normal, whole (few different ones), positive, unit (0 to 1), small, tiny, huge,
            infinite (some infinities and NaN), special (some of all that numbers can be) or
            permutation.
        limit: of integers: they are from 0 to below it. No limit: from -9 to 9, or any if special.
        grad: whether calls with gradients want this operand's.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    seed: int = 0
    layout: str = "dense"
    values: str = "normal"
    limit: int | None = None
    grad: bool = True

    def make(self) -> Tensor:
        return lay_out(self._numbers(), self.layout, self.seed)

    def _numbers(self) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        if self.dtype == torch.bool:
            return torch.randint(2, self.shape, generator=generator).bool()
        if self.dtype.is_complex:
            parts = [self._reals(generator, torch.float64) for _ in range(2)]
            return torch.complex(*parts).to(self.dtype)
        if self.dtype.is_floating_point:
            return self._reals(generator, self.dtype)
        return self._integers(generator)

    def _integers(self, generator: torch.Generator) -> Tensor:
        info = torch.iinfo(self.dtype)
        if self.values == "permutation":
            return torch.randperm(math.prod(self.shape), generator=generator).view(self.shape)
        if self.limit is not None:
            low, high = 0, max(self.limit, 1)
        elif self.values in ("special", "infinite"):
            low, high = info.min, info.max
        else:
            low, high = max(info.min, -9), 10
        made = torch.randint(low, high, self.shape, generator=generator, dtype=self.dtype)
        if self.values in ("special", "infinite") and self.limit is None:
            made = sprinkle(made, [info.min, info.max, 0, 1, info.min + 1, info.max], generator)
        return made

    def _reals(self, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        info = torch.finfo(dtype)
        numbers = normals(self.shape, generator)
        if self.values == "whole":
            numbers = numbers.mul(2).round()
        elif self.values == "positive":
            numbers = numbers.abs() + 0.1
        elif self.values == "unit":
            numbers = torch.rand(self.shape, generator=generator, dtype=torch.float64)
        elif self.values == "small":
            numbers = numbers * 0.1
        elif self.values == "huge":
            numbers = numbers * info.max**0.75
        elif self.values == "tiny":
            numbers = numbers * (info.tiny * 2)  # half of them are denormal
        made = numbers.to(dtype, copy=True)
        if self.values == "infinite":
            made = sprinkle(made, [math.nan, math.inf, -math.inf, 0.0, -0.0], generator)
        elif self.values == "special":
            rare = [math.nan, math.inf, -math.inf, 0.0, -0.0, info.max, -info.max, info.tiny,
                    -info.tiny / 8, 1.0]  # fmt: skip
            made = sprinkle(made, rare, generator)
        return made


def sprinkle(tensor: Tensor, rare: list[float], generator: torch.Generator) -> Tensor:
    """Each of the rare numbers in one place of some fifty."""
    places = torch.randint(50, tensor.shape, generator=generator).view(-1)
    flat = tensor.reshape(-1)
    chosen = (places < len(rare)).nonzero().squeeze(1)
    flat[chosen] = torch.tensor(rare, dtype=tensor.dtype)[places[chosen]]
    return flat.view(tensor.shape)


def lay_out(numbers: Tensor, layout: str, seed: int) -> Tensor:
    """The numbers in another layout (for those whose elements share memory: some of them)."""
    dims = numbers.dim()
    if dims == 0 or numbers.numel() == 0:
        return numbers
    generator = torch.Generator().manual_seed(seed)
    if layout == "last" and dims >= 3:
        return numbers.movedim(1, -1).contiguous().movedim(-1, 1)
    if layout == "permuted":
        order = torch.randperm(dims, generator=generator).tolist()
        return numbers.permute(order).contiguous().permute([order.index(d) for d in range(dims)])
    if layout == "sliced":
        d = int(torch.randint(dims, (), generator=generator))
        room = numbers.new_zeros([n * 2 + 1 if i == d else n for i, n in enumerate(numbers.shape)])
        view = room.narrow(d, 1, numbers.shape[d] * 2)
        view = view[(slice(None),) * d + (slice(None, None, 2),)]
        return view.copy_(numbers)
    if layout == "rows":
        room = numbers.new_zeros([*numbers.shape[:-1], numbers.shape[-1] + 3])
        return room[..., 1 : 1 + numbers.shape[-1]].copy_(numbers)
    if layout == "offset":
        return numbers.new_zeros(numbers.numel() + 5)[3:-2].view(numbers.shape).copy_(numbers)
    if layout == "expanded":
        few = torch.rand(dims, generator=generator) < 0.5
        kept = [1 if f else n for n, f in zip(numbers.shape, few.tolist(), strict=True)]
        return numbers[tuple(slice(n) for n in kept)].contiguous().expand(numbers.shape)
    if layout == "overlapping":
        strides = [1] * dims
        size = 1 + sum(n - 1 for n in numbers.shape)
        return numbers.reshape(-1)[:size].clone().as_strided(numbers.shape, strides)
    return numbers


@dataclasses.dataclass(frozen=True)
class Call:
    """An expression of operands, which are a, b, c and so on in it.

    Attributes:
        family: which function drew it.
        code: the expression.
        way: how it is called (ways.py).
        pointwise: whether an element of a result is as precise as itself, not as the largest one.
        exact: whether results are the same bits: nothing is rounded.
        strides: whether the results have to lie as on cpu.
        seed: of what the way of calling draws.
    """

    family: str
    code: str
    operands: tuple[Operand, ...] = ()
    way: str = "plain"
    pointwise: bool = False
    exact: bool = False
    strides: bool = True
    seed: int = 0

    def names(self) -> str:
        return string.ascii_letters[: len(self.operands)]

    def make(self) -> list[Tensor]:
        """The operands."""
        return [operand.make() for operand in self.operands]

    def most_elements(self) -> int:
        """Of any operand."""
        return max([1, *(math.prod(operand.shape) for operand in self.operands)])

    def script(self) -> str:
        """A program that judges this call, to be run in tests_py/fuzz."""
        return (
            "import sys; sys.path.insert(0, '..')\n"
            "import torch, torch_loom\nfrom calls.call import Call, Operand\n"
            f"from calls.verdict import judge\nprint(judge({self!r}))\n"
        )


def simpler(call: Call) -> list[Call]:
    """The same call with something left out: shorter reports of what still fails then."""
    made = [] if call.way == "plain" else [dataclasses.replace(call, way="plain")]
    for n, operand in enumerate(call.operands):
        for change in ({"layout": "dense"}, {"values": "normal"}, {"values": "whole"}):
            other = dataclasses.replace(operand, **change)
            if other != operand and (operand.values, change) != ("normal", {"values": "whole"}):
                operands = (*call.operands[:n], other, *call.operands[n + 1 :])
                made.append(dataclasses.replace(call, operands=operands))
    return made
