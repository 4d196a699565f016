# SPDX-License-Identifier: BSD-3-Clause
"""Programs that are compiled: functions of tensors as data, called several times, and compared.

The steps are the body of the function. Each call has values of its own, where the shapes are
symbols sizes of its own, too. Nothing waits between the calls, and the host changes its numbers
right after each.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from support.program_checks import different_bits
from support.programs import RandomProgram, operand

MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "dynamic": {"dynamic": True},
    "reduce-overhead": {"mode": "reduce-overhead"},
    "dynamic reduce-overhead": {"mode": "reduce-overhead", "dynamic": True},
}
# Two calls of a replayed graph run as they are, the third one is captured.
CALLS = {"default": 3, "dynamic": 3, "reduce-overhead": 6, "dynamic reduce-overhead": 6}
VARIANTS = 3
"""How many sets of values there are; calls take one after the other."""

# Relative to the largest number on the way. Eager code rounds halves after each operator.
TOLERANCES = {
    torch.float64: 1e-12,
    torch.float32: 2e-5,
    torch.float16: 1e-2,
    torch.bfloat16: 6e-2,
}


@dataclass(frozen=True)
class Argument:
    """A parameter of the function.

    Attributes:
        code: makes a value of it, from those before, `make`, `on_cpu`, `call` and the sizes.
        gradient: whether it requires grad.
        leaf: whether what is passed is the leaf itself, which a function may not write.
        stays: whether each call passes the same tensor, with new numbers.
    """

    name: str
    code: str
    gradient: bool = False
    leaf: bool = True
    stays: bool = False


@dataclass(frozen=True)
class GraphProgram(RandomProgram):
    """A function: its steps are RandomProgram's, made from `seed`.

    Attributes:
        arguments: its parameters.
        results: names that are returned, those that there are.
        exact: the names among them that have one right result.
        sizes: of each variant, by their names.
        mode: how it is compiled, one of MODES.
        tolerance: of what has no one right result, relative to the largest number.
        scale: of the largest number on the way.
    """

    arguments: tuple[Argument, ...] = ()
    results: tuple[str, ...] = ()
    exact: frozenset[str] = frozenset()
    sizes: tuple[dict[str, int], ...] = field(default_factory=tuple)
    mode: str = "default"
    tolerance: float = 0.0
    scale: float = 1.0

    def returned(self) -> list[str]:
        made = {step.result for step in self.steps} | {a.name for a in self.arguments}
        return [name for name in self.results if name in made]

    def source(self) -> str:
        names = ", ".join(a.name for a in self.arguments)
        body = "".join(f"    {step.code}\n" for step in self.steps)
        return f"def function({names}):\n{body}    return [{', '.join(self.returned())}]\n"

    def globals(self, device: str) -> dict[str, Any]:
        """What the function sees beside its arguments."""
        return {"torch": torch}

    def script(self) -> str:
        """A script that checks the program, in tests_py/fuzz."""
        return (
            "import sys; sys.path.insert(0, '..')\nimport torch, torch_loom\n"
            f"from graph_programs import *\nfrom {type(self).__module__} import *\n"
            f"# {self.source()}".replace("\n    ", "\n#     ")
            + f"program = {self!r}\nprint(failure(program))\n"
        )


@dataclass
class Called:
    """What one call left: results and arguments, and how they share memory; gradients."""

    values: list[Any]
    forms: list[Any]
    gradients: list[torch.Tensor | None]


@functools.lru_cache(maxsize=64)
def numbers(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Small whole numbers on cpu, which nobody may write."""
    return operand(shape, dtype, seed, False).div(2, rounding_mode="trunc").to(dtype)


