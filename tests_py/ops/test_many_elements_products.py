# SPDX-License-Identifier: BSD-3-Clause
"""Matrix products with operands or results of 2^31 elements or bytes and more, each way."""

import pytest
import torch
from many_elements import assert_ends_with, ending_with, integers
from torch.nn import functional

BFLOAT16, FLOAT = torch.bfloat16, torch.float32

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("memory_for_many_elements"),
]


@pytest.mark.parametrize(
    ("dtype", "inner", "columns"),
    [(BFLOAT16, 32, 8), (BFLOAT16, 8, 32), (FLOAT, 16, 2), (FLOAT, 2, 16)],
)
def test_a_product_with_many_rows(dtype: torch.dtype, inner: int, columns: int) -> None:
    left, right = integers(40, inner, dtype=dtype), integers(inner, columns, dtype=dtype, seed=1)
    bias = integers(columns, dtype=dtype, seed=2)
    rows = ending_with(left, 2**26 + 5)
    assert_ends_with(rows @ right.to("loom"), left @ right)
    added = torch.addmm(bias.to("loom"), rows, right.to("loom"))
    assert_ends_with(added, torch.addmm(bias, left, right))


@pytest.mark.parametrize(
    ("dtype", "rows", "inner"),
    [(BFLOAT16, 8, 32), (BFLOAT16, 32, 8), (FLOAT, 2, 32), (FLOAT, 8, 16), (FLOAT, 16, 2)],
)
def test_a_product_with_many_columns(dtype: torch.dtype, rows: int, inner: int) -> None:
    left, right = integers(rows, inner, dtype=dtype), integers(inner, 40, dtype=dtype, seed=1)
    product = left.to("loom") @ ending_with(right, 2**26 + 6, dim=1)
    assert_ends_with(product, left @ right, dim=1)


# Each operand row-major or column-major; of the others only the last inner elements are multiplied.
@pytest.mark.parametrize("transposed", [(), ("left",), ("right",), ("left", "right")], ids=str)
@pytest.mark.parametrize(("dtype", "rows"), [(BFLOAT16, 24), (FLOAT, 24)])
def test_the_end_of_a_long_inner_dimension(
    dtype: torch.dtype, rows: int, transposed: tuple[str, ...]
) -> None:
    left, right = integers(rows, 64, dtype=dtype), integers(64, rows, dtype=dtype, seed=1)
    inner = 2**26 + 64 if dtype == BFLOAT16 else 2**25 + 64
    if "left" in transposed:
        long_left = ending_with(left.t(), inner).t()
    else:
        long_left = ending_with(left, inner, dim=1)
    if "right" in transposed:
        long_right = ending_with(right.t(), inner, dim=1).t()
    else:
        long_right = ending_with(right, inner)
    assert_ends_with(long_left[:, -64:] @ long_right[-64:], left @ right)


@pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT])
def test_a_long_inner_dimension(dtype: torch.dtype) -> None:
    left, right = integers(17, 64, dtype=dtype), integers(64, 2, dtype=dtype, seed=1)
    inner = 2**27 + 64 if dtype == BFLOAT16 else 2**25 + 64
    long_right = ending_with(right, inner, zeros=True)
    long_left = ending_with(left, inner, dim=1, zeros=True)
    assert_ends_with(long_left @ long_right, left @ right)


def test_many_products() -> None:
    left, right = integers(3, 32, 32, dtype=BFLOAT16), integers(32, 16, dtype=BFLOAT16, seed=1)
    batch = ending_with(left, 2**21 + 3)
    product = torch.bmm(batch, right.to("loom").expand(2**21 + 3, 32, 16))
    assert_ends_with(product, left @ right)


def test_a_few_large_products() -> None:
    inner = 3 * 2**14 + 8
    left, right = integers(8, inner, dtype=BFLOAT16), integers(inner, 16, dtype=BFLOAT16, seed=1)
    batch = ending_with(left, 3 * 2**14).view(3, 2**14, inner)
    product = torch.bmm(batch, right.to("loom").expand(3, inner, 16))
    assert_ends_with(product[-1], left @ right)


@pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT])
def test_a_matrix_of_many_elements_times_a_vector(dtype: torch.dtype) -> None:
    inner = 64 if dtype == BFLOAT16 else 32
    left, right = integers(40, inner, dtype=dtype), integers(inner, dtype=dtype, seed=1)
    assert_ends_with(ending_with(left, 2**25 + 5) @ right.to("loom"), left @ right)


def test_the_gradients_of_a_linear_layer() -> None:
    left, weight = integers(40, 32, dtype=BFLOAT16), integers(2, 32, dtype=BFLOAT16, seed=1)
    gradient = integers(40, 2, dtype=BFLOAT16, seed=2)
    rows = 2**25 + 5  # 2^31 bytes
    all_rows = ending_with(left, rows, zeros=True).requires_grad_()
    ours = weight.to("loom").requires_grad_()
    functional.linear(all_rows, ours).backward(ending_with(gradient, rows, zeros=True))
    assert ours.grad is not None
    assert all_rows.grad is not None
    assert_ends_with(ours.grad, gradient.t() @ left)
    assert_ends_with(all_rows.grad, gradient @ weight)
