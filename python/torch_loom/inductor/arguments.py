# SPDX-License-Identifier: BSD-3-Clause
"""The arguments of a generated kernel: how they travel, and which memory each of them touches.

A command lists the memory that it touches, so that errors stay with their values, profiles count
bytes, and graphs know their operands. Sizes are those of the buffers' layouts: numbers, or
expressions of the sizes that the kernel is given.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import sympy
from torch._inductor.codegen.common import KernelArgs
from torch._inductor.codegen.cpp_utils import cexpr_index
from torch._inductor.utils import sympy_product, sympy_subs
from torch._inductor.virtualized import V

from .host_operands import goes_by_value

__all__ = ["Argument", "LoomKernelArgs", "describe"]


class LoomKernelArgs(KernelArgs):
    """Inductor's, and one more: the device whose current stream runs the kernel."""

    DEVICE = "loom_device"

    device_index = 0

    def cpp_argdefs(
        self, dtype_to_cpp_type: dict[Any, str] | None = None
    ) -> tuple[list[str], list[str], list[str]]:
        definitions, calls, types = super().cpp_argdefs(dtype_to_cpp_type)
        return (
            [*definitions, f"const int64_t {self.DEVICE}"],
            [*calls, str(self.device_index)],
            [*types, "const int64_t"],
        )


@dataclass(frozen=True)
class Argument:
    """One argument of the body."""

    definition: str
    """As C++ declares it."""
    type: str
    access: str
    """A LoomKernelAccess, or "" for what goes by value."""
    bytes: str = ""

    @property
    def name(self) -> str:
        return self.definition.rsplit(" ", 1)[1]

    @property
    def _is_pointer(self) -> bool:
        return self.type.endswith("*")

    def packed(self) -> str:
        """How the launcher puts it into the command."""
        if self.access:
            return f"loom_kernel::memory({self.name}, {self.bytes}, {self.access})"
        kind = "host_scalar" if self._is_pointer else "number"
        return f"loom_kernel::{kind}({self.name})"

    def unpacked(self, place: str) -> str:
        """How the worker takes it out again."""
        type_ = self.type.removesuffix("*").removeprefix("const ")
        if self.access:
            constant = "const " if self.type.startswith("const ") else ""
            return f"loom_kernel::pointer<{constant}{type_}>({place})"
        kind = "pointer_to_value" if self._is_pointer else "value"
        return f"loom_kernel::{kind}<{type_}>({place})"


def describe(args: LoomKernelArgs, nodes: Iterable[Any]) -> list[Argument]:
    """The arguments of a group of nodes, in the order of `args.cpp_argdefs()`.

    Raises:
        RuntimeError: where a tensor of the host would be read later, or written at all.
    """
    made = _made_by(nodes)
    extents = {
        outer: _extent(args, outer) for outer in _buffers(args)
    }  # first: they may need sizes that are arguments, too
    definitions, calls, types = args.cpp_argdefs()
    arguments = []
    for definition, outer, type_ in zip(definitions[:-1], calls[:-1], types[:-1], strict=True):
        if not type_.endswith("*"):
            arguments.append(Argument(definition, type_, ""))
            continue
        reads = type_.startswith("const ")
        if _is_on_host(outer):
            _check_host_scalar(outer, reads)
            arguments.append(Argument(definition, type_, ""))
            continue
        count, dense = extents[outer]
        whole = dense and outer in made and outer not in args.inplace_buffers
        access = "Read" if reads else "Replace" if whole else "Update"
        size = V.graph.get_dtype(outer).itemsize
        arguments.append(Argument(definition, type_, f"kLoomKernel{access}", f"{count} * {size}"))
    return arguments


def _buffers(args: LoomKernelArgs) -> list[str]:
    _, calls, types = args.cpp_argdefs()
    return [
        outer
        for outer, type_ in zip(calls, types, strict=True)
        if type_.endswith("*") and not _is_on_host(outer)
    ]


def _made_by(nodes: Iterable[Any]) -> set[str]:
    """The buffers that these nodes write all over, whatever they held."""
    return {
        output.get_name()
        for node in nodes
        for output in node.get_outputs()
        if not output.get_mutations()
    }


def _is_on_host(name: str) -> bool:
    return bool(V.graph.get_buffer(name).get_device_or_error().type == "cpu")


def _check_host_scalar(name: str, reads: bool) -> None:
    buffer = V.graph.get_buffer(name)
    if reads and goes_by_value(buffer.get_size(), buffer.get_dtype()):
        return
    raise RuntimeError(
        f"torch.compile: expected tensors of loom for a kernel of loom, got {name} of the cpu, of "
        f"shape {list(buffer.get_size())}, to be {'read' if reads else 'written'} there. Move it "
        "to loom first"
    )


def _extent(args: LoomKernelArgs, name: str) -> tuple[str, bool]:
    """How many elements lie from a buffer's first to the end of its last, and if they all count."""
    layout = V.graph.get_buffer(name).get_layout()
    count = sympy_product(layout.size)
    last = sum(
        ((size - 1) * stride for size, stride in zip(layout.size, layout.stride, strict=True)),
        sympy.S.Zero,
    )
    sizevars = V.graph.sizevars
    dense = sizevars.statically_known_equals(count, last + 1) or (
        sizevars.statically_known_equals(count, 0)
    )
    elements = sizevars.simplify(count if dense else last + 1 + layout.offset)
    if isinstance(elements, sympy.Integer):
        return str(elements), bool(dense)
    names = {
        symbol: sympy.Symbol(args.size(symbol), integer=True, nonnegative=True)
        for symbol in sorted(elements.free_symbols, key=str)
    }
    return f"{cexpr_index(sympy_subs(elements, names))}", bool(dense)
