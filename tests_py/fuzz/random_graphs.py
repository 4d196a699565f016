# SPDX-License-Identifier: BSD-3-Clause
"""Random functions to compile: each step is run on cpu as it is made, with the values of each call,
and kept if it is valid there."""

import math
import random
import warnings
from dataclasses import replace
from typing import Any

import torch
from graph_programs import (
    MODES,
    TOLERANCES,
    VARIANTS,
    Argument,
    Arguments,
    GraphProgram,
    run,
)
from graph_vocabulary import (
    DISCONTINUOUS,
    INDEXED,
    MOVES,
    POINTWISE,
    PRODUCTS,
    REDUCTIONS,
    ROUGH,
    VIEWS,
    WRITES,
    codes,
)

from support.programs import Step, may_write

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
# Around the widths of vectors and tiles, and some that are cut into blocks.
SIZES = [0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 65, 100, 130, 257, 1000]
USUAL_ELEMENTS, MANY_ELEMENTS = 4000, 150_000
INVALID = (RuntimeError, ValueError, TypeError, IndexError, AttributeError, NotImplementedError)
INVALID += (ZeroDivisionError, OverflowError, Warning)
STEPS = {
    "pointwise": (codes(POINTWISE), 10),
    "rough": (codes(ROUGH), 5),
    "views": (codes(VIEWS), 6),
    "moves": (codes(MOVES), 3),
    "indexed": (codes(INDEXED), 3),
    "reductions": (codes(REDUCTIONS), 4),
    "writes": (codes(WRITES), 6),
    "products": (codes(PRODUCTS), 1),
    "casts": (["{x}.to({dtype})"], 3),
    "breaks": (["torch._dynamo.graph_break()"], 0.3),
}  # fmt: skip
# The tables whose results are rounded, or random.
INEXACT = {"rough", "networks", "random", "random writes"}


