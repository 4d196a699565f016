# SPDX-License-Identifier: BSD-3-Clause
"""Reads and writes by tensors of integers side by side: values of cpu, and its errors."""

import pytest
import torch
from compare import agrees, error_of, gradients_agree

SHAPE = (13, 17, 5, 6)
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64]
# Sizes of the two indices: vectors, one block and several; matrices; what is repeated; a number.
SIZES = [((40,), (40,)), ((9000,), (9000,)), ((4, 10), (4, 10)), ((4, 1), (7,)), ((), (3,))]


def numbers(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 3) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).mul(4).to(dtype)


def places(shape: tuple[int, ...], items: int, seed: int = 4) -> torch.Tensor:
    return torch.randint(-items, items, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reads(dtype: torch.dtype, sizes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    x = numbers(SHAPE, dtype)
    i, j = places(sizes[0], 13), places(sizes[1], 17, 5)
    k = places(torch.broadcast_shapes(*sizes), 5, 6)
    torch.loom.reset_fallbacks()
    agrees(lambda x, i, j: x[i, j], x, i, j)
    agrees(lambda x, i, j: x[i.int(), j], x, i, j)
    agrees(lambda x, j, k: x[:, j, k], x, j, k)
    agrees(lambda x, j: x[:, j], x, j)
    agrees(lambda x, i, j, k: x[i, j, k, k], x, i, j, k)
    agrees(lambda x, i, k: x[i, :, k], x, i, k)
    assert torch.loom.fallbacks() == {}


def test_results_lie_as_indices_do() -> None:
    x, j = numbers(SHAPE, torch.float32), places((4, 9), 17, 5)
    i = places((9, 4), 13).t()
    agrees(lambda x, i: x[i], x, i)
    agrees(lambda x, i: x[:, i], x, i)
    agrees(lambda x, i, j: x[i, j], x, i, j)
    agrees(lambda x, i, j: x[j % 13, i], x, i, j)
    agrees(lambda x, i: x[i, :, i % 5], x, i)
    agrees(lambda x, i: x.transpose(2, 3)[i[:, ::2]], x, i)
    agrees(lambda x, i: x[i[:1].expand(3, 9)], x, i)
    agrees(lambda x, i: x[i[0], i[1]], x, i)
    agrees(lambda x, i: x[i.t()[:, ::2]], x, i)
    agrees(lambda x, i: x[i], x, i.t().contiguous().as_strided((9, 3), (1, 1)))
    agrees(lambda x, i: x[:, i.t()[1:, :3]], x, i)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_writes(dtype: torch.dtype) -> None:
    x = numbers(SHAPE, dtype)
    once = torch.randperm(13 * 17, generator=torch.Generator().manual_seed(7))[:50]
    i, j, values = once // 17, once % 17 - 17, numbers((50, 5, 6), dtype, 8)
    agrees(lambda x, i, j, v: x.index_put((i, j), v), x, i, j, values)
    agrees(lambda x, i, j, v: x.index_put((i, j), v[0, 0, 0]), x, i, j, values)
    agrees(lambda x, i, j, v: x.index_put((i[:3, None], j[:4]), v[:1, :1]), x, i, j, values)
    if dtype == torch.bool:
        return
    for sizes in SIZES:
        i, j = places(sizes[0], 13), places(sizes[1], 17, 5)
        values = numbers((*torch.broadcast_shapes(*sizes), 5, 6), dtype, 8)
        agrees(lambda x, i, j, v: x.index_put((i, j), v, accumulate=True), x, i, j, values)
        agrees(lambda x, i, j, v: x.index_put((i, j), v[..., :1], accumulate=True), x, i, j, values)


def test_gradients_are_added_up() -> None:
    x, i, j = numbers((6, 7, 3), torch.float32), places((200,), 6), places((200,), 7, 5)
    gradients_agree(lambda x: x[i.to(x.device), j.to(x.device)], x)


@pytest.mark.parametrize("wrong", [17, -18])
def test_what_is_not_there_is_refused_in_words_of_cpu(wrong: int) -> None:
    x, i, j = numbers(SHAPE, torch.float32), places((600,), 13), places((600,), 17, 5)
    j[300] = wrong

    def read(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return x[i, j].cpu()

    def write(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return x.index_put((i, j), x[0, 0], accumulate=True).cpu()

    for function in (read, write):
        expected = error_of(function, x, i, j)
        found = error_of(function, *(t.to("loom") for t in (x, i, j)))
        assert found[0] == expected[0]
        assert found[1].split(" (asynchronous")[0] == expected[1]


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_a_matrix_of_indices_out_of_bounds_is_named_by_writes(count, accumulate):
    x = torch.zeros(4, 4, 5, device="loom")
    indices = [torch.tensor([[0, 1, 9], [1, 2, 3]], device="loom")] * count
    values = torch.ones(2, 3, *x.shape[count:], device="loom")
    x.index_put_(indices, values, accumulate=accumulate)
    with pytest.raises(IndexError, match="index 9 is out of bounds for dimension"):
        torch.loom.synchronize()
