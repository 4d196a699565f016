# SPDX-License-Identifier: BSD-3-Clause
"""Tensors of more than 2^31 elements of which a test looks at the last rows only.

Fresh memory is the system's page of zeros until it is written, so an operand of which only the last
rows are written needs no memory for the others, and reading it takes no time to speak of.
"""

import torch

MANY = 2**31


def integers(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Small whole numbers: their sums are exact in every dtype, in any order."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-3, 4, shape, generator=generator).to(dtype)


def normals(*shape: int, dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def ending_with(last: torch.Tensor, rows: int, dim: int = 0, zeros: bool = False) -> torch.Tensor:
    """A tensor on loom with `rows` rows along `dim`, the last of which are `last`. The others are
    anything, or zeros."""
    sizes = list(last.shape)
    sizes[dim] = rows
    made = (torch.zeros if zeros else torch.empty)(sizes, dtype=last.dtype, device="loom")
    made.narrow(dim, rows - last.shape[dim], last.shape[dim]).copy_(last)
    return made


def assert_ends_with(
    actual: torch.Tensor, last: torch.Tensor, tolerance: float = 0.0, dim: int = 0
) -> None:
    """Requires that the last rows along `dim` are as `last`, which cpu has made."""
    count = last.shape[dim]
    part = actual.detach().narrow(dim, actual.shape[dim] - count, count).cpu()
    torch.testing.assert_close(part, last.detach(), rtol=tolerance, atol=tolerance)
