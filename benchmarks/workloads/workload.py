# SPDX-License-Identifier: BSD-3-Clause
"""What a workload is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

# What a user would hand to torch.compile; returned unchanged in eager contenders.
Wrap = Callable[[Any], Any]
Call = Callable[[], Sequence[torch.Tensor]]

COUNTED = -1


@dataclass(frozen=True)
class Workload:
    """One thing to time on every contender.

    Attributes:
        group (str): the module it is in.
        name (str): unique within group, size and dtype.
        make (callable): ``make(device, wrap)`` makes the same inputs on every device, from torch's
            seed, and returns the call to time. The call returns all of its results: they are kept
            until the device has finished, so that none of the work can be left out. It can be
            repeated for ever: what it changes in place stays finite.
        size (int): elements, where that is what is varied.
        dtype (torch.dtype): what it computes in.
        bytes (int): the least memory traffic: every input read once, every output written once.
        passes (int): how often it goes over its memory, each time for its share of the bytes.
        flops (int): floating-point operations of products; COUNTED asks PyTorch's counter.
        quick (bool): part of a quick run.
        common (bool): part of a run that names no sizes.
        peak_memory (bool): its peak memory is compared, too.
    """

    group: str
    name: str
    make: Callable[[str, Wrap], Call]
    size: int = 0
    dtype: torch.dtype = torch.float32
    bytes: int = 0
    passes: int = 1
    flops: int = 0
    quick: bool = False
    common: bool = True
    peak_memory: bool = False

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    @property
    def key(self) -> str:
        return f"{self.group}/{self.name}/{self.size}/{self.dtype_name}"


def total_bytes(tensors: Sequence[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
