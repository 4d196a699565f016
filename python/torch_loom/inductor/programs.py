# SPDX-License-Identifier: BSD-3-Clause
"""Nests that are recorded as eager operators are, instead of being compiled from C++.

Loom's own programs share commands with what is around them: a nest becomes a product's epilogue, or
one loop with the nest before it, and what nobody sees of it is not written. They are machine code
some microseconds after they are first seen, where a C++ compiler takes seconds.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch._inductor import config
from torch._inductor.codegen.common import InplacedBuffer, Kernel
from torch._inductor.codegen.cpp import CppOverrides
from torch._inductor.utils import Placeholder, get_fused_kernel_name
from torch._inductor.virtualized import V

from .. import _C
from .arguments import LoomKernelArgs
from .host_operands import goes_by_value
from .program_steps import NotAProgramError, Operand, Steps, Value

__all__ = [
    "Nest",
    "call_argument",
    "loom_empty",
    "loom_layouts",
    "loom_program",
    "nest_of",
    "write",
]

loom_program: Callable[..., Any] = _C._CompiledProgram
"""What generated code makes a program with."""

loom_layouts: Callable[..., Any] = _C._Layouts
"""What checks the sizes and strides of a graph's inputs, all in one call."""

loom_empty: Callable[..., torch.Tensor] = _C._empty_strided
"""What it allocates with: sizes, strides, dtype, index of the device."""

# As those of eager operators: rows of fewer columns, and single rows of more, are better shared.
_FEWEST_COLUMNS, _MOST_COLUMNS, _MOST_OF_ONE_ROW = 8, 65536, 8192


@dataclass
class Nest:
    """What a program does, and with which buffers."""

    nodes: Sequence[Any]
    reduced_dims: int
    sizes: tuple[int, ...]
    steps: list[tuple[Any, ...]]
    stored: dict[str, tuple[Operand, Value]]
    buffers: list[str] = field(default_factory=list)

    def is_program(self) -> bool:
        """Whether it is machine code here, which reads operands where they lie."""
        try:
            operands, steps = self.describe()
        except NotAProgramError:
            return False
        program = loom_program("", self.reduced_dims, operands, [_evaluated(s) for s in steps])
        return bool(program.runs_as_machine_code())

    def loads(self) -> list[Operand]:
        return [step[1] for step in self.steps if step[0] == "load"]

    def describe(self, removed: Any = ()) -> tuple[list[Any], list[Any]]:
        """Operands and steps as `loom_program` takes them, without stores to buffers `removed`."""
        kept = {n: stored for n, stored in self.stored.items() if n not in removed}
        order = self._order(kept)
        places = {step: place for place, step in enumerate(order)}
        self.buffers.clear()
        operands: list[Any] = []
        steps: list[Any] = []
        for number in order:
            name, *parts = self.steps[number]
            if name == "load":
                parts = [self._add(operands, parts[0])]
            steps.append((name, *(places[p.step] if isinstance(p, Value) else p for p in parts)))
        for operand, value in kept.values():
            steps.append(("store", self._add(operands, operand), places[value.step]))
        return operands, steps

    def _order(self, kept: dict[str, tuple[Operand, Value]]) -> list[int]:
        # Those that are used. A program's rows and columns are those of the first load.
        used: set[int] = set()
        waiting = [value.step for _, value in kept.values()]
        while waiting:
            step = waiting.pop()
            if step not in used:
                used.add(step)
                waiting += [p.step for p in self.steps[step] if isinstance(p, Value)]
        order = sorted(used)
        if self.reduced_dims:
            whole = [
                n
                for n in order
                if self.steps[n][0] == "load" and self.steps[n][1].is_whole(self.sizes)
            ]
            if not whole:
                raise NotAProgramError("rows that do not lie one after the other")
            order.remove(whole[0])
            order.insert(0, whole[0])
        return order

    def _add(self, operands: list[Any], operand: Operand) -> int:
        name = call_argument(operand.name)
        if name not in self.buffers:
            self.buffers.append(name)
        one = all(size == 1 for size in operand.sizes)
        sizes, strides = ((), ()) if one else (operand.sizes, operand.strides)
        row = (self.buffers.index(name), operand.dtype, operand.offset, sizes, strides)
        if row not in operands:
            operands.append(row)
        return operands.index(row)


class _ProgramKernel(Kernel[Any]):
    """Where Inductor notes which buffers nodes share, and which nobody else needs."""

    overrides = CppOverrides


