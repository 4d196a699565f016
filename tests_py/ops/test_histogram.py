# SPDX-License-Identifier: BSD-3-Clause
"""Histograms of so many elements that they are counted in parts."""

import pytest
import torch
from compare import agrees

COUNTS = [65536, 200_001]


def numbers(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(count, dtype=dtype, generator=torch.Generator().manual_seed(count))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("count", COUNTS)
def test_parts_are_added_up(count: int, dtype: torch.dtype) -> None:
    x = numbers(count, dtype)
    for bins in (1, 7, 5000):
        agrees(lambda t, n=bins: torch.histc(t, n), x)
        agrees(lambda t, n=bins: torch.histc(t, n, -1, 1), x)
        agrees(lambda t, n=bins: torch.histogram(t, n), x)
        agrees(lambda t, n=bins: torch.histogram(t, n, range=(-0.5, 2.0)), x)
    agrees(lambda t: torch.histc(t[:, None].expand(-1, 2), 10), x)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("count", COUNTS)
def test_ends_that_are_no_numbers_are_refused_whatever_part_they_are_in(
    count: int, value: float
) -> None:
    for place in (0, count // 2, count - 1):
        x = numbers(count)
        x[place] = value
        for function in (torch.histc, torch.histogram):
            with pytest.raises(RuntimeError, match="is not finite"):
                function(x, 10)
            with pytest.raises(RuntimeError, match="is not finite"):
                function(x.to("loom"), 10)[0].cpu()
        agrees(lambda t: torch.histc(t, 10, -1, 1), x)
        agrees(lambda t: torch.histogram(t, 10, range=(-1.0, 1.0)), x)
