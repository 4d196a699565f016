# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of random operators share."""

import torch
from torch import Tensor

HALVES = [torch.float16, torch.bfloat16]
FLOATS = [*HALVES, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def empty(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(sizes, dtype=dtype, device="loom")


def seeded(seed: int = 1) -> torch.Generator:
    return torch.Generator("loom").manual_seed(seed)
