# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions of numbers of very different magnitude: what an element of the result is off by is
rounding of the products that it sums up, whatever else a faster algorithm mixes with them."""

from collections.abc import Callable

import pytest
import torch
from convolution_checks import Shape, last_too, normal
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

pytestmark = pytest.mark.thorough

SHAPES = {
    "tiles": Shape((2, 32, 28, 28), (40, 32, 3, 3)),
    "strides": Shape((2, 32, 28, 28), (40, 32, 3, 3), stride=2),
    "first layer": Shape((2, 3, 60, 60), (32, 3, 7, 7), stride=2, padding=3),
}


def one_element(size: float) -> Callable[[Tensor], None]:
    def set_it(tensor: Tensor) -> None:
        tensor[0, 1, 2, 1] = size

    return set_it


def one_channel(tensor: Tensor) -> None:
    tensor[:, 1] *= 1e8


def dark_half(tensor: Tensor) -> None:
    tensor[..., tensor.size(-1) // 2 :] *= 2.0**-30


def log_uniform(tensor: Tensor) -> None:
    exponents = torch.rand(tensor.shape, generator=torch.Generator().manual_seed(9)) * 120 - 60
    tensor.copy_(tensor.sign() * exponents.exp2())


def times(factor: float) -> Callable[[Tensor], None]:
    def scale(tensor: Tensor) -> None:
        tensor.copy_(tensor.double() * factor)

    return scale


def as_it_is(_: Tensor) -> None:
    pass


# What is done to the left operand, images or gradients, and to the right one, weights or images.
SPREADS: dict[str, tuple[Callable[[Tensor], None], Callable[[Tensor], None]]] = {
    "none": (as_it_is, as_it_is),
    "1e8": (one_element(1e8), as_it_is),
    "1e20": (one_element(1e20), as_it_is),
    "3e38": (one_element(3e38), times(0.1)),
    "1e8 on the right": (as_it_is, one_element(1e8)),
    "channel": (one_channel, as_it_is),
    "dark half": (dark_half, as_it_is),
    "log-uniform": (log_uniform, as_it_is),
    "both log-uniform": (log_uniform, log_uniform),
    "subnormal": (times(1e-39), as_it_is),
    "subnormal on the right": (as_it_is, times(1e-39)),
    "tiny on the right": (as_it_is, times(1e-36)),
    "huge and subnormal": (times(1e36), times(1e-39)),
}

Convolution = Callable[[Tensor, Tensor], Tensor]


def convolution(shape: Shape, pass_: str) -> tuple[tuple[int, ...], tuple[int, ...], Convolution]:
    """Shapes of the operands, and a function of them."""
    batch, _, height, width = shape.images
    filters, _, rows, columns = shape.weights
    made = (
        batch,
        filters,
        (height + 2 * shape.padding - rows) // shape.stride + 1,
        (width + 2 * shape.padding - columns) // shape.stride + 1,
    )
    if pass_ == "forward":
        return (
            shape.images,
            shape.weights,
            lambda x, w: F.conv2d(x, w, None, shape.stride, shape.padding),
        )
    backward = torch.ops.aten.convolution_backward
    steps = ([shape.stride] * 2, [shape.padding] * 2, [1, 1], False, [0, 0], 1)

    def image_gradient(gradient: Tensor, weights: Tensor) -> Tensor:
        images = last_too(
            torch.empty(shape.images, dtype=weights.dtype, device=weights.device),
            not weights.is_contiguous(),
        )
        return backward(gradient, images, weights, None, *steps, (True, False, False))[0]

    def weight_gradient(gradient: Tensor, images: Tensor) -> Tensor:
        weights = last_too(
            torch.empty(shape.weights, dtype=images.dtype, device=images.device),
            not images.is_contiguous(),
        )
        return backward(gradient, images, weights, None, *steps, (False, True, False))[1]

    if pass_ == "image gradient":
        return made, shape.weights, image_gradient
    return made, shape.images, weight_gradient


def in_units(made: Tensor, exact: Tensor, sums: Tensor, dtype: torch.dtype, terms: int) -> float:
    """The largest error, of what rounding one product of each sum's magnitude is off by."""
    unit = torch.finfo(dtype).eps / 2
    # Subnormal numbers have an absolute precision.
    floor = terms**0.5 * 2.0 ** (-133 if dtype == torch.bfloat16 else -149)
    off = (made.cpu().double() - exact).abs()
    return (off / (unit * sums + floor)).max().item()


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("pass_", ["forward", "image gradient", "weight gradient"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("spread", SPREADS)
def test_errors_are_those_of_the_products(
    name: str, pass_: str, dtype: torch.dtype, last: bool, spread: str
) -> None:
    left_shape, right_shape, run = convolution(SHAPES[name], pass_)
    left, right = normal(*left_shape, seed=1).to(dtype), normal(*right_shape, seed=2).to(dtype)
    SPREADS[spread][0](left)
    SPREADS[spread][1](right)
    left, right = last_too(left, last), last_too(right, last)
    exact, sums = run(left.double(), right.double()), run(left.double().abs(), right.double().abs())
    terms = SHAPES[name].images[1] * 9
    made = in_units(run(left.to("loom"), right.to("loom")), exact, sums, dtype, terms)
    on_cpu = in_units(run(left, right), exact, sums, dtype, terms)
    # Plain sums on cpu are off by up to 32 where one product outweighs the others.
    assert made <= max(32, 2 * on_cpu)
