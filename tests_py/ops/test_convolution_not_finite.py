# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions where an infinity or NaN is among the images, weights or gradients: it reaches those
pixels only that see it, and what is beside an image is not multiplied with it."""

from typing import Any

import pytest
import torch
from convolution_checks import Shape, last_too, normal
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

pytestmark = pytest.mark.thorough

INF, NAN = float("inf"), float("nan")


# For each way that some dtype and memory format takes.
SHAPES = {
    "tiles": Shape((2, 16, 40, 33), (24, 16, 3, 3)),
    "tiles of more than a panel": Shape((3, 33, 37, 30), (130, 33, 3, 3)),
    "tiles of padding": Shape((2, 40, 21, 22), (35, 40, 3, 3), padding=2),
    "many pixels": Shape((2, 16, 40, 33), (24, 16, 5, 5), padding=2),
    "few pixels": Shape((1, 130, 7, 7), (140, 130, 3, 3)),
    "one pixel": Shape((1, 65, 1, 1), (33, 65, 3, 3)),
    "tap by tap": Shape((5, 40, 4, 3), (50, 40, 3, 3)),
    "first layer": Shape((2, 3, 60, 60), (32, 3, 7, 7), stride=2, padding=3),
    "run by run": Shape((1, 2, 64, 64), (16, 2, 5, 5), padding=2),
    "strides": Shape((2, 32, 20, 20), (40, 32, 3, 3), stride=2),
    "no padding": Shape((1, 16, 30, 30), (16, 16, 5, 5), padding=0),
}
DTYPES = [torch.float32, torch.bfloat16]


def by_taps(images: Tensor, weights: Tensor, bias: Tensor | None, shape: Shape) -> Tensor:
    """In float64, of what each tap sees of the images: stock convolutions, too, multiply padding
    in some dtypes and shapes."""
    batch, _, height, width = images.shape
    filters, _, *kernel = weights.shape
    stride, pad = shape.stride, shape.padding
    rows, columns = (
        (size + 2 * pad - taps) // stride + 1
        for size, taps in zip((height, width), kernel, strict=True)
    )
    made = torch.zeros(batch, filters, rows, columns, dtype=torch.float64)
    for y in range(kernel[0]):
        for x in range(kernel[1]):
            down = [i for i in range(rows) if 0 <= i * stride + y - pad < height]
            across = [i for i in range(columns) if 0 <= i * stride + x - pad < width]
            if not down or not across:
                continue
            seen = images.double()[
                :,
                :,
                down[0] * stride + y - pad : down[-1] * stride + y - pad + 1 : stride,
                across[0] * stride + x - pad : across[-1] * stride + x - pad + 1 : stride,
            ]
            made[:, :, down[0] : down[-1] + 1, across[0] : across[-1] + 1] += torch.einsum(
                "bchw,fc->bfhw", seen, weights.double()[:, :, y, x]
            )
    return made if bias is None else made + bias.double()[:, None, None]


def operands(shape: Shape, dtype: torch.dtype, last: bool) -> tuple[Tensor, Tensor, Tensor]:
    # Images of one pixel lie in both orders: with weights in channels_last they are oneDNN's.
    last = last and shape.images[2:] != (1, 1)
    images, weights = normal(*shape.images, seed=3), normal(*shape.weights, seed=4)
    weights /= weights[0].numel() ** 0.5
    bias = normal(len(weights), seed=5)
    return last_too(images.to(dtype), last), last_too(weights.to(dtype), last), bias.to(dtype)


def spoil_images(images: Tensor) -> None:
    height, width = images.shape[2:]
    images[0, 1, 0, 0] = INF
    images[0, 0, height // 2, width // 2] = -INF
    images[0, -1, -1, 0] = INF
    images[-1, -1, -1, -1] = NAN


def spoil_weights(weights: Tensor) -> None:
    """Of some filters, which others must not notice."""
    weights[3, 0, 0, 0], weights[-1, 0, 0, 1] = INF, INF
    weights[5, 1, 2, 2] = -INF
    weights[7, 0, 1, 0] = NAN


def same(actual: Tensor, expected: Tensor, dtype: torch.dtype, **bounds: float) -> None:
    near: dict[str, Any] = (
        {"rtol": 2**-7, "atol": 2e-4} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    )
    near |= bounds
    torch.testing.assert_close(actual.cpu().double(), expected, equal_nan=True, **near)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("spoilt", ["images", "weights", "bias", "all"])
def test_forward(name: str, dtype: torch.dtype, last: bool, spoilt: str) -> None:
    shape = SHAPES[name]
    images, weights, bias = operands(shape, dtype, last)
    if spoilt in ("images", "all"):
        spoil_images(images)
    if spoilt in ("weights", "all"):
        spoil_weights(weights)
    if spoilt in ("bias", "all"):
        bias[2], bias[9] = INF, NAN
    made = F.conv2d(
        images.to("loom"), weights.to("loom"), bias.to("loom"), shape.stride, shape.padding
    )
    same(made, by_taps(images, weights, bias, shape), dtype)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("spoilt", ["gradient", "weights", "all"])
def test_gradient_of_the_images(name: str, dtype: torch.dtype, last: bool, spoilt: str) -> None:
    shape = SHAPES[name]
    images, weights, _ = operands(shape, dtype, last)
    x = images.double().requires_grad_()
    clean = by_taps(x, weights, None, shape)
    gradient = last_too(normal(*clean.shape, seed=6).to(dtype), last)
    if spoilt in ("gradient", "all"):
        spoil_images(gradient)
    if spoilt in ("weights", "all"):
        spoil_weights(weights)
    expected = torch.autograd.grad(by_taps(x, weights, None, shape), x, gradient.double())[0]
    own = images.to("loom").requires_grad_()
    made = F.conv2d(own, weights.to("loom"), None, shape.stride, shape.padding)
    same(torch.autograd.grad(made, own, gradient.to("loom"))[0], expected, dtype)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("spoilt", ["gradient", "images", "all"])
def test_gradient_of_the_weights(name: str, dtype: torch.dtype, last: bool, spoilt: str) -> None:
    """Taps that only see what is beside the image there stay as they are."""
    shape = SHAPES[name]
    images, weights, _ = operands(shape, dtype, last)
    w = weights.double().requires_grad_()
    gradient = last_too(normal(*by_taps(images, w, None, shape).shape, seed=6).to(dtype), last)
    if spoilt in ("gradient", "all"):
        spoil_images(gradient)
    if spoilt in ("images", "all"):
        spoil_images(images)
    expected = torch.autograd.grad(by_taps(images, w, None, shape), w, gradient.double())[0]

    def gradient_on(device: str, kind: torch.dtype = dtype) -> Tensor:
        own = weights.to(device, kind).requires_grad_()
        made = F.conv2d(images.to(device, kind), own, None, shape.stride, shape.padding)
        return torch.autograd.grad(made, own, gradient.to(device, kind))[0].to(dtype)

    made = gradient_on("loom").cpu()
    # What cpu's own algorithm does to an element is no fault of loom's where it calls the same one:
    # oneDNN rounds parts of bfloat16 sums, and multiplies the padding in some layouts. Processors
    # without products of bfloat16 take it in float32.
    for theirs in (gradient_on("cpu"), gradient_on("cpu", torch.float32)):
        as_on_cpu = (made == theirs) | (made.isnan() & theirs.isnan())
        expected = torch.where(as_on_cpu, theirs.double(), expected)
    largest = expected.nan_to_num(0, 0, 0).abs().max().item()
    same(made, expected, dtype, atol=largest * (2**-8 if dtype == torch.bfloat16 else 1e-6))
