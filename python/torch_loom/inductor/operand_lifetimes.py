# SPDX-License-Identifier: BSD-3-Clause
"""How long the wrapper keeps what a product or convolution reads.

Operators that follow one join its command if they write nothing that it reads. Inductor frees an
operand behind the call that reads it last, and what comes next would be given its memory.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch._inductor.codegen import wrapper
from torch._inductor.utils import LineContext

from .. import _torch_features
from .._utils import is_loom

__all__ = ["outlive_epilogues"]

# What stands between two calls and starts nothing.
_QUIET_LINES = (
    wrapper.AssertSizeStrideLine,
    wrapper.CommentLine,
    wrapper.FreeLine,
    wrapper.KernelDefinitionLine,
    wrapper.MemoryPlanningLine,
    wrapper.MultiOutputLine,
    wrapper.UnbackedSymbolDefsLine,
    LineContext,
    # See GROUPED_LAYOUT_CHECKS.
    *_torch_features.existing(wrapper, ("GroupedAssertSizeStrideLine",)),
)
_JOINING_OPERATORS = (torch.ops.aten._native_batch_norm_legit_no_training.default,)


def outlive_epilogues(lines: Iterable[Any]) -> list[Any]:
    """The lines of a wrapper, with operands of producers freed behind what may join them.

    To be called before memory is planned: buffers are given to others where they are freed.
    """
    result: list[Any] = []
    kept: list[Any] = []  # what frees operands of the producer
    between: list[Any] = []  # since the last call
    operands: set[str] = set()
    for line in lines:
        if _is_quiet(line):
            between.append(line)
            continue
        if operands and _may_join(line):
            kept += [each for each in between if _frees(each, operands)]
            between = [each for each in between if not _frees(each, operands)]
        else:
            # Before the allocations for this call, which may take what is freed.
            between = kept + between
            kept, operands = [], _operands_of_producer(line)
        result += [*between, line]
        between = []
    return result + kept + between


def _is_quiet(line: Any) -> bool:
    if isinstance(line, str):
        return line.startswith(("#", "assert_alignment("))
    return isinstance(line, _QUIET_LINES)


def _frees(line: Any, names: set[str]) -> bool:
    return isinstance(line, wrapper.FreeIfNotReusedLine) and line.node.get_name() in names


def _may_join(line: Any) -> bool:
    if isinstance(line, wrapper.KernelCallLine):
        return line.kernel_name.startswith("loom_")
    return (
        isinstance(line, wrapper.ExternKernelAllocLine)
        and line.node.op_overload in _JOINING_OPERATORS
    )


def _operands_of_producer(line: Any) -> set[str]:
    if not isinstance(line, (wrapper.ExternKernelAllocLine, wrapper.ExternKernelOutLine)):
        return set()
    node: Any = line.node
    device = node.get_device()
    # Products and convolutions are what Inductor has such names for.
    is_producer = str(node.get_kernel_name()).startswith("extern_kernels.")
    on_loom = device is not None and is_loom(device)
    return {x.get_name() for x in node.inputs} if is_producer and on_loom else set()
