# SPDX-License-Identifier: BSD-3-Clause
"""Which nodes of a graph become one kernel: as Inductor decides for C++, with loom's kernels."""

from typing import Any

from torch._inductor.codegen.cpp import CppScheduling

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
