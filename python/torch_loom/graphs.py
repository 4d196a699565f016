# SPDX-License-Identifier: BSD-3-Clause
"""Graphs: what a stream is asked to do, captured once and run again as one command.

The names are those of :mod:`torch.cuda`. A graph is a :class:`torch.accelerator.Graph`, which works
by itself as a context manager too; ``graph()`` adds a stream to capture on.
"""

from types import TracebackType
from typing import ClassVar, Literal

import torch

from . import _C
from .graphed_callables import make_graphed_callables
from .streams import Stream, StreamContext

__all__ = ["Graph", "graph", "graph_pool_handle", "make_graphed_callables"]

Graph = torch.accelerator.Graph
_Pool = tuple[int, int]


def graph_pool_handle() -> _Pool:
    r"""Return the id of a new memory pool, for several graphs to share.

    Graphs that share a pool use the same memory for what they no longer need, so they must be
    replayed in the order of their captures, one at a time.
    """
    return _C._graph_pool_handle()


class graph:  # noqa: N801  # a name of torch.cuda's
    r"""Context manager that captures what is done inside, on a stream of its own.

    Args:
        loom_graph (Graph): where the capture goes.
        pool (tuple, optional): memory to share with other graphs: ``graph_pool_handle()``, or
            ``pool()`` of another graph. Default: the graph's own choice.
        stream (Stream, optional): the stream to capture on. Default: one that all captures of the
            device share.
        capture_error_mode (str, optional): accepted for code written for CUDA: nothing that other
            threads do can break a capture.

    Raises:
        RuntimeError: where an operation cannot be captured, with its name and the reason; and again
            at the end of the ``with`` block.

    Example::

        >>> g = torch.loom.Graph()
        >>> with torch.loom.graph(g):
        ...     y = model(x)
        >>> x.copy_(batch)
        >>> g.replay()  # y has the new result
    """

    _streams: ClassVar[dict[int, Stream]] = {}

    def __init__(
        self,
        loom_graph: torch.accelerator.Graph,
        pool: _Pool | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: Literal["default", "global", "thread_local", "relaxed"] = "default",
    ) -> None:
        self.loom_graph = loom_graph
        if pool is not None:
            loom_graph.graph_pool = pool
        loom_graph.capture_error_mode = capture_error_mode
        if stream is None:
            device = torch.accelerator.current_device_index()
            stream = self._streams.setdefault(device, Stream(device))
        self._stream = StreamContext(stream)

    def __enter__(self) -> None:
        self._stream.__enter__()
        try:
            self.loom_graph.__enter__()
        except BaseException:
            self._stream.__exit__(None, None, None)
            raise

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.loom_graph.__exit__(exc_type, exc, traceback)
        finally:
            self._stream.__exit__(exc_type, exc, traceback)
