# SPDX-License-Identifier: BSD-3-Clause
"""3x3 convolutions of bfloat16 by Winograd's algorithm in float32."""

import itertools
import random

import pytest
import torch
from convolution_checks import agree, last_too, numbers
from torch.nn import functional as F  # noqa: N812

# What the transforms are off by where sums almost cancel each other.
NEARLY = 2e-5

Case = tuple[int, int, int, tuple[int, int], tuple[int, int]]


def suits(batch: int, channels: int, filters: int, rows: int, columns: int) -> bool:
    """As suits_winograd_bfloat16() says, where the weights are transformed at once."""
    tiles = batch * -(-rows // 4) * -(-columns // 4)
    return batch * rows * columns >= 8 * (tiles * (1 + 6 / channels + 6 / filters) + 20)


def cases(count: int) -> list[Case]:
    """Batch, channels, filters, height and width, padding."""
    choose = random.Random(11)
    made: list[Case] = []
    while len(made) < count:
        channels, filters = (choose.choice((16, 17, 33, 64, 70, 150)) for _ in range(2))
        size = choose.randint(4, 40), choose.randint(4, choose.choice((10, 40, 300)))
        padding = choose.choice((0, 1, 1, 2)), choose.choice((0, 1, 1, 2))
        rows, columns = (
            length + 2 * beside - 2 for length, beside in zip(size, padding, strict=True)
        )
        batch = choose.choice((1, 2, 5))
        if suits(batch, channels, filters, rows, columns):
            made.append((batch, channels, filters, size, padding))
    return made


SPECIAL: list[Case] = [
    (16, 16, 16, (8, 8), (1, 1)),  # a block has tiles of several images
    (1, 16, 20, (6, 600), (0, 1)),  # more tiles side by side than are multiplied at a time
    (3, 20, 16, (9, 260), (2, 2)),
    (1, 400, 330, (47, 45), (1, 1)),
    # Many weights for few tiles: by panels of filters.
    (1, 130, 150, (16, 17), (1, 1)),
    (2, 300, 512, (14, 15), (1, 2)),
    (1, 64, 1000, (4, 260), (0, 1)),
    (3, 600, 65, (8, 8), (1, 1)),
    (1, 16, 512, (23, 21), (1, 1)),
]
LAYOUTS = list(itertools.product((False, True), repeat=2))


def weights_of(filters: int, channels: int) -> torch.Tensor:
    return numbers(filters, channels, 3, 3, seed=18) / (3 * channels**0.5)


@pytest.mark.parametrize("case", cases(40) + SPECIAL, ids=str)
@pytest.mark.parametrize(("last", "weights_last"), LAYOUTS, ids=str)
def test_any_shape(case: Case, last: bool, weights_last: bool) -> None:
    batch, channels, filters, size, padding = case
    agree(
        last_too(numbers(batch, channels, *size), last),
        last_too(weights_of(filters, channels), weights_last),
        numbers(filters, seed=19) if (batch + channels) % 2 else None,
        padding=padding,
        atol=NEARLY,
    )


@pytest.mark.parametrize("case", cases(12) + SPECIAL, ids=str)
@pytest.mark.parametrize(("last", "weights_last"), LAYOUTS, ids=str)
def test_gradients(case: Case, last: bool, weights_last: bool) -> None:
    batch, channels, filters, size, padding = case
    images = last_too(numbers(batch, channels, *size), last)
    weights = last_too(weights_of(filters, channels), weights_last)
    bias = numbers(filters, seed=19)
    rows, columns = (length + 2 * beside - 2 for length, beside in zip(size, padding, strict=True))
    gradient = last_too(numbers(batch, filters, rows, columns, seed=20), last)

    def run(device: str, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        own = [each.to(device, dtype).requires_grad_() for each in (images, weights, bias)]
        result = F.conv2d(*own, padding=padding)
        return torch.autograd.grad(result, own, gradient.to(device, dtype))

    actual, expected = run("loom", torch.bfloat16), run("cpu", torch.float64)
    on_cpu = run("cpu", torch.bfloat16)
    for ours, theirs, stock in zip(actual, expected, on_cpu, strict=True):
        assert ours.dtype == torch.bfloat16
        assert ours.stride() == stock.stride()
        # Those of the weights and the bias are long sums of numbers that almost cancel each other.
        atol = NEARLY if ours is actual[0] else 2**-7 * theirs.abs().max().item()
        torch.testing.assert_close(ours.cpu().double(), theirs, rtol=2**-8, atol=atol)


def test_only_the_gradient_of_the_images() -> None:
    images, weights = numbers(2, 32, 24, 24), weights_of(48, 32)
    gradient = numbers(2, 48, 24, 24, seed=20)
    made = torch.nn.grad.conv2d_input(images.shape, weights.to("loom"), gradient.to("loom"), 1, 1)
    expected = torch.nn.grad.conv2d_input(
        images.shape, weights.double(), gradient.double(), padding=1
    )
    torch.testing.assert_close(made.cpu().double(), expected, rtol=2**-8, atol=NEARLY)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
def test_what_is_not_finite_stays_where_it_is(last: bool, bad: float) -> None:
    """Anywhere in a tile and beside its edges."""
    size = 29
    for place in range(0, size * size, 37):
        images = last_too(numbers(1, 16, size, size), last)
        images[0, place % 16, place // size, place % size] = bad
        weights = last_too(weights_of(70, 16), last)
        expected = F.conv2d(images.double(), weights.double(), padding=1).bfloat16()
        actual = F.conv2d(images.to("loom"), weights.to("loom"), padding=1).cpu()
        torch.testing.assert_close(actual, expected, rtol=2**-7, atol=NEARLY, equal_nan=True)


@pytest.mark.parametrize("last", [False, True])
def test_numbers_that_only_the_transforms_overflow_with(last: bool) -> None:
    scale = 2.0**123
    images = last_too(numbers(1, 16, 24, 24) * scale, last)
    weights = last_too(weights_of(70, 16), last)
    agree(images, weights, padding=1, atol=NEARLY * scale)


@pytest.mark.parametrize("last", [False, True])
def test_a_filter_that_is_not_finite_leaves_the_others_alone(last: bool) -> None:
    images = last_too(numbers(2, 20, 20, 23), last)
    weights, bias = last_too(weights_of(70, 20), last), numbers(70, seed=19)
    weights[3, 2, 1, 0], weights[69, 0, 2, 2] = float("inf"), float("nan")
    bias[7] = float("nan")
    expected = F.conv2d(images.double(), weights.double(), bias.double(), padding=1).bfloat16()
    actual = F.conv2d(images.to("loom"), weights.to("loom"), bias.to("loom"), padding=1).cpu()
    torch.testing.assert_close(actual, expected, rtol=2**-7, atol=NEARLY, equal_nan=True)


def test_the_gradient_of_what_is_not_finite() -> None:
    images = numbers(1, 24, 24, 24).to("loom").requires_grad_()
    weights = weights_of(33, 24)
    gradient = numbers(1, 33, 24, 24, seed=20)
    gradient[0, 3, 5, 6] = float("inf")
    F.conv2d(images, weights.to("loom"), padding=1).backward(gradient.to("loom"))
    expected = F.conv_transpose2d(gradient.double(), weights.double(), padding=1).bfloat16()
    assert images.grad is not None
    torch.testing.assert_close(images.grad.cpu(), expected, rtol=2**-7, atol=NEARLY, equal_nan=True)


def test_operands_inside_other_tensors() -> None:
    """At odd places, and beside numbers that must not be read."""
    nan = float("nan")
    memory = torch.full((2 * 16 * 24 * 24 + 2,), nan).bfloat16()
    memory[1:-1] = numbers(2 * 16 * 24 * 24)
    filters = torch.full((18 * 16 * 9 + 2,), nan).bfloat16()
    filters[1:-1] = weights_of(18, 16).flatten()
    for last in (False, True):

        def image_view(tensor: torch.Tensor, last: bool = last) -> torch.Tensor:
            inner = tensor[1:-1]
            return (
                inner.view(2, 24, 24, 16).permute(0, 3, 1, 2) if last else inner.view(2, 16, 24, 24)
            )

        def weight_view(tensor: torch.Tensor, last: bool = last) -> torch.Tensor:
            inner = tensor[1:-1]
            return (
                inner.view(18, 3, 3, 16).permute(0, 3, 1, 2) if last else inner.view(18, 16, 3, 3)
            )

        actual = F.conv2d(image_view(memory.to("loom")), weight_view(filters.to("loom")), padding=1)
        expected = F.conv2d(image_view(memory).double(), weight_view(filters).double(), padding=1)
        torch.testing.assert_close(actual.cpu().double(), expected, rtol=2**-8, atol=NEARLY)


THREADS = """
import hashlib, torch
torch.manual_seed(3)
digest = hashlib.sha256()
for channels, filters, size in ((32, 70, 24), (16, 17, 61), (130, 64, 20)):
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(3, channels, size, size, device="loom").bfloat16()
        w = torch.randn(filters, channels, 3, 3, device="loom").bfloat16()
        x, w = (tensor.to(memory_format=layout).requires_grad_() for tensor in (x, w))
        y = torch.nn.functional.conv2d(x, w, padding=1)
        (dx,) = torch.autograd.grad(y.float().square().sum(), x)
        for tensor in (y, dx):
            digest.update(tensor.detach().cpu().view(torch.int16).numpy().tobytes())
print(digest.hexdigest())
"""


def test_results_do_not_depend_on_the_number_of_threads(check) -> None:
    assert len({check(THREADS, LOOM_THREADS=threads).out for threads in "123"}) == 1
