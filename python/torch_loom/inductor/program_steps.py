# SPDX-License-Identifier: BSD-3-Clause
"""Loop bodies of Inductor, written as the steps of a program of loom's.

A nest that programs cannot express raises :class:`NotAProgramError`; C++ is generated for it.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch._inductor.ops_handler import DefaultHandler
from torch._inductor.virtualized import V

__all__ = ["NotAProgramError", "Operand", "Steps", "Value"]

_WIDE = (torch.float32, torch.float64, torch.int32, torch.int64, torch.bool)
_NARROW_INTEGERS = (torch.uint8, torch.int8, torch.int16)
_HALVES = (torch.bfloat16, torch.float16)
_DTYPES = (*_WIDE, *_NARROW_INTEGERS, *_HALVES)

# Inductor's names of operations where programs have others.
_OF_FLOATS = {
    **{
        name: name
        for name in (
            "sqrt rsqrt reciprocal floor ceil round trunc exp exp2 expm1 log log2 log10 log1p sin "
            "cos tan asin acos atan sinh cosh tanh atanh erf lgamma pow atan2 hypot fmod copysign"
        ).split()
    },
    "truediv": "div",
    "div_rn": "div",
    "fma": "mul_add",
}
_OF_NUMBERS = {
    **{name: name for name in ("neg", "abs", "sign", "add", "sub", "mul")},
    "mul_rn": "mul",
}
_EXTREMA = {"maximum": ("maximum", "or"), "minimum": ("minimum", "and")}
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_BITS = {
    "and_": "and",
    "or_": "or",
    "xor": "xor",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "bitwise_not": "not",
}
_SHIFTS = {"bitwise_left_shift": "shift_left", "bitwise_right_shift": "shift_right"}
_TRUTHS = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor", "logical_not": "not"}
_REDUCTIONS = {"sum": "sum", "max": "max", "min": "min"}


class NotAProgramError(Exception):
    """What is said is no part of programs."""


@dataclass(frozen=True)
class Operand:
    """How a nest sees a buffer: the offset of the first element, sizes (the nest's or 1), strides.

    A tensor of the host without dimensions is a number.
    """

    name: str
    dtype: torch.dtype
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def lies_as(self, other: "Operand") -> bool:
        """Whether the same elements are meant, whatever the memory is called."""
        return dataclasses.replace(self, name=other.name) == other

    def is_whole(self, sizes: Sequence[int]) -> bool:
        """Whether it has these sizes, and lies there densely in their order."""
        stride = 1
        for size, own, step in reversed(list(zip(sizes, self.sizes, self.strides, strict=True))):
            if own != size or (size != 1 and step != stride):
                return False
            stride *= size
        return True


@dataclass(frozen=True)
class Value:
    """The result of a step."""

    step: int
    dtype: torch.dtype
    uniform: bool  # the same along the reduced dimensions
    half: bool = False  # exactly what a bfloat16 holds


class Steps(DefaultHandler):
    """Follows the bodies of a nest's nodes, and collects what they do.

    Args:
        rows: sizes of the dimensions that nothing is reduced over.
        columns: sizes of those that reductions reduce.
    """

    def __init__(self, rows: Sequence[int], columns: Sequence[int]) -> None:
        self.sizes = (*rows, *columns)
        self.variables = [sympy.Symbol(f"p{d}", integer=True) for d in range(len(self.sizes))]
        self.row_dims = len(rows)
        self.steps: list[tuple[Any, ...]] = []
        self.stored: dict[str, tuple[Operand, Value]] = {}
        self.node: Any = None  # whose body is followed
        # What loads find that come later, by all names of the memory.
        self._latest: dict[str, tuple[Operand, Value]] = {}
        self._known: dict[tuple[Any, ...], Value] = {}

    # Of memory.

    def load(self, name: str, index: sympy.Expr) -> Value:
        operand = self._operand(name, index)
        if name in self._latest:
            kept, value = self._latest[name]
            if not kept.lies_as(operand):
                raise NotAProgramError("a result is read elsewhere than it is written")
            return value
        uniform = all(size == 1 for size in operand.sizes[self.row_dims :])
        half = operand.dtype == torch.bfloat16
        return self._step(("load", operand), operand.dtype, uniform, half=half)

    def store(self, name: str, index: sympy.Expr, value: Value, mode: Any = None) -> None:
        operand = self._operand(name, index)
        rows = (*self.sizes[: self.row_dims], *(1,) * (len(self.sizes) - self.row_dims))
        fits = operand.sizes == self.sizes or (operand.sizes == rows and value.uniform)
        if mode is not None or not fits or name in self.stored:
            raise NotAProgramError("a store that adds, or several to one element")
        stored = (operand, self._rounded(value, operand.dtype))
        self.stored[name] = self._latest[name] = stored
        for other in self.node.get_output(name).get_mutations():
            if other in self._latest and not self._latest[other][0].lies_as(operand):
                raise NotAProgramError("a buffer is written twice, in several places")
            for before in [n for n, kept in self.stored.items() if self._latest.get(other) is kept]:
                del self.stored[before]  # which nobody sees
            self._latest[other] = stored

    def store_reduction(self, name: str, index: sympy.Expr, value: Value) -> None:
        self.store(name, index, value)

    def _operand(self, name: str, index: sympy.Expr) -> Operand:
        dtype = V.graph.get_dtype(name)
        if dtype not in _DTYPES:
            raise NotAProgramError(f"elements of {dtype}")
        index = sympy.expand(index)
        strides = [index.coeff(variable, 1) for variable in self.variables]
        pairs = zip(strides, self.variables, strict=True)
        offset = sympy.expand(index - sum(stride * variable for stride, variable in pairs))
        if not all(isinstance(n, sympy.Integer) and n >= 0 for n in (*strides, offset)):
            raise NotAProgramError("an index that is no sum of multiples")
        sizes = tuple(n if s != 0 else 1 for n, s in zip(self.sizes, strides, strict=True))
        if all(size == 1 for size in sizes):
            return Operand(name, dtype, int(offset), (1,) * len(sizes), (1,) * len(sizes))
        return Operand(name, dtype, int(offset), sizes, tuple(map(int, strides)))

    # Of values.

    def constant(self, value: Any, dtype: torch.dtype) -> Value:
        if not isinstance(value, (bool, int, float)) or dtype in _NARROW_INTEGERS:
            raise NotAProgramError("a number that is none of a program's")
        number = int(value) if dtype in (torch.int32, torch.int64) else float(value)
        as_wide = torch.float32 if dtype in _HALVES else dtype
        # The sign of a zero and what is not a number are no keys.
        step = ("number", as_wide, repr(number))
        return self._step(step, dtype, uniform=True, half=number in (0, 1, -1))

    def to_dtype(
        self,
        x: Value,
        dtype: torch.dtype,
        src_dtype: torch.dtype | None = None,
        use_compute_types: bool = True,
    ) -> Value:
        return self._rounded(x, dtype)

    def where(self, condition: Value, a: Value, b: Value) -> Value:
        a, b, dtype = self._alike(a, b)
        return self._step(("select", self._truth(condition), a, b), dtype)

    def relu(self, x: Value) -> Value:
        return self._extremum("maximum", x, self.constant(0, x.dtype))

    def asinh(self, x: Value) -> Value:
        magnitude = self._number_step("abs", x)
        far = self._float_step("copysign", self._log_of_twice(magnitude), x)
        return self._of_large(magnitude, far, self._float_step("asinh", x))

    def acosh(self, x: Value) -> Value:
        return self._of_large(x, self._log_of_twice(x), self._float_step("acosh", x))

    def sigmoid(self, x: Value) -> Value:
        one = self.constant(1.0, x.dtype)
        power = self._float_step("exp", self._number_step("neg", x))
        return self._float_step("div", one, self._number_step("add", one, power))

    def square(self, x: Value) -> Value:
        return self._number_step("mul", x, x)

    def isnan(self, x: Value) -> Value:
        self._require_floats(x)
        return self._step(("isnan", x), torch.bool)

    def isinf(self, x: Value) -> Value:
        self._require_floats(x)
        infinity = self.constant(math.inf, x.dtype)
        return self._step(("eq", self._number_step("abs", x), infinity), torch.bool)

    def identity(self, x: Value) -> Value:
        return x

    def reduction(
        self, dtype: torch.dtype, src_dtype: torch.dtype, reduction_type: str, value: Any
    ) -> Value:
        op = _REDUCTIONS.get(reduction_type)
        known = isinstance(value, Value) and value.dtype in (*_HALVES, *_WIDE[:2], torch.int64)
        if op is None or not known or value.uniform or self.row_dims == len(self.sizes):
            raise NotAProgramError(f"a reduction: {reduction_type}")
        return self._rounded(self._step((op, value), value.dtype, uniform=True), dtype)

    def output(self, *args: Any) -> None:
        pass

    def _default(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
        if not args or kwargs or not all(isinstance(value, Value) for value in args):
            raise NotAProgramError(name)
        if name in _OF_FLOATS:
            return self._float_step(_OF_FLOATS[name], *args)
        if name in _OF_NUMBERS:
            return self._number_step(_OF_NUMBERS[name], *args)
        if name in _SHIFTS and not any(x.dtype.is_floating_point for x in args):
            return self._number_step(_SHIFTS[name], *args)
        if name in _EXTREMA:
            return self._extremum(name, *args)
        if name in _COMPARISONS:
            return self._compare(name, *args)
        if name in _BITS:
            return self._bits(_BITS[name], *args)
        if name in _TRUTHS:
            return self._step((_TRUTHS[name], *map(self._truth, args)), torch.bool)
        raise NotAProgramError(name)

    def _float_step(self, op: str, *operands: Value) -> Value:
        *operands_, dtype = self._alike(*operands)
        self._require_floats(*operands_)
        if op == "div" and dtype != torch.float64 and self._is_softmax(*operands_):
            # As eager softmax divides: once a row.
            op, operands_[1] = "mul", self._step(("reciprocal", operands_[1]), dtype)
        return self._step((op, *operands_), dtype)

    def _number_step(self, op: str, *operands: Value) -> Value:
        *operands_, dtype = self._alike(*operands)
        if dtype == torch.bool or dtype in _NARROW_INTEGERS:
            raise NotAProgramError(f"{op} of {dtype}")
        shorter = self._near_normal_cdf(op, operands_) or self._half_of_twice(op, operands_)
        return shorter or self._step((op, *operands_), dtype)

    def _extremum(self, name: str, *operands: Value) -> Value:
        # Of equal operands the last one is the result: of zeros a bounded number, not its bound.
        operands = tuple(sorted(operands, key=lambda x: self.steps[x.step][0] != "number"))
        *operands_, dtype = self._alike(*operands)
        half = all(x.half for x in operands)
        return self._step((_EXTREMA[name][dtype == torch.bool], *operands_), dtype, half=half)

    def _compare(self, op: str, *operands: Value) -> Value:
        a, b, dtype = self._alike(*operands)
        if dtype == torch.bool and op not in ("eq", "ne"):
            a, b = (self._as(torch.int32, x) for x in (a, b))
        return self._step((op, a, b), torch.bool)

    def _bits(self, op: str, *operands: Value) -> Value:
        *operands_, dtype = self._alike(*operands)
        if dtype not in (torch.bool, torch.int32, torch.int64):
            raise NotAProgramError(f"bits of {dtype}")
        return self._step((op, *operands_), dtype)

    # Inverse hyperbolic functions of large numbers are logarithms of twice the number, in all
    # digits. Programs' own square the number, and overflow.

    def _log_of_twice(self, x: Value) -> Value:
        of_two = self.constant(math.log(2), x.dtype)
        return self._number_step("add", self._float_step("log", x), of_two)

    def _of_large(self, x: Value, far: Value, near: Value) -> Value:
        large = self._compare("gt", x, self.constant(1e10, x.dtype))
        return self.where(large, far, near)

    def _near_normal_cdf(self, op: str, operands: list[Value]) -> Value | None:
        # 1 + erf(x / sqrt 2) of a bfloat16 as eager gelu has it, from a table for such: twice the
        # normal distribution's function.
        if op != "add" or len(operands) != 2:
            return None
        for one, erf in (operands, operands[::-1]):
            if self.steps[one.step][::2] != ("number", "1.0") or self.steps[erf.step][0] != "erf":
                continue
            scaled = self.steps[self.steps[erf.step][1].step]
            if scaled[0] != "mul":
                continue
            for x, factor in (scaled[1:], scaled[:0:-1]):
                number = self.steps[factor.step]
                if not x.half or number[0] != "number" or x.dtype == torch.float64:
                    continue
                if math.isclose(float(number[2]), math.sqrt(0.5), rel_tol=1e-6):
                    cdf = self._step(("normal_cdf", x), erf.dtype)
                    return self._step(("add", cdf, cdf), erf.dtype)
        return None

    def _half_of_twice(self, op: str, operands: list[Value]) -> Value | None:
        # (x / 2) (y + y), which gelu is then: the same but for what is too small to be halved.
        # Numbers that are no probabilities may be too large to be doubled.
        if op != "mul":
            return None
        for half, twice in (operands, operands[::-1]):
            name, *parts = self.steps[half.step]
            other, *same = self.steps[twice.step]
            if (name, other) != ("mul", "add") or same[0] != same[1]:
                continue
            if self.steps[same[0].step][0] != "normal_cdf":
                continue
            if self.steps[parts[1].step][::2] == ("number", "0.5"):
                return self._step(("mul", parts[0], same[0]), half.dtype)
        return None

    def _is_softmax(self, power: Value, total: Value) -> bool:
        # exp(x - max(x)) over its sum, which is at least 1: no reciprocal is too large.
        (exp, *shifted), sum_ = self.steps[power.step], self.steps[total.step]
        if exp != "exp" or sum_[0] != "sum" or sum_[1].step != power.step:
            return False
        sub, *from_ = self.steps[shifted[0].step]
        if sub != "sub":
            return False
        x, maximum = from_
        step = self.steps[maximum.step]
        return bool(step[0] == "max" and step[1].step == x.step)

    def _require_floats(self, *operands: Value) -> None:
        if not all(x.dtype.is_floating_point for x in operands):
            raise NotAProgramError("a function of integers")

    def _alike(self, *operands: Value) -> Any:
        """The operands in registers of the dtype that they are promoted to, and that dtype."""
        dtype = operands[0].dtype
        for operand in operands[1:]:
            dtype = torch.promote_types(dtype, operand.dtype)
        return *(self._as(dtype, operand) for operand in operands), dtype

    def _truth(self, x: Value) -> Value:
        return self._as(torch.bool, x)

    def _as(self, dtype: torch.dtype, x: Value) -> Value:
        """The value in the register of a dtype, not rounded to it."""
        if _register(dtype) == _register(x.dtype):
            return Value(x.step, dtype, x.uniform, x.half)
        return self._step(("as", dtype, x), dtype, half=x.half)

    def _rounded(self, x: Value, dtype: torch.dtype) -> Value:
        if dtype == x.dtype and (dtype not in _HALVES or (x.half and dtype == torch.bfloat16)):
            return x
        if dtype not in _DTYPES:
            raise NotAProgramError(f"values of {dtype}")
        if dtype in _WIDE:
            return self._as(dtype, x)
        return self._step(("narrow", dtype, x), dtype, half=dtype == torch.bfloat16)

    def _step(
        self,
        step: tuple[Any, ...],
        dtype: torch.dtype,
        uniform: bool | None = None,
        half: bool = False,
    ) -> Value:
        # Values that differ in their dtypes only are one.
        operands = [part for part in step if isinstance(part, Value)]
        key = (*(part.step if isinstance(part, Value) else part for part in step),)
        if key not in self._known:
            if uniform is None:
                uniform = all(operand.uniform for operand in operands)
            self.steps.append(step)
            self._known[key] = Value(len(self.steps) - 1, dtype, uniform, half)
        known = self._known[key]
        return Value(known.step, dtype, known.uniform, known.half)


def _register(dtype: torch.dtype) -> str:
    if dtype in (torch.bool, torch.int64, torch.float64):
        return str(dtype)
    return "float" if dtype.is_floating_point else "int32"
