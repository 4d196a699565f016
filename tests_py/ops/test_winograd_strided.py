# SPDX-License-Identifier: BSD-3-Clause
"""7x7 convolutions of float32 with stride 2 by Winograd's algorithm."""

import random

import pytest
import torch
from convolution_checks import last_too
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

pytestmark = pytest.mark.thorough

# What sums of this size are off by in float32, with the transforms; outputs have a variance of 1.
NEARLY = 1e-5

Case = tuple[int, int, int, tuple[int, int], tuple[int, int]]


def numbers(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def suits(batch: int, channels: int, filters: int, rows: int, columns: int) -> bool:
    """As suits_winograd_strided() says, of the size of the result."""
    down, across = -(-rows // 2), -(-columns // 2)
    few = channels <= 8 and channels * across <= 4096
    return few and filters >= 24 and batch * down * across >= 384


def result_of(case: Case) -> tuple[int, int]:
    _, _, _, (height, width), (above, beside) = case
    return (height + 2 * above - 7) // 2 + 1, (width + 2 * beside - 7) // 2 + 1


def cases(count: int) -> list[Case]:
    """Batch, channels, filters, height and width, padding."""
    choose = random.Random(3)
    made: list[Case] = []
    while len(made) < count:
        batch, channels = choose.choice((1, 2, 5, 12)), choose.choice((1, 2, 3, 4, 8))
        filters = choose.choice((24, 31, 64, 65, 100))
        size = choose.randint(7, 90), choose.randint(7, choose.choice((30, 90, 400)))
        case = batch, channels, filters, size, (choose.randint(0, 6), choose.randint(0, 6))
        if suits(batch, channels, filters, *result_of(case)):
            made.append(case)
    return made


SPECIAL: list[Case] = [
    (1, 3, 64, (7, 1600), (3, 3)),  # a row of tiles
    (1, 3, 64, (1600, 7), (3, 3)),  # a column
    (1, 3, 64, (1600, 7), (0, 0)),  # half a tile across
    (8, 3, 64, (112, 112), (3, 3)),
    (100, 3, 24, (8, 8), (2, 2)),
]


def test_cases_are_for_what_is_tested() -> None:
    assert all(suits(*case[:3], *result_of(case)) for case in SPECIAL)


def operands(case: Case, last: bool, weights_last: bool) -> tuple[Tensor, Tensor, Tensor]:
    batch, channels, filters, size, _ = case
    weights = numbers(filters, channels, 7, 7, seed=2) / (7 * channels**0.5)
    return (
        last_too(numbers(batch, channels, *size, seed=1), last),
        last_too(weights, weights_last),
        numbers(filters, seed=3),
    )


@pytest.mark.parametrize("case", cases(40) + SPECIAL, ids=str)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("weights_last", [False, True])
def test_any_shape(case: Case, last: bool, weights_last: bool) -> None:
    images, weights, bias = operands(case, last, weights_last)
    with_bias = sum(case[:3]) % 2 == 1
    some = [images, weights] + [bias] * with_bias
    made = F.conv2d(*(each.to("loom") for each in some), stride=2, padding=case[-1])
    expected = F.conv2d(*(each.double() for each in some), stride=2, padding=case[-1])
    assert made.stride() == F.conv2d(*some, stride=2, padding=case[-1]).stride()
    torch.testing.assert_close(made.cpu().double(), expected, rtol=0, atol=NEARLY)


@pytest.mark.parametrize("case", SPECIAL, ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_what_follows_in_the_queue(case: Case, last: bool) -> None:
    images, weights, bias = operands(case, last, last)
    factor = numbers(len(weights), 1, 1, seed=4)

    def run(device: str, dtype: torch.dtype) -> Tensor:
        x, w, b, f = (each.to(device, dtype) for each in (images, weights, bias, factor))
        return torch.relu(F.conv2d(x, w, b, 2, case[-1]) * f + 1)

    made, expected = run("loom", torch.float32), run("cpu", torch.float64)
    torch.testing.assert_close(made.cpu().double(), expected, rtol=0, atol=4 * NEARLY)


@pytest.mark.parametrize("last", [False, True])
def test_gradients_of_a_first_layer(last: bool) -> None:
    """They are other kernels': what they get is the same."""
    images, weights, bias = operands((2, 3, 64, (64, 64), (3, 3)), last, last)

    def run(device: str, dtype: torch.dtype) -> tuple[Tensor, ...]:
        own = [each.to(device, dtype).requires_grad_() for each in (images, weights, bias)]
        return torch.autograd.grad(F.conv2d(*own, stride=2, padding=3).square().mean(), own)

    for made, expected in zip(run("loom", torch.float32), run("cpu", torch.float64), strict=True):
        torch.testing.assert_close(made.cpu().double(), expected, rtol=1e-4, atol=1e-5)
