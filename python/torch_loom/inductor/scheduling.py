# SPDX-License-Identifier: BSD-3-Clause
"""Which nodes of a graph become one kernel: as Inductor decides for C++, with loom's kernels."""

from typing import Any

from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.utils import Placeholder
from torch._inductor.virtualized import V

from . import copies, programs
from .kernel_group import LoomKernelGroup
from .kernel_proxy import LoomKernelProxy, scatters

__all__ = ["LoomScheduling"]


class LoomScheduling(CppScheduling):
    """Schedules loop nests of loom. A class, not a function: Inductor asks what it derives from."""

    kernel_proxy_cls = LoomKernelProxy

    def reset_kernel_group(self) -> None:
        self.kernel_group = LoomKernelGroup()

    def can_fuse_vertical_outer_loop(self, node1: Any, node2: Any) -> bool:
        """Whether nests may share their outer loops, and so the blocks of one grid."""
        nodes = [*node1.get_nodes(), *node2.get_nodes()]
        return not any(scatters(node) for node in nodes) and bool(
            super().can_fuse_vertical_outer_loop(node1, node2)
        )

    def codegen_node(self, node: Any) -> None:
        """Write a nest: as a program, a copy, or in C++ as part of the group at hand."""
        nest = None if V.graph.cpp_wrapper else programs.nest_of(node.get_nodes())
        if nest is not None and nest.is_program():
            self.flush()
            self._write_program(nest)
        elif nest is not None and copies.is_copy(nest):
            self.flush()
            copies.write(nest)
        else:
            super().codegen_node(node)

    def _write_program(self, nest: programs.Nest) -> None:
        source, description = programs.write(nest)
        name = self._define_program(source, description)
        self.codegen_comment(nest.nodes, name)
        V.graph.wrapper_code.generate_kernel_call(
            name, nest.buffers, device=nest.nodes[0].get_device(), triton=False
        )

    def _define_program(self, source: str, description: str) -> str:
        wrapper = V.graph.wrapper_code
        if source not in wrapper.src_to_kernel:
            name = f"loom_{description}_{wrapper.next_kernel_suffix()}"
            wrapper.src_to_kernel[source] = name
            text = source.replace(str(Placeholder.DESCRIPTIVE_NAME), name)
            wrapper.define_kernel(name, text, gpu=False)
        return str(wrapper.src_to_kernel[source])
