# SPDX-License-Identifier: BSD-3-Clause
"""What the steps of random programs are made of: names, shapes, numbers, and calls of operators."""

import math
import random
from typing import Any

import torch

from support.programs import Step, scope_of

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
DTYPES = [*FLOATS, *INTEGERS, torch.bool]

# Around the widths of vectors, of reductions' lanes and of short rows.
SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 129, 257]
# What cpu raises for steps that are not valid.
INVALID = (RuntimeError, ValueError, TypeError, IndexError, OverflowError, AttributeError, Warning)

FLOAT_FUNCTIONS = """
sqrt rsqrt reciprocal floor ceil round trunc exp exp2 expm1 log log2 log10 log1p sin cos tan asin
acos atan sinh cosh tanh asinh acosh atanh erf lgamma sigmoid frac
nn.functional.silu nn.functional.gelu nn.functional.leaky_relu nn.functional.hardswish
nn.functional.softplus nn.functional.elu
""".split()
PLAIN_FUNCTIONS = """
abs neg sign sgn square relu logical_not bitwise_not isnan isinf isfinite positive clone
""".split()
ARITHMETIC = "add sub mul div maximum minimum".split()
OTHER_BINARY = """
pow atan2 hypot copysign fmod remainder fmax fmin logical_and logical_or logical_xor bitwise_and
bitwise_or bitwise_xor eq ne lt le gt ge rsub
""".split()
TERNARY = "where addcmul addcdiv lerp clamp".split()
REDUCTIONS = "sum mean amax amin".split()


