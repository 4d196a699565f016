# SPDX-License-Identifier: BSD-3-Clause
"""Operands whose elements lie apart or share memory give the results of their copies.

PyTorch's own kernels read wrong elements of some of them, so the oracle is cpu with copies.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from compare import assert_same, to_loom
from torch.nn import functional as F  # noqa: N812

Tensor = torch.Tensor


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5)).to(dtype)


def sliced(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return numbers(*shape[:-1], 2 * shape[-1], dtype=dtype)[..., ::2]


def assert_as_copies(function: Callable[..., Any], *operands: Tensor, strides: bool = True) -> None:
    copies = [each.clone(memory_format=torch.contiguous_format) for each in operands]
    expected = function(*copies)
    assert_same(function(*to_loom(list(operands))), expected, strides=strides)


CONVOLUTIONS = {
    "oneDNN's": ((2, 64, 14, 14), (64, 64, 3, 3), {"padding": 1}),
    "odd sizes": ((9, 34, 29, 39), (26, 34, 3, 3), {"padding": 1}),
    "few channels": ((1, 3, 32, 32), (8, 3, 3, 3), {}),
    "strided": ((4, 16, 20, 20), (16, 16, 3, 3), {"stride": 2}),
    "pixels": ((2, 64, 14, 14), (128, 64, 1, 1), {}),
    "depthwise": ((2, 64, 14, 14), (64, 1, 3, 3), {"groups": 64}),
    "signals": ((4, 16, 300), (32, 16, 5), {"padding": 2}),
    "volumes": ((2, 8, 6, 9, 9), (16, 8, 3, 3, 3), {"padding": 1}),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("last", [False, True], ids=["planes", "last"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_with_a_bias_that_lies_apart(name, last, dtype):
    images, weights, options = CONVOLUTIONS[name]
    x, w, b = numbers(*images), numbers(*weights) * 0.1, sliced(weights[0])
    if last and len(images) > 3:
        x = x.contiguous(
            memory_format=torch.channels_last if len(images) == 4 else torch.channels_last_3d
        )
    function = [F.conv1d, F.conv2d, F.conv3d][len(images) - 3]
    x, w, b = (each.to(dtype) for each in (x, w, b))
    b = torch.stack([b, b], -1).select(-1, 0)
    assert b.stride() == (2,)
    expected = function(x.double(), w.double(), b.double(), **options).to(dtype)
    assert_same(function(*to_loom([x, w, b]), **options), expected, strides=False)


@pytest.mark.parametrize("last", [False, True], ids=["planes", "last"])
def test_transposed_convolutions_with_a_bias_that_lies_apart(last):
    x, w, b = numbers(9, 34, 29, 39), numbers(34, 26, 3, 3), sliced(26)
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    expected = F.conv_transpose2d(x, w, b.contiguous(), padding=1)
    assert_same(F.conv_transpose2d(*to_loom([x, w, b]), padding=1), expected)


@pytest.mark.parametrize("shape", [(6, 9), (45, 64), (5, 70, 30), (300, 2000)], ids=str)
@pytest.mark.parametrize("name", ["median", "nanmedian", "mode", "kthvalue"])
def test_selections_of_elements_that_share_memory(name, shape):
    def select(x: Tensor, dim: int) -> Tensor:
        arguments = (2, dim) if name == "kthvalue" else (dim,)
        return getattr(torch, name)(x, *arguments)[0]

    for x in (numbers(*shape)[..., :1].expand(shape), numbers(*shape)[:1].expand(shape)):
        assert_as_copies(lambda x: select(x, -1), x)
        assert_as_copies(lambda x: select(x, 0), x)
    assert_as_copies(lambda x: select(x, -1), sliced(*shape))
    assert_as_copies(
        lambda x: select(x, 1), numbers(sum(shape)).as_strided(shape, (1,) * len(shape))
    )
    if "median" in name:
        assert_as_copies(getattr(torch, name), numbers(*shape)[:1].expand(shape))


def test_bags_whose_offsets_lie_apart():
    table, places = numbers(20, 8), torch.arange(12) % 20
    offsets = torch.tensor([0, 9, 3, 9, 3, 9, 8, 9, 12, 9])[::2]
    for table in (numbers(20, 8), numbers(20, 1).expand(20, 8), sliced(20, 8)):
        assert_as_copies(
            lambda t, p, o: F.embedding_bag(p, t, o, mode="sum", include_last_offset=True),
            table, places, offsets,
        )  # fmt: skip


@pytest.mark.parametrize("shape", [(1, 6, 3), (2, 6, 5, 4), (3, 4, 7)], ids=str)
def test_group_norm_of_elements_that_share_memory(shape):
    def norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        inner = x[0, 0].numel()
        return torch.native_group_norm(x, w, b, x.size(0), x.size(1), inner, 2, 1e-5)[0]

    for x in (numbers(*shape)[:, :1].expand(shape), numbers(*shape)[..., :1].expand(shape)):
        assert_as_copies(norm, x, numbers(shape[1]), numbers(shape[1]), strides=False)
    assert_as_copies(norm, numbers(*shape), sliced(shape[1]), sliced(shape[1]), strides=False)


@pytest.mark.parametrize(
    "shape", [(7, 2, 1, 54), (1, 1, 11, 5), (3, 4, 1, 1), (1, 3, 4, 5), (1, 1, 2, 4, 5)], ids=str
)
def test_norms_lie_as_on_cpu_where_a_dimension_has_one_element(shape):
    w = torch.ones(shape[1])
    norms = [
        lambda x, w: F.batch_norm(x, None, None, w, w, training=True),
        lambda x, w: F.batch_norm(x, w, w, w, w),
        lambda x, w: F.group_norm(x, 1, w, w),
    ]
    for x in orders(*shape):
        for norm in norms:
            expected = norm(x, w)
            on_loom = to_loom([x, w])
            assert on_loom[0].stride() == x.stride()
            assert norm(*on_loom).stride() == expected.stride(), x.stride()


def orders(*shape: int) -> Iterator[Tensor]:
    """Tensors of a shape, dense, with their dimensions in each order."""
    for order in itertools.permutations(range(len(shape))):
        dense = numbers(*(shape[d] for d in order))
        yield dense.permute([order.index(d) for d in range(len(shape))])


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(1, 3, 4, 5), (2, 3, 1, 5), (2, 3, 4, 5)], ids=str)
def test_gradients_of_batch_norms_in_all_layouts(shape, training):
    w, mean, spread = numbers(3), numbers(3) * 0.1, numbers(3).abs() + 0.5

    def gradients(grad: Tensor, x: Tensor, *vectors: Tensor) -> list[Tensor]:
        w, mean, spread = vectors
        running = (None, None) if training else (mean, spread)
        return torch.ops.aten.native_batch_norm_backward(
            grad, x, w, *running, mean, spread, training, 1e-5, [True] * 3
        )

    for x, grad in itertools.product(orders(*shape), orders(*shape)):
        given = (grad, x, w, mean, spread)
        copied = [each.contiguous().double() for each in given]
        expected = [each.float() for each in gradients(*copied)]
        found = gradients(*to_loom(list(given)))
        assert_same(found, expected, strides=False)
        assert found[0].stride() == gradients(*given)[0].stride(), (x.stride(), grad.stride())
