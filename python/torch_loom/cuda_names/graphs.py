# SPDX-License-Identifier: BSD-3-Clause
"""``torch.cuda.CUDAGraph`` and ``torch.cuda.graph``, with CUDA's arguments."""

from typing import Any, Literal

import torch

from .. import graphs
from .changes import Changes

__all__ = ["CUDAGraph", "apply", "graph"]

_Mode = Literal["default", "global", "thread_local", "relaxed"]


class CUDAGraph(torch.accelerator.Graph):
    """A graph of loom whose pool is chosen when the capture begins."""

    def __new__(cls, keep_graph: bool = False) -> "CUDAGraph":
        """Make an empty graph."""
        return super().__new__(cls, keep_graph)

    def __init__(self, keep_graph: bool = False) -> None:
        super().__init__(keep_graph)

    def capture_begin(
        self,
        pool: Any = None,
        capture_error_mode: _Mode = "global",
        check_input_liveness: bool = False,
    ) -> None:
        """Begin to capture what is done on the current stream.

        Args:
            pool (tuple, optional): memory to share with other graphs.
            capture_error_mode (str, optional): accepted; nothing breaks a capture from outside.
            check_input_liveness (bool): accepted; a graph keeps the memory that it reads.
        """
        if pool is not None:
            self.graph_pool = pool
        self.capture_error_mode = capture_error_mode
        super().capture_begin()

    def raw_cuda_graph(self) -> int:
        """Refuse: loom has no ``cudaGraph_t``."""
        raise RuntimeError(
            "CUDAGraph.raw_cuda_graph: expected a device of NVIDIA, got loom, whose graphs are no "
            "cudaGraph_t. debug_dump() writes what a graph holds"
        )

    raw_cuda_graph_exec = raw_cuda_graph
    get_graph_data = raw_cuda_graph


class graph(graphs.graph):  # noqa: N801  # a name of torch.cuda's
    """``torch.loom.graph`` with the names that ``torch.cuda.graph`` has for its arguments."""

    def __init__(
        self,
        cuda_graph: torch.accelerator.Graph,
        pool: Any = None,
        stream: torch.Stream | None = None,
        capture_error_mode: _Mode = "global",
        enable_annotations: bool = False,
        check_input_liveness: bool = False,
    ) -> None:
        self.cuda_graph = cuda_graph
        super().__init__(cuda_graph, pool, stream, capture_error_mode)


def apply(changes: Changes) -> None:
    """Put loom's graphs into ``torch.cuda``."""
    for module in (torch.cuda, torch.cuda.graphs):
        changes.set(module, "CUDAGraph", CUDAGraph)
        changes.set(module, "graph", graph)
