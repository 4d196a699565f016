# SPDX-License-Identifier: BSD-3-Clause
"""Operators on rows, planes and windows whose tensors have more than 2^31 elements."""

import pytest
import torch
from many_elements import assert_ends_with, ending_with, integers, normals
from torch.nn import functional

ROWS, COLUMNS = 2**21 + 2, 1024
IMAGES, CHANNELS, SIDE = 2**13 + 2, 64, 64
TOLERANCE = 2e-2  # bfloat16's

aten = torch.ops.aten

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("memory_for_many_elements"),
]


def test_softmax_and_its_gradient() -> None:
    last = normals(3, COLUMNS)
    for forward, backward in [
        (torch.softmax, torch._softmax_backward_data),
        (torch.log_softmax, torch._log_softmax_backward_data),
    ]:
        made, expected = forward(ending_with(last, ROWS), 1), forward(last, 1)
        assert_ends_with(made, expected, TOLERANCE)
        gradient = backward(made, made, 1, last.dtype)
        ends = made[-3:].cpu()
        assert_ends_with(gradient, backward(ends, ends, 1, last.dtype), 0.1)
        del made, gradient


def test_layer_norm() -> None:
    last, weight = normals(3, COLUMNS), normals(COLUMNS, seed=1)
    made = torch.native_layer_norm(
        ending_with(last, ROWS), (COLUMNS,), weight.to("loom"), None, 1e-5
    )
    expected = torch.native_layer_norm(last, (COLUMNS,), weight, None, 1e-5)
    for ours, theirs in zip(made, expected, strict=True):
        assert_ends_with(ours, theirs, TOLERANCE)


def test_the_gradients_of_layer_norm() -> None:
    last, weight = normals(3, COLUMNS), normals(COLUMNS, seed=1)
    _, mean, scale = torch.native_layer_norm(last, (COLUMNS,), weight, None, 1e-5)
    expected = aten.native_layer_norm_backward(
        last, last, (COLUMNS,), mean, scale, weight, weight, [True] * 3
    )
    x = ending_with(last, ROWS, zeros=True)
    means, scales = (ending_with(of, ROWS, zeros=True) for of in (mean, scale))
    ours = weight.to("loom")
    made = aten.native_layer_norm_backward(x, x, (COLUMNS,), means, scales, ours, ours, [True] * 3)
    for one, other in zip(made, expected, strict=True):
        assert_ends_with(one, other, TOLERANCE)


def test_group_norm() -> None:
    last = normals(3, CHANNELS, SIDE, SIDE)
    made = torch.native_group_norm(
        ending_with(last, IMAGES), None, None, IMAGES, CHANNELS, SIDE**2, 8, 1e-5
    )
    expected = torch.native_group_norm(last, None, None, 3, CHANNELS, SIDE**2, 8, 1e-5)
    for ours, theirs in zip(made, expected, strict=True):
        assert_ends_with(ours, theirs, TOLERANCE)


def test_the_gradient_of_group_norm() -> None:
    last, weight = normals(3, CHANNELS, SIDE, SIDE), normals(CHANNELS, seed=1)
    _, mean, scale = torch.native_group_norm(last, None, None, 3, CHANNELS, SIDE**2, 8, 1e-5)
    sizes, mask = (CHANNELS, SIDE**2, 8), [True, False, False]
    expected = aten.native_group_norm_backward(last, last, mean, scale, weight, 3, *sizes, mask)
    x, means, scales = (ending_with(of, IMAGES) for of in (last, mean, scale))
    made = aten.native_group_norm_backward(
        x, x, means, scales, weight.to("loom"), IMAGES, *sizes, mask
    )
    assert_ends_with(made[0], expected[0], TOLERANCE)


@pytest.mark.parametrize("channels_last", [False, True])
def test_batch_norm_and_its_gradients(channels_last: bool) -> None:
    last = normals(3, CHANNELS, SIDE, SIDE)
    if channels_last:
        x = ending_with(last.permute(0, 2, 3, 1), IMAGES, zeros=True).permute(0, 3, 1, 2)
    else:
        x = ending_with(last, IMAGES, zeros=True)
    count, pixels = IMAGES * SIDE**2, (0, 2, 3)
    exact = last.double()
    sums, squares = exact.sum(pixels), exact.square().sum(pixels)
    mean = sums / count
    scale = (squares / count - mean.square() + 1e-5).rsqrt()

    made = torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)
    most = mean.abs().max().item()
    assert_ends_with(made[1] / most, (mean / most).bfloat16(), TOLERANCE)
    assert_ends_with(made[2], scale.bfloat16(), TOLERANCE)
    per_channel = (CHANNELS, 1, 1)
    expected = (exact - mean.view(per_channel)) * scale.view(per_channel)
    assert_ends_with(made[0], expected.bfloat16(), TOLERANCE)
    del made

    # Of x with x as its output's gradient, a mean of 0 and a deviation of 1.
    zeros, ones = torch.zeros(CHANNELS, device="loom"), torch.ones(CHANNELS, device="loom")
    gradients = aten.native_batch_norm_backward(
        x, x, ones, None, None, zeros, ones, True, 1e-5, [True] * 3
    )
    expected = exact - (mean.view(per_channel) + exact * (squares / count).view(per_channel))
    assert_ends_with(gradients[0], expected.bfloat16(), TOLERANCE)
    assert_ends_with(gradients[1], squares.float(), TOLERANCE)
    assert_ends_with(gradients[2], sums.float(), TOLERANCE)