class Generator:
    """Makes one program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.mode = self.pick(list(MODES))
        self.elements = MANY_ELEMENTS if self.chance(0.15) else USUAL_ELEMENTS
        self.gradient = self.chance(0.6)
        self.dtypes = self.random.sample(FLOATS, 1) + (
            [] if self.chance(0.5) else self.random.sample(INTEGERS, self.random.randint(1, 2))
        )
        self.sizes = self.some_sizes()
        self.shape = ["B", "C"]
        self.arguments: list[Argument] = []
        self.steps: list[Step] = []
        self.tables = STEPS
        self.names: list[str] = []
        self.numbers: list[str] = []
        self.rough: set[int] = set()  # the memory of what is not exact, in the first variant
        self.scale = 1.0

    def pick(self, items):
        return self.random.choice(items)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    # --- arguments -----------------------------------------------------------------------------

    def some_sizes(self) -> tuple[dict[str, int], ...]:
        small = [size for size in SIZES if size <= 130]
        first = {name: self.pick(small if name != "A" else SIZES) for name in "ABCD"}
        if "dynamic" not in self.mode:
            return (first,) * VARIANTS
        # 0 and 1 are other functions to the compiler.
        return tuple(
            {
                name: size if n == 0 or size < 2 else max(2, size + self.random.randint(-3, 9))
                for name, size in first.items()
            }
            for n in range(VARIANTS)
        )

    def some_shape(self) -> list[str]:
        for _ in range(50):
            dims = self.random.choices(range(5), weights=[1, 4, 8, 5, 2])[0]
            shape = [self.pick("ABCD") if self.chance(0.85) else "1" for _ in range(dims)]
            if math.prod(self.sizes[0].get(name, 1) for name in shape) <= self.elements:
                return shape
        return ["2", "3"]

    def make_argument(self) -> None:
        name = f"a{len(self.arguments)}"
        kind = self.random.choices(
            ["tensor", "number", "host", "view", "same"], weights=[12, 1.5, 1.5, 1, 0.5]
        )[0]
        if kind == "number":
            code = self.pick(["call + 1", "3", "2.0", "call * 2.0", "call > 0"])
            self.add_number(Argument(name, code))
            return
        if kind == "host":
            dtype = self.pick([torch.float32, torch.float64, torch.int64])
            self.add_number(Argument(name, f"on_cpu({dtype}, {self.random.randrange(99)})"))
            return
        others = [a.name for a in self.arguments if a.name in self.names and not a.gradient]
        if kind in ("view", "same") and others:
            view = self.pick(["[1:]", ".t()", "[..., 0]", ".view(-1)"]) if kind == "view" else ""
            self.add_tensor(Argument(name, f"{self.pick(others)}{view}"))
            return
        dtype = self.pick(self.dtypes)
        gradient = self.gradient and dtype.is_floating_point and self.chance(0.8)
        code = self.tensor_code(dtype)
        self.add_tensor(
            Argument(
                name,
                code,
                gradient,
                leaf=not gradient or self.chance(0.8),
                stays="dynamic" not in self.mode and "expand" not in code and self.chance(0.4),
            )
        )

    def tensor_code(self, dtype: torch.dtype) -> str:
        shape = self.some_shape() if not self.arguments or self.chance(0.3) else self.like_shape()
        self.shape = shape
        view = ""
        dims = len(shape)
        kind = self.pick(["", "", "", "permuted", "sliced", "expanded", "offset"])
        if kind == "permuted" and dims > 1:
            order = self.random.sample(range(dims), dims)
            shape = [shape[d] for d in order]
            view = f".permute({[order.index(d) for d in range(dims)]})"
        elif kind == "sliced" and dims:
            d = self.random.randrange(dims)
            shape = [f"2 * {n} + 1" if i == d else n for i, n in enumerate(shape)]
            view = f"[{':, ' * d}1::2]"
        elif kind == "expanded" and dims:
            d = self.random.randrange(dims)
            full = ", ".join(shape)
            shape = ["1" if i == d else n for i, n in enumerate(shape)]
            view = f".expand({full})"
        elif kind == "offset" and dims:
            shape = [f"{shape[0]} + 2", *shape[1:]]
            view = "[1:-1]"
        sizes = "".join(f"{n}, " for n in shape)
        return f"make(({sizes}), {dtype}, {self.random.randrange(1000)}){view}"

    def like_shape(self) -> list[str]:
        """A shape that broadcasts with that of the last argument."""
        shape = list(self.shape)
        if shape and self.chance(0.3):
            shape[self.random.randrange(len(shape))] = "1"
        return shape[self.random.randrange(len(shape)) :] if self.chance(0.15) and shape else shape

    def add_tensor(self, argument: Argument) -> None:
        self.arguments.append(argument)
        self.names.append(argument.name)
        if not self.restart():
            self.arguments.pop()
            self.names.pop()
            self.restart()

    def add_number(self, argument: Argument) -> None:
        self.arguments.append(argument)
        self.numbers.append(argument.name)

    # --- steps ---------------------------------------------------------------------------------

    def scope(self, program: GraphProgram, call: int) -> dict[str, Any]:
        passed, _ = Arguments(program, "cpu").of_call(call)
        return {"torch": torch, **dict(zip((a.name for a in self.arguments), passed, strict=True))}

    def restart(self) -> bool:
        """Run all steps again, in each variant."""
        program = self.program()
        self.scopes = []
        try:
            for call in range(VARIANTS):
                scope = self.scope(program, call)
                self.scopes.append(scope)
                for step in self.steps:
                    exec(step.code, scope)
        except INVALID:
            return False
        return True

    def some_name(self) -> str:
        return self.pick(self.names[-3:]) if self.chance(0.5) else self.pick(self.names)

    def like(self, name: str) -> str:
        """Another name whose shape broadcasts with this one's, or a number of the host's."""
        if self.numbers and self.chance(0.15):
            return self.pick(self.numbers)
        for _ in range(8):
            other = self.some_name()
            try:
                torch.broadcast_shapes(self.tensor(name).shape, self.tensor(other).shape)
            except RuntimeError:
                continue
            return other
        return name

    def tensor(self, name: str) -> torch.Tensor:
        return self.scopes[0][name]

    def is_exact(self, name: str) -> bool:
        value = self.tensor(name)
        return not torch.is_tensor(value) or value.untyped_storage()._cdata not in self.rough

    def add_step(self) -> bool:
        table = self.random.choices(list(self.tables), [w for _, w in self.tables.values()])[0]
        return self.add_of(table, self.pick(self.tables[table][0]))

    def add_of(self, table: str, template: str) -> bool:
        if table == "breaks":
            self.steps.append(Step(template))
            return True
        code, used, index = self.fill(template)
        if not self.may_use(template, code, used, index):
            return False
        if "out={x}" in template and self.is_empty(used[0]):
            return False
        exact = table not in INEXACT and all(map(self.is_exact, used))
        uses = (*used, index) if "{i" in template else tuple(used)
        if table in ("writes", "random writes"):
            return self.may_write(used) and self.emit(code, used[0], uses, exact)
        result = f"v{len(self.steps)}"
        return self.emit(f"{result} = {code}", result, uses, exact)

    def fill(self, template: str, **more: str) -> tuple[str, list[str], str]:
        """The code with names in it: itself, those of tensors, that of the index if it has one."""
        x = self.some_name()
        y, z, index = self.like(x), self.like(x), self.some_name()
        dims = self.tensor(x).dim()
        d, e = (self.random.randrange(max(dims, 1)) for _ in range(2))
        at = f"({index}.reshape(-1).long() % {x}.shape[{{d}}])"
        turned = f"torch.arange({x}.shape[{{d}}], device={x}.device).flip(0)"
        # PyTorch's fake tensors want what index_fill writes on the device of what is written.
        hosted = self.numbers and "index_fill" not in template and self.chance(0.3)
        n = self.pick(self.numbers if hosted else ["1", "2", "3", "7"])
        code = template.format(
            x=x, y=y, z=z, d=d, e=e, n=n, before=":, " * d, dtype=self.pick(FLOATS + INTEGERS),
            i=at.format(d=d), i0=at.format(d=0), p=turned.format(d=d), p0=turned.format(d=0),
            **more,
        )  # fmt: skip
        names = (("{x", x), ("{y", y), ("{z", z))
        return code, [name for key, name in names if key in template], index

    def may_use(self, template: str, code: str, used: list[str], index: str) -> bool:
        if "{i" in template and not self.is_exact(index):
            return False
        if any(word in template for word in DISCONTINUOUS):
            return all(map(self.is_exact, used))
        to = next((dtype for dtype in INTEGERS if f".to({dtype})" in code), None)
        return to is None or (self.is_exact(used[0]) and self.fits(used[0], to))

    def fits(self, name: str, dtype: torch.dtype) -> bool:
        """Whether C++ says what the conversion gives."""
        values = [scope[name].detach() for scope in self.scopes]
        if dtype == torch.bool or not values[0].is_floating_point():
            return True
        info = torch.iinfo(dtype)
        return all(bool(((v >= info.min) & (v <= info.max)).all()) for v in values)

    def is_empty(self, name: str) -> bool:
        """Whether `out=` may resize the tensor, and with it the storage that views share."""
        return any(scope[name].numel() == 0 for scope in self.scopes)

    def may_write(self, used: list[str]) -> bool:
        """Whether the first of them may be written from the others."""
        others = [self.tensor(n) for n in used[1:] if torch.is_tensor(self.tensor(n))]
        return may_write(self.tensor(used[0]), others)

    def emit(
        self,
        code: str,
        result: str,
        uses: tuple[str, ...],
        exact: bool,
        others: tuple[str, ...] = (),
    ) -> bool:
        """Adds the step if it is valid in each variant, and gives numbers that can be compared.
        `others`: what it writes beside the result."""
        names = [name for name in (result, *others) if name]
        try:
            for scope in self.scopes:
                exec(code, scope)
            values = [scope[name] for name in names for scope in self.scopes]
            good = all(torch.is_tensor(v) and v.numel() <= 4 * self.elements for v in values)
            good = good and all(map(is_small, values))
        except INVALID:
            good = False
        if not good:
            if result in self.names:
                self.restart_with_roughness()
            return False
        self.steps.append(Step(code, result, uses))
        if result and result not in self.names:
            self.names.append(result)
        if not exact or not all(map(is_tame, values)):
            self.rough |= {self.tensor(name).untyped_storage()._cdata for name in names}
        floats = [v.detach() for v in values if v.is_floating_point() and v.numel() > 0]
        largest = [float(v.abs().max()) for v in floats]
        self.scale = max([self.scale, *largest])
        return True

    def tensors(self) -> list[str]:
        """The names of all tensors."""
        return self.names

    def restart_with_roughness(self) -> None:
        # Other memory, of the same names.
        rough = [name for name in self.tensors() if not self.is_exact(name)]
        self.restart()
        self.rough = {self.tensor(name).untyped_storage()._cdata for name in rough}

    # --- the program ---------------------------------------------------------------------------

    def program(self, results: tuple[str, ...] = ()) -> GraphProgram:
        floats = [d for s in self.steps for d in FLOATS if str(d) in s.code]
        floats += [d for a in self.arguments for d in FLOATS if str(d) in a.code]
        return GraphProgram(
            self.seed,
            tuple(self.steps),
            arguments=tuple(self.arguments),
            results=results,
            exact=frozenset(filter(self.is_exact, results)),
            sizes=self.sizes,
            mode=self.mode,
            tolerance=max((TOLERANCES[d] for d in [*floats, torch.float32]), default=0.0),
            scale=self.scale,
        )

    def make(self) -> GraphProgram:
        while not self.names:
            self.make_argument()
        for _ in range(self.random.randint(0, 3)):
            self.make_argument()
        self.restart()
        wanted = self.random.randint(3, 14)
        for _ in range(20 * wanted):
            if len(self.steps) >= wanted:
                break
            self.add_step()
        used = {name for step in self.steps for name in step.uses}
        some = self.random.sample(self.names, min(len(self.names), self.random.randint(0, 2)))
        results = [name for name in self.names if name not in used] + some
        return self.program(tuple(dict.fromkeys(results or self.names[-1:])))


def is_small(value: torch.Tensor) -> bool:
    if not value.is_floating_point() or value.numel() == 0:
        return True
    most = 1e3 if value.itemsize < 4 else 1e4
    return bool((value.abs() <= most).all())


def is_tame(value: torch.Tensor) -> bool:
    """Whether sums and products of it are exact for some steps."""
    if not value.is_floating_point() or value.numel() == 0:
        return True
    most = 64 if value.itemsize < 4 else 1024
    return bool(((value == value.round()) & (value.abs() <= most)).all())


def random_graph(seed: int) -> GraphProgram:
    """The program of a seed: always the same one."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a result that would be resized is not valid
        program = Generator(seed).make()
        try:
            run(program, "cpu")
            return program
        except INVALID:  # memory that backward needs was written
            pass
    return replace(program, arguments=tuple(replace(a, gradient=False) for a in program.arguments))