def scope_of(device: str, call: int, sizes: dict[str, int]) -> dict[str, Any]:
    """What codes of arguments and steps see."""

    def make(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
        return numbers(shape, dtype, 7 * seed + call).to(device, copy=True)

    def on_cpu(dtype: torch.dtype, seed: int) -> torch.Tensor:
        return operand((), dtype, 7 * seed + call, False).round()

    return {"torch": torch, "make": make, "on_cpu": on_cpu, "call": call, **sizes}


class Arguments:
    """The arguments of one program on one device, call after call."""

    def __init__(self, program: GraphProgram, device: str) -> None:
        self.program = program
        self.device = device
        self.staying: dict[str, Any] = {}

    def of_call(self, call: int) -> tuple[list[Any], list[torch.Tensor]]:
        """What is passed, and the leaves among and behind it."""
        variant = call % VARIANTS
        scope = scope_of(self.device, variant, self.program.sizes[variant])
        passed, leaves = [], []
        for argument in self.program.arguments:
            value = eval(argument.code, scope)
            if argument.gradient:
                value = value.detach().requires_grad_()
            if argument.stays and torch.is_tensor(value):
                with torch.no_grad():
                    value = self.staying.setdefault(argument.name, value).copy_(value)
            scope[argument.name] = value
            if argument.gradient:
                leaves.append(value)
            passed.append(value if argument.leaf else value.clone())
        return passed, leaves


def run(
    program: GraphProgram, device: str, *, compiled: bool = False, by_kernels: bool = False
) -> list[Called]:
    """All calls, one after the other, with results as they are when all have been made.
    `by_kernels`: no graph is replayed, and each call is waited for."""
    scope = program.globals(device)
    exec(compile(program.source(), "<program>", "exec"), scope)
    function: Callable[..., Any] = scope["function"]
    if compiled:
        torch._dynamo.reset()
        settings = MODES[program.mode]
        if by_kernels:
            settings = {name: value for name, value in settings.items() if name != "mode"}
            settings |= {"options": {"triton.cudagraph_trees": False}}
        function = torch.compile(function, **settings)
    arguments = Arguments(program, device)
    calls = []
    for call in range(CALLS[program.mode]):
        passed, leaves = arguments.of_call(call)
        calls.append(one_call(function, passed, leaves, keep=call % 3 != 1))
        if by_kernels:
            torch.accelerator.synchronize()
    for called in calls:
        called.values = [v.detach().cpu() if torch.is_tensor(v) else v for v in called.values]
        called.gradients = [None if g is None else g.detach().cpu() for g in called.gradients]
    return calls


def one_call(
    function: Callable[..., Any], passed: list[Any], leaves: list[torch.Tensor], keep: bool
) -> Called:
    with torch.set_grad_enabled(bool(leaves)):
        results = function(*passed)
        gradients = gradients_of(results, leaves)
    everything = [*results, *passed]
    forms = [*(form(value) for value in everything), *sharing(everything)]
    if not keep:
        everything = [v.detach().clone() if torch.is_tensor(v) else v for v in everything]
    elif passed:  # those that stay are written by the next call
        everything[len(results) :] = [
            v.detach().clone() if torch.is_tensor(v) else v for v in passed
        ]
        everything = unshared(everything, results, passed)
    for value in passed:
        if torch.is_tensor(value) and value.device.type == "cpu" and value.dim() == 0:
            value.fill_(99)
    return Called(everything, forms, gradients)


def unshared(everything: list[Any], results: list[Any], passed: list[Any]) -> list[Any]:
    """Results that are memory of an argument change with it: copies of those."""
    of_arguments = {storage(v) for v in passed if torch.is_tensor(v)}
    for i, result in enumerate(results):
        if torch.is_tensor(result) and storage(result) in of_arguments:
            everything[i] = result.detach().clone()
    return everything


def gradients_of(results: list[Any], leaves: list[torch.Tensor]) -> list[torch.Tensor | None]:
    roots = [r for r in results if torch.is_tensor(r) and r.requires_grad]
    if not roots or not leaves:
        return []
    cotangents = [torch.ones_like(root) * (1 + i) for i, root in enumerate(roots)]
    return list(torch.autograd.grad(roots, leaves, cotangents, allow_unused=True))


def storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def form(value: Any) -> Any:
    """What a tensor is beside its numbers."""
    if not torch.is_tensor(value):
        return type(value)
    pairs = zip(value.shape, value.stride(), strict=True)
    strides = [stride for size, stride in pairs if size > 1] if value.numel() > 0 else []
    return value.dtype, tuple(value.shape), strides, value.requires_grad


def sharing(values: list[Any]) -> list[tuple[int, int, int]]:
    """Which of them share memory, and how far apart they begin."""
    tensors = [(i, v) for i, v in enumerate(values) if torch.is_tensor(v) and v.numel() > 0]
    return [
        (i, j, b.storage_offset() * b.itemsize - a.storage_offset() * a.itemsize)
        for n, (i, a) in enumerate(tensors)
        for j, b in tensors[n + 1 :]
        if storage(a) == storage(b)
    ]


def different(program: GraphProgram, got: list[Called], wanted: list[Called]) -> str:
    """The first difference, in words."""
    names = [*program.returned(), *(a.name for a in program.arguments)]
    for call, (one, other) in enumerate(zip(got, wanted, strict=True)):
        if one.forms != other.forms:
            return f"call {call}: {names}: forms {one.forms} instead of {other.forms}"
        for i, name in enumerate(names):
            tolerance = 0.0 if name in program.exact else program.tolerance
            wrong = apart(one.values[i], other.values[i], tolerance, program.scale)
            if wrong:
                return f"call {call}: {name}: {wrong}"
        for i, (a, b) in enumerate(zip(one.gradients, other.gradients, strict=True)):
            # Where a function is constant, compiled code says so in numbers.
            a, b = (0 if x is None and y is None else x if x is not None else torch.zeros_like(y)
                    for x, y in ((a, b), (b, a)))  # fmt: skip
            wrong = apart(a, b, program.tolerance, 1.0)
            if wrong:
                return f"call {call}: gradient {i}: {wrong}"
    return ""


def apart(got: Any, wanted: Any, tolerance: float, scale: float) -> str:
    if not torch.is_tensor(wanted):
        return "" if got == wanted else f"{got!r} instead of {wanted!r}"
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return f"{got.dtype} {tuple(got.shape)} instead of {wanted.dtype} {tuple(wanted.shape)}"
    if wanted.numel() == 0:
        return ""
    a, b = got.double(), wanted.double()
    largest = torch.nan_to_num(b, 0.0, 0.0, 0.0).abs().max()
    bound = tolerance * torch.clamp(largest, min=scale)
    wrong = ~((a - b).abs() <= bound) & ~(a.isnan() & b.isnan()) & (a != b)
    if not wrong.any():
        return ""
    index = tuple(wrong.nonzero()[0].tolist())
    return (
        f"{int(wrong.sum())} of {wrong.numel()} elements of {wanted.dtype} {tuple(wanted.shape)}; "
        f"{got[index].item()!r} instead of {wanted[index].item()!r} at {index}"
    )


def different_bits_of(got: list[Called], wanted: list[Called]) -> str:
    """Of the same code: replays and timing change no bit (docs/design/compile.md)."""
    for call, (one, other) in enumerate(zip(got, wanted, strict=True)):
        pairs = zip((*one.values, *one.gradients), (*other.values, *other.gradients), strict=True)
        for n, (a, b) in enumerate(pairs):
            wrong = different_bits(a, b)
            if wrong:
                return f"call {call}: {n}: {wrong}, kernel by kernel"
    return ""


def attempt(program: GraphProgram, wanted: list[Called], device: str, compiled: bool) -> str:
    """What is wrong with a way to run it."""
    try:
        got = run(program, device, compiled=compiled)
        wrong = different(program, got, wanted)
        if wrong or not compiled or device == "cpu":
            return wrong
        return different_bits_of(got, run(program, device, compiled=True, by_kernels=True))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def failure(program: GraphProgram) -> str:
    """What loom does wrong with a program that is valid on cpu, eagerly or compiled."""
    try:
        wanted = run(program, "cpu")
    except Exception:
        return ""  # not a program: steps were dropped that others need
    wrong = attempt(program, wanted, "loom", compiled=False)
    if wrong:
        return f"eager: {wrong}"
    wrong = attempt(program, wanted, "loom", compiled=True)
    # What PyTorch compiles wrongly for the cpu as well is not loom's.
    return wrong if wrong and not attempt(program, wanted, "cpu", compiled=True) else ""