class Vocabulary:
    """A program that grows. `scope` is what it has on cpu so far."""

    def __init__(self, seed: int, elements: int) -> None:
        self.random = random.Random(seed)
        self.elements = elements
        self.scope = scope_of("cpu", [])
        self.steps: list[Step] = []
        self.names: list[str] = []
        self.numbers: list[str] = []  # the names of zero-dimensional tensors on cpu
        self.made = 0
        self.special = self.chance(0.3)
        self.dense = self.chance(0.4)  # long programs, of operators on tensors of one shape
        self.dtypes = self.random.choices(DTYPES, weights=[6, 3, 4, 3, 1, 1, 2, 2, 1, 2], k=2)
        self.shape = self.some_shape()

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, items: Any) -> Any:
        return self.random.choice(items)

    def some_shape(self) -> tuple[int, ...]:
        dims = self.random.choices(range(6), weights=[1, 4, 8, 6, 3, 1])[0]
        for _ in range(100):
            shape = tuple(self.pick(SIZES) for _ in range(dims))
            if self.elements // 100 <= math.prod(shape) <= self.elements or dims == 0:
                break
        else:
            shape = tuple(self.pick(SIZES[:6]) for _ in range(dims))
        return (0, *shape[1:]) if shape and self.chance(0.03) else shape

    # --- names ---------------------------------------------------------------------------------

    def new_name(self) -> str:
        self.made += 1
        return f"v{self.made - 1}"

    def tensor(self, name: str) -> torch.Tensor:
        return self.scope[name]

    def some_name(self) -> str:
        """Rather a recent one: chains are what is fused."""
        if self.chance(0.5):
            return self.pick(self.names[-3:])
        return self.pick(self.names)

    def like(self, name: str) -> str:
        """Another name whose shape broadcasts with this one's."""
        for _ in range(8):
            other = self.some_name()
            try:
                torch.broadcast_shapes(self.tensor(name).shape, self.tensor(other).shape)
            except RuntimeError:
                continue
            return other
        return name

    def emit(self, code: str, result: str = "", uses: tuple[str, ...] = (), **more: Any) -> bool:
        """Adds the step if it is valid on cpu, and its result not too large."""
        try:
            exec(compile(code, "<step>", "exec"), self.scope)
        except INVALID:
            return False
        if result and result not in self.names:
            value = self.scope[result]
            if not torch.is_tensor(value) or value.numel() > 4 * max(self.elements, 64):
                return False
            self.names.append(result)
        self.steps.append(Step(code, result, uses, **more))
        return True

    def some_number(self) -> str:
        number = self.pick([0, 1, 2, -1, 3, 0.5, -0.5, 2.0, 0.1, -1.7, 1e-3, 100, 7])
        if self.special and self.chance(0.2):
            number = self.pick([math.nan, math.inf, -math.inf, 1e30, 300, -70000, -0.0])
        return "True" if self.chance(0.03) else repr(number)

    def value(self, name: str) -> tuple[str, tuple[str, ...]]:
        """An operand beside `name`, as code and names: a tensor or a number."""
        if self.chance(0.35):
            return self.some_number(), ()
        if self.numbers and self.chance(0.2):
            number = self.pick(self.numbers)
            return number, (number,)
        other = self.like(name)
        return other, (other,)

    def call(self, name: str) -> tuple[str, str, tuple[str, ...]]:
        """An operator of torch, its arguments, and the tensors among them."""
        kind = self.random.choices(["unary", "plain", "arithmetic", "binary", "ternary"],
                                   weights=[6, 4, 8, 5, 3])[0]  # fmt: skip
        if kind == "unary":
            function = self.pick(FLOAT_FUNCTIONS)
            more = ", approximate='tanh'" if "gelu" in function and self.chance(0.5) else ""
            return function, name + more, (name,)
        if kind == "plain":
            return self.pick(PLAIN_FUNCTIONS), name, (name,)
        if kind == "ternary":
            return self.ternary(name)
        code, used = self.value(name)
        if kind == "binary":
            function = self.pick(OTHER_BINARY)
            if function == "copysign" and any(self.tensor(n).isnan().any() for n in used):
                function = "hypot"  # the sign of NaN is nobody's promise
            return function, f"{name}, {code}", (name, *used)
        function = self.pick(ARITHMETIC)
        more = ""
        if function in ("add", "sub") and used and self.chance(0.3):
            more = f", alpha={self.some_number()}"
        if function == "div" and self.chance(0.3):
            more = f", rounding_mode={self.pick(['trunc', 'floor'])!r}"
        return function, f"{name}, {code}{more}", (name, *used)

    def ternary(self, name: str) -> tuple[str, str, tuple[str, ...]]:
        function = self.pick(TERNARY)
        b, c = self.like(name), self.like(name)
        if function == "clamp":
            if self.chance(0.3):
                return function, f"{name}, {b}, {c}", (name, b, c)
            bounds = self.pick([("-1", "1"), ("0", "None"), ("None", "2.5"), ("-0.5", "0.5")])
            return function, f"{name}, min={bounds[0]}, max={bounds[1]}", (name,)
        if function == "where":
            code, used = self.value(name)
            dtype = self.tensor(name).dtype
            if not used and not self.has_shape(f"torch.full((2,), {code}, dtype={dtype})", (2,)):
                code, used = b, (b,)  # cpu alone takes a number that the dtype does not have
            return function, f"{b} != {c}, {name}, {code}", (b, c, name, *used)
        if function == "lerp":
            weight = self.pick([c, self.some_number()])
            return function, f"{name}, {b}, {weight}", (name, b, c)
        return function, f"{name}, {b}, {c}, value={self.some_number()}", (name, b, c)

    def is_tame(self, name: str) -> bool:
        """Whether all is finite, and so are sums of it."""
        tensor = self.tensor(name)
        if not tensor.is_floating_point():
            return True
        return bool(tensor.abs().sum(dtype=torch.float64) < torch.finfo(tensor.dtype).max)

    def has_one_result(self, function: str, used: tuple[str, ...], arguments: str) -> bool:
        """Whether cpu's own result depends on nothing but its operands, up to rounding."""
        if "alpha=" in arguments:  # the product with alpha may overflow alone
            return self.is_finite_times(eval(arguments.partition("alpha=")[2], self.scope), used)
        if function == "pow":  # integers that overflow
            return all(self.tensor(n).is_floating_point() for n in used)
        # The last elements of a row take other code on cpu, which differs for huge operands.
        if function in ("sinh", "cosh"):
            tensors = [self.tensor(n).double() for n in used]
            return not any(((t.abs() > 10) & t.isfinite()).any() for t in tensors)
        return function not in ("fmod", "remainder", "div", "nn.functional.gelu") or all(
            self.is_tame(n) for n in used
        )

    def is_finite_times(self, factor: float, used: tuple[str, ...]) -> bool:
        tensors = [self.tensor(name) for name in used]
        floats = [t.dtype for t in tensors if t.is_floating_point()]
        if not floats:
            return True
        most = min(torch.finfo(dtype).max for dtype in floats) / max(abs(factor), 1.0)
        return all(bool((t.double().abs() <= most).all()) for t in tensors)

    @staticmethod
    def scale_of(arguments: str) -> float:
        scale = 1.0
        for word in arguments.replace("=", " ").replace(",", " ").split():
            try:
                number = abs(float(word))
            except ValueError:
                continue
            if math.isfinite(number):
                scale *= max(number, 1.0)
        return scale

    def has_shape(self, code: str, shape: tuple[int, ...]) -> bool:
        try:
            return eval(code, self.scope).shape == shape
        except INVALID:
            return False

    def fits(self, name: str, dtype: torch.dtype) -> bool:
        """Whether C++ says what the conversion gives."""
        tensor = self.tensor(name)
        if dtype.is_floating_point or dtype == torch.bool or not tensor.is_floating_point():
            return True
        info = torch.iinfo(dtype)
        wide = tensor.double()
        low, high = float(max(info.min, -(2**62))) - 1, float(min(info.max, 2**62))
        return bool(((wide > low) & (wide < high)).all())
