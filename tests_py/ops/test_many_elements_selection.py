# SPDX-License-Identifier: BSD-3-Clause
"""Selections, orders, inner products and recurrent layers of more than 2^31 elements."""

import pytest
import torch
from many_elements import MANY, assert_ends_with, ending_with, integers, normals
from torch.nn import functional

ROWS, COLUMNS = 2**21 + 2, 1024
SHORT = 16  # elements of a row, of which there are 2^27

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("memory_for_many_elements"),
]


def test_flip_and_roll() -> None:
    last = integers(3, COLUMNS, dtype=torch.int8)
    x = ending_with(last, ROWS)
    assert torch.equal(x.flip(0)[:3].cpu(), last.flip(0))
    assert torch.equal(x.flip(1)[-3:].cpu(), last.flip(1))
    assert torch.equal(x.roll(3, 0)[:3].cpu(), last)
    assert torch.equal(x.roll(5, 1)[-3:].cpu(), last.roll(5, 1))


def test_rows_by_index() -> None:
    table = integers(10, COLUMNS, dtype=torch.int8)
    rows = ending_with(torch.tensor([7, 2, 9]), ROWS, zeros=True)
    assert_ends_with(table.to("loom")[rows], table[[7, 2, 9]])
    x = ending_with(table, ROWS)
    assert torch.equal(x[rows[-3:] - 10].cpu(), table[[7 - 10, 2 - 10, 9 - 10]])


@pytest.mark.parametrize("name", ["median", "mode"])
def test_order_statistics_of_rows(name: str) -> None:
    last = integers(3, SHORT, dtype=torch.int8)
    x = ending_with(last, MANY // SHORT + 2, zeros=True)
    assert_ends_with(getattr(x, name)(1).values, getattr(last, name)(1).values)


def test_inner_products() -> None:
    last = integers(70, dtype=torch.bfloat16)
    x = ending_with(last, MANY + 70, zeros=True)
    assert torch.dot(x, x).item() == torch.dot(last, last).item()


def test_a_recurrent_layer() -> None:
    torch.manual_seed(0)
    layer = torch.nn.LSTM(513, 1, dtype=torch.bfloat16).requires_grad_(False)
    last = normals(2, 3, 513)
    expected = layer(last)[0]
    x = torch.empty(2, 2**21, 513, dtype=torch.bfloat16, device="loom")
    x[:, -3:] = last.to("loom")
    assert_ends_with(layer.to("loom")(x)[0], expected, 2e-2, dim=1)


def test_a_transposed_convolution() -> None:
    last, weight = normals(2, 64, 64, 64), normals(64, 1, 2, 2, seed=1)
    x = ending_with(last, 2**13 + 2)
    expected = functional.conv_transpose2d(last.float(), weight.float())
    made = functional.conv_transpose2d(x, weight.to("loom"))
    assert_ends_with(made.float(), expected, 0.2)