def call_argument(name: str) -> str:
    """The buffer's name where the program is called."""
    if V.graph.scheduler:
        name = V.graph.scheduler.mutation_real_name.get(name, name)
    shared = getattr(V.kernel, "args", LoomKernelArgs()).inplace_buffers.get(name)
    return shared.other_names[-1] if isinstance(shared, InplacedBuffer) else name


def nest_of(nodes: Sequence[Any]) -> Nest | None:
    """The nest of these nodes, if its loops and steps are those of programs."""
    try:
        return _follow(nodes)
    except NotAProgramError:
        return None


def _follow(nodes: Sequence[Any]) -> Nest:
    groups = [node.group[1] for node in nodes]
    rows, columns = max(groups, key=lambda group: len(group[1]))
    if not all(isinstance(n, (int, sympy.Integer)) and n > 0 for n in (*rows, *columns)):
        raise NotAProgramError("sizes that are symbols")
    if columns:
        _check_rows(rows, columns)
    steps = Steps(tuple(map(int, rows)), tuple(map(int, columns)))
    row_variables = steps.variables[: len(rows)]
    column_variables = steps.variables[len(rows) :]
    for node, group in zip(nodes, groups, strict=True):
        if group == (rows, columns):
            arguments = row_variables, column_variables
        elif group == ((*rows, *columns), ()):
            arguments = steps.variables, []
        elif group == (rows, ()):
            arguments = row_variables, []
        else:
            raise NotAProgramError("loops of other sizes")
        steps.node = node
        with V.set_ops_handler(steps):
            node._body(*arguments)
    for operand in [step[1] for step in steps.steps if step[0] == "load"]:
        _check_device(operand)
    return Nest(nodes, len(columns), steps.sizes, steps.steps, steps.stored)


def _check_rows(rows: Sequence[Any], columns: Sequence[Any]) -> None:
    length = int(sympy.prod(columns))
    one = int(sympy.prod(rows)) == 1
    if not _FEWEST_COLUMNS <= length <= (_MOST_OF_ONE_ROW if one else _MOST_COLUMNS):
        raise NotAProgramError("rows that are short or long")


def _check_device(operand: Operand) -> None:
    buffer: Any = V.graph.try_get_buffer(operand.name)
    device = buffer.get_device() if buffer is not None else None
    if device is None or device.type not in ("cpu", "loom"):
        raise NotAProgramError("an operand of another device")
    if device.type == "cpu" and not goes_by_value(buffer.get_size(), operand.dtype):
        raise NotAProgramError("an operand of the host")


def _evaluated(step: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*step[:2], _number(step[2])) if step[0] == "number" else step


def _number(text: str) -> int | float:
    return int(text) if text.lstrip("-").isdigit() else float(text)


def write(nest: Nest) -> tuple[str, str]:
    """Allocate what the nest writes, and make it a part of the wrapper.

    Returns:
        The definition, with placeholders for names, and a name that describes it.
    """
    with _ProgramKernel(LoomKernelArgs()) as kernel:
        for node in nest.nodes:
            node.decide_inplace_update()
            node.mark_run()
        for operand in nest.loads():
            if operand.name not in nest.stored:
                kernel.args.input(operand.name)
        for name in nest.stored:
            kernel.args.output(name)
            kernel.store_buffer_names.add(name)
    V.graph.removed_buffers |= kernel.removed_buffers
    V.graph.inplaced_to_remove |= kernel.inplaced_to_remove
    with V.set_kernel_handler(kernel):
        operands, steps = nest.describe(kernel.removed_buffers | kernel.inplaced_to_remove)
    lines = [f"    {_literal(row)}," for row in (*operands, None, *steps)]
    split = len(operands)
    text = "\n".join(
        [
            f"loom_program('{Placeholder.DESCRIPTIVE_NAME}', {nest.reduced_dims}, [",
            *lines[:split],
            "], [",
            *lines[split + 1 :],
            "])",
        ]
    )
    return text, get_fused_kernel_name(nest.nodes, config.cpp.descriptive_names or "original_aten")


def _literal(value: Any) -> str:
    if isinstance(value, tuple):
        if value and value[0] == "number":
            number = _number(value[2])
            text = repr(number) if math.isfinite(number) else f"float('{number}')"
            return f"('number', {value[1]}, {text})"
        return "(" + "".join(f"{_literal(part)}, " for part in value) + ")"
    return str(value) if isinstance(value, torch.dtype) else repr(value)
