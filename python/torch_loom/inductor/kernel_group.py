# SPDX-License-Identifier: BSD-3-Clause
"""A group of loop nests that follow each other: one function of C++, one command of a stream."""

import contextlib
from typing import Any

from torch._inductor.codegen.cpp import BracesBuffer, KernelGroup
from torch._inductor.utils import Placeholder
from torch._inductor.virtualized import V

from .arguments import Argument, LoomKernelArgs, describe
from .blocks import Blocks

__all__ = ["INCLUDE", "LoomKernelGroup"]

INCLUDE = "#include <torch_loom/kernel.h>"
"""The first line of each generated source, which tells it from those for the cpu."""


class LoomKernelGroup(KernelGroup):
    """Collects the nests of scheduled nodes and writes the function around them.

    The function that the wrapper calls packs its arguments into a command and returns. The body
    runs on the stream's worker; it has the arguments that Inductor gives a kernel of the cpu.
    """

    args: LoomKernelArgs

    def __init__(self) -> None:
        self.args = LoomKernelArgs()
        self.loops_code = BracesBuffer()
        self.ws = Blocks(self.loops_code)
        self.stack = contextlib.ExitStack()
        self.stack.enter_context(self.ws)
        self.scheduled_nodes: list[Any] = []

    def new_kernel(self, cls: Any, *args: Any) -> Any:
        # The number of threads only decides whether scattered sums need atomic operations: one
        # block makes them (kernel_proxy.py).
        return cls(self.args, 1, *args)

    def finalize_kernel(self, new_kernel: Any, nodes: list[Any]) -> None:
        self.scheduled_nodes += nodes
        self.args.device_index = nodes[0].get_device().index or 0
        with self.loops_code.indent():
            new_kernel.codegen_loops(self.loops_code, self.ws)

    def codegen_group(self, name: str | None = None) -> str:
        self.stack.close()
        if not self.scheduled_nodes:
            return ""
        function = str(Placeholder.KERNEL_NAME) if name is None else name
        label = str(Placeholder.DESCRIPTIVE_NAME) if name is None else name
        arguments = describe(self.args, self.scheduled_nodes)
        code = BracesBuffer()
        code.writelines(
            [INCLUDE, *(f"#include <torch_loom/{name}.h>" for name in ("functions", "masks"))]
        )
        self._write_body(code, f"{function}_body", arguments)
        _write_runner(code, function, arguments)
        _write_launcher(code, function, label, arguments, self.args)
        return str(code.getvalue())

    def call_kernel(self, wrapper: Any, kernel_name: str) -> None:
        _, call_args, arg_types = self.args.cpp_argdefs()
        device = self.scheduled_nodes[0].get_device()
        if V.graph.cpp_wrapper:  # a package runs on the device that it is loaded for
            call_args[-1] = wrapper.codegen_device_idx(device, call_args[-1])
        wrapper.generate_kernel_call(
            kernel_name,
            call_args,
            device=device,
            triton=False,
            arg_types=arg_types,
        )

    def _write_body(self, code: Any, name: str, arguments: list[Argument]) -> None:
        parameters = ["const LoomKernelGrid* grid", *(a.definition for a in arguments)]
        code.writeline(f"static void {name}({_lines(parameters)})")
        with code.indent():
            for old, new in self.args.aliases():
                code.writeline(f"auto {old} = {new};")
            code.splice(self.loops_code)


def _write_runner(code: Any, function: str, arguments: list[Argument]) -> None:
    code.writeline(
        f"static void {function}_run("
        "const LoomKernelGrid* grid, const LoomKernelArgument* arguments)"
    )
    with code.indent():
        unpacked = [a.unpacked(f"arguments[{i}]") for i, a in enumerate(arguments)]
        code.writeline(f"{function}_body({_lines(['grid', *unpacked])});")


def _write_launcher(
    code: Any, function: str, label: str, arguments: list[Argument], args: LoomKernelArgs
) -> None:
    definitions, _, _ = args.cpp_argdefs()
    code.writeline(f'extern "C" void {function}({_lines(definitions)})')
    with code.indent():
        packed = [a.packed() for a in arguments]
        if packed:  # C++ has no array of none
            code.writeline(f"const LoomKernelArgument arguments[] = {{{_lines(packed)}}};")
        code.writeline(
            f'loom_kernel_launch({args.DEVICE}, "{label}", &{function}_run, '
            f"{'arguments' if packed else 'nullptr'}, {len(packed)});"
        )


def _lines(items: list[str]) -> str:
    return ",\n    ".join(items)