@pytest.mark.parametrize("sides", ["images", "one_image", "one_image_of_channels"])
def test_max_pooling(sides: str) -> None:
    if sides == "images":
        last = normals(3, CHANNELS, SIDE, SIDE)
        x, before = ending_with(last, IMAGES), 0
    elif sides == "one_image":
        last = normals(1, 1, 8, 2**15)
        x, before = ending_with(last, 2**16 + 8, dim=2), 2**31
    else:
        last = normals(1, 8, 2**14, 8).permute(0, 3, 1, 2)
        x = ending_with(last.permute(0, 2, 3, 1), 2**14 + 8, dim=1).permute(0, 3, 1, 2)
        before = 2**28
    made, places = functional.max_pool2d(x, 4, return_indices=True)
    expected, expected_places = functional.max_pool2d(last, 4, return_indices=True)
    dim = 0 if sides == "images" else 2
    assert_ends_with(made, expected, dim=dim)
    assert_ends_with(places, expected_places + before, dim=dim)


def test_average_pooling() -> None:
    last = normals(3, CHANNELS, SIDE, SIDE)
    x = ending_with(last, IMAGES)
    assert_ends_with(functional.avg_pool2d(x, 4), functional.avg_pool2d(last, 4))
    assert_ends_with(
        functional.adaptive_avg_pool2d(x, 1), functional.adaptive_avg_pool2d(last, 1), TOLERANCE
    )


@pytest.mark.parametrize("pool", [functional.max_pool2d, functional.avg_pool2d])
def test_the_gradient_of_pooling(pool) -> None:
    last = normals(3, CHANNELS, SIDE, SIDE).requires_grad_()
    expected = pool(last, 8)
    expected.backward(expected.detach())
    x = ending_with(last.detach(), IMAGES, zeros=True).requires_grad_()
    made = pool(x, 8)
    made.backward(made.detach())
    assert_ends_with(x.grad, last.grad)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("dim", [0, 2], ids=["images", "one_image"])
def test_interpolation(mode: str, dim: int) -> None:
    """float32 planes, which loom has a kernel for."""
    sizes, rows = ((3, 64, 64, 64), 2**13 + 2) if dim == 0 else ((1, 1, 64, 2**15), 2**16 + 64)
    last = normals(*sizes, dtype=torch.float32)
    made = functional.interpolate(ending_with(last, rows, dim=dim), scale_factor=0.25, mode=mode)
    expected = functional.interpolate(last, scale_factor=0.25, mode=mode)
    assert_ends_with(made, expected, 1e-5, dim=dim)


@pytest.mark.parametrize("mode", ["nearest2d", "bilinear2d"])
def test_the_gradient_of_interpolation(mode: str) -> None:
    last = normals(1, 1, 128, 2**15, dtype=torch.float32)
    backward = getattr(aten, f"upsample_{mode}_backward")
    corners = [False] if mode == "bilinear2d" else []

    def gradient(of: torch.Tensor) -> torch.Tensor:
        result = [of.shape[2], of.shape[3]]
        sizes = [1, 1, result[0] // 4, result[1] // 4]
        made: torch.Tensor = backward(of, result, sizes, *corners, 4.0, 4.0)
        return made

    expected = gradient(last)[:, :, 2:]  # the first rows have a part of what is before
    assert_ends_with(gradient(ending_with(last, 2**16 + 128, dim=2)), expected, 1e-4, dim=2)


def test_attention() -> None:
    last = normals(1, 8, 128, 64)
    for causal in (False, True):
        heads = ending_with(last, 2**15 + 1)
        made = functional.scaled_dot_product_attention(heads, heads, heads, is_causal=causal)
        expected = functional.scaled_dot_product_attention(last, last, last, is_causal=causal)
        assert_ends_with(made, expected, TOLERANCE)
        del heads, made


def test_attention_to_many_keys() -> None:
    """Keys of zeros weigh e^0 each, and their values add nothing."""
    last, queries = 8 * normals(1, 1, 64, 64), normals(1, 1, 4, 64, seed=1)
    before = 2**25
    keys = ending_with(last, before + 64, dim=2, zeros=True)
    made = functional.scaled_dot_product_attention(queries.to("loom"), keys, keys)
    scores = queries.double() @ last.double().transpose(-1, -2) / 8
    most = scores.amax(-1, keepdim=True)
    weights = (scores - most).exp()
    expected = weights @ last.double() / (weights.sum(-1, keepdim=True) + before * (-most).exp())
    assert_ends_with(made, expected.bfloat16(), 5e-2)


def test_embeddings() -> None:
    last = integers(3, COLUMNS, dtype=torch.bfloat16)
    which = torch.tensor([ROWS - 1, ROWS - 2, ROWS - 1])
    made = functional.embedding(which.to("loom"), ending_with(last, ROWS))
    assert_ends_with(made, last[which - (ROWS - 3)])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_gradient_of_embeddings(dtype: torch.dtype) -> None:
    last = integers(3, COLUMNS, dtype=dtype)
    which = torch.zeros(ROWS, dtype=torch.long)
    which[-3:] = torch.tensor([5, 3, 5])
    gradients = ending_with(last, ROWS)
    made = aten.embedding_dense_backward(gradients, which.to("loom"), 6, 0, False)
    assert_ends_with(made, aten.embedding_dense_backward(last, which[-3:], 6, 0, False)[3:])
