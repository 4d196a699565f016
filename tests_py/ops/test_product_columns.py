# SPDX-License-Identifier: BSD-3-Clause
"""Products with right operands of few columns, which are no whole vectors: planes of pixels."""

import pytest
import torch

COLUMNS = [3, 16, 17, 18, 20, 21, 47, 49, 50, 52, 121, 196, 197, 256, 257, 260, 784, 900]


def numbers(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def agree(actual: torch.Tensor, expected: torch.Tensor, inner: int) -> None:
    """Sums of `inner` products, in another order."""
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=1e-5, atol=1e-6 * inner)


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("inner", [16, 64, 160, 600, 1100])
@pytest.mark.parametrize("rows", [15, 64, 300])
def test_products(rows: int, inner: int, columns: int) -> None:
    left, right = numbers(rows, inner, seed=1), numbers(inner, columns, seed=2)
    bias = numbers(rows, 1, seed=3)
    product = left.double() @ right.double()
    on_loom = left.to("loom"), right.to("loom")
    agree(on_loom[0] @ on_loom[1], product, inner)
    added = torch.addmm(bias.to("loom"), *on_loom)
    agree(added, product + bias.double(), inner)


@pytest.mark.parametrize("columns", [49, 50, 196])
@pytest.mark.parametrize("batch", [2, 9])
def test_batches_and_what_follows_them(batch: int, columns: int) -> None:
    left, right = numbers(batch, 120, 96, seed=1), numbers(batch, 96, columns, seed=2)
    result = torch.relu(left.to("loom") @ right.to("loom")) + 1
    agree(result, torch.relu(left.double() @ right.double()) + 1, 96)


def test_columns_beside_others_are_not_read() -> None:
    """A part of a wider matrix, whose other columns hold no numbers."""
    left, wide = numbers(96, 80, seed=1), torch.full((80, 60), float("nan"))
    wide[:, 5:54] = numbers(80, 49, seed=2)
    right = wide.to("loom")[:, 5:54]
    agree(left.to("loom") @ right, left.double() @ wide[:, 5:54].double(), 80)
    result = torch.zeros(96, 60, device="loom")
    torch.mm(left.to("loom"), right, out=result[:, 5:54])
    assert not result[:, :5].any()
    assert not result[:, 54:].any()


def test_infinities_stay_in_their_columns() -> None:
    left, right = numbers(64, 64, seed=1), numbers(64, 49, seed=2)
    right[3, 48] = float("inf")
    actual = (left.to("loom") @ right.to("loom")).cpu()
    assert actual[:, :48].isfinite().all()
    assert not actual[:, 48].isfinite().any()
