# SPDX-License-Identifier: BSD-3-Clause
"""3x3 convolutions of bfloat16 by Winograd's algorithm in float32."""

import random
from collections.abc import Callable

import pytest
import torch
from convolution_checks import agree, last_too, numbers, sums_in_float32
from torch.nn import functional as F  # noqa: N812

pytestmark = pytest.mark.thorough

# What the transforms are off by where sums almost cancel each other.
NEARLY = 2e-5

Case = tuple[int, int, int, tuple[int, int], tuple[int, int]]


def tiles_of(batch: int, rows: int, columns: int) -> int:
    return batch * -(-rows // 4) * -(-columns // 4)


def by_panels(channels: int, filters: int, tiles: int) -> bool:
    """As goes_by_panels() says."""
    return (
        filters > 64 and 2 * tiles**2 <= channels * filters and 144 * tiles * channels <= 30 << 20
    )


def suits(batch: int, channels: int, filters: int, rows: int, columns: int) -> bool:
    """As suits_winograd_bfloat16() says, of the size of the result."""
    tiles = tiles_of(batch, rows, columns)
    panels = by_panels(channels, filters, tiles)
    if min(channels, filters) < 16 or max(channels, filters) > (2048 if panels else 512):
        return False
    tile = 1 + 6 / channels + 6 / filters
    return batch * rows * columns >= 8 * (tiles * tile + (13 if panels else 20))


def suits_weights(batch: int, channels: int, filters: int, rows: int, columns: int) -> bool:
    """As suits_winograd_bfloat16_weights() says."""
    tiles, tile = tiles_of(batch, rows, columns), 1 + 10 / channels + 10 / filters
    across = min(512, (16 << 20) // (144 * (channels + filters)))
    return (
        min(channels, filters) >= 16
        and max(channels, filters) <= 512
        and -(-columns // 4) <= across
        and batch * rows * columns >= 8 * (tiles * tile + 8)
    )


def result_of(case: Case) -> tuple[int, int]:
    _, _, _, (height, width), (above, beside) = case
    return height + 2 * above - 2, width + 2 * beside - 2


def suits_forward(case: Case) -> bool:
    batch, channels, filters, _, _ = case
    return suits(batch, channels, filters, *result_of(case))


def suits_backward(case: Case) -> bool:
    batch, channels, filters, size, _ = case
    return suits(batch, filters, channels, *size) and suits_weights(
        batch, channels, filters, *result_of(case)
    )


def cases(count: int, suitable: Callable[[Case], bool]) -> list[Case]:
    """Batch, channels, filters, height and width, padding."""
    choose = random.Random(11)
    made: list[Case] = []
    while len(made) < count:
        channels, filters = (choose.choice((16, 17, 33, 64, 70, 150)) for _ in range(2))
        size = choose.randint(4, 40), choose.randint(4, choose.choice((10, 40, 300)))
        padding = choose.choice((0, 1, 1, 2)), choose.choice((0, 1, 1, 2))
        case = choose.choice((1, 2, 5)), channels, filters, size, padding
        if suitable(case):
            made.append(case)
    return made


SPECIAL: list[Case] = [
    (24, 16, 16, (8, 8), (1, 1)),  # a block has tiles of several images
    (1, 16, 20, (6, 600), (0, 1)),  # more tiles side by side than are multiplied at a time
    (3, 20, 16, (9, 260), (2, 2)),
    # Many weights for few tiles: by panels of filters.
    (1, 400, 330, (47, 45), (1, 1)),
    (1, 16, 512, (24, 24), (1, 1)),
    (1, 130, 150, (16, 18), (1, 1)),
    (2, 300, 512, (14, 15), (1, 2)),
    (1, 64, 1000, (4, 260), (1, 1)),
    (4, 600, 65, (8, 8), (1, 1)),
]
SPECIAL_BACKWARD: list[Case] = [
    (24, 40, 33, (8, 8), (1, 1)),
    (1, 33, 40, (23, 600), (1, 1)),
    (1, 330, 400, (47, 45), (1, 1)),  # several groups of tiles
    (1, 512, 64, (24, 24), (1, 1)),
    (2, 65, 300, (16, 18), (1, 2)),
]
# Images in the order of their dimensions with weights in channels_last have a result in
# channels_last: oneDNN's.
LAYOUTS = [(False, False), (True, False), (True, True)]


def test_cases_are_for_what_is_tested() -> None:
    assert all(suits_forward(case) for case in SPECIAL)
    assert all(suits_backward(case) for case in SPECIAL_BACKWARD)


def weights_of(filters: int, channels: int) -> torch.Tensor:
    return numbers(filters, channels, 3, 3, seed=18) / (3 * channels**0.5)


@pytest.mark.parametrize("case", cases(40, suits_forward) + SPECIAL, ids=str)
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


@sums_in_float32
@pytest.mark.parametrize("case", cases(20, suits_backward) + SPECIAL_BACKWARD, ids=str)
@pytest.mark.parametrize(("last", "weights_last"), LAYOUTS, ids=str)
def test_gradients(case: Case, last: bool, weights_last: bool) -> None:
    batch, channels, filters, size, padding = case
    images = last_too(numbers(batch, channels, *size), last)
    weights = last_too(weights_of(filters, channels), weights_last)
    bias = numbers(filters, seed=19)
    rows, columns = result_of(case)
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


@sums_in_float32
def test_only_the_gradient_of_the_images() -> None:
    images, weights = numbers(2, 32, 24, 24), weights_of(48, 32)
    gradient = numbers(2, 48, 24, 24, seed=20)
    made = torch.nn.grad.conv2d_input(images.shape, weights.to("loom"), gradient.to("loom"), 1, 1)
    expected = torch.nn.grad.conv2d_input(
        images.shape, weights.double(), gradient.double(), padding=1
    )
    torch.testing.assert_close(made.cpu().double(), expected, rtol=2**-8, atol=NEARLY)


def test_operands_of_a_line() -> None:
    x, w = (numbers(*shape).to("loom") for shape in ((2, 16, 50), (16, 16, 1)))
    backward = torch.ops.aten.convolution_backward_overrideable
    made = backward(x, x, w, [1], [0], [1], False, [0], 1, [True, True, False])
    assert made[0].shape == x.shape
    assert made[1].shape == w.shape


@sums_in_float32
@pytest.mark.parametrize("padding", [3, 4, (1, 3), (3, 1)], ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_more_padding_than_the_window_sees(last: bool, padding: int | tuple[int, int]) -> None:
    images = last_too(numbers(2, 32, 24, 24), last)
    weights = weights_of(48, 32)
    agree(images, weights, padding=padding, atol=NEARLY)

    def gradient(device: str, dtype: torch.dtype) -> torch.Tensor:
        x = images.to(device, dtype).requires_grad_()
        y = F.conv2d(x, weights.to(device, dtype), padding=padding)
        seed = last_too(numbers(*y.shape, seed=20), last).to(device, dtype)
        return torch.autograd.grad(y, x, seed)[0]

    actual, expected = gradient("loom", torch.bfloat16), gradient("cpu", torch.float64)
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=2**-8, atol=NEARLY)


def same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Of float32 on cpu, which leaves out what is beside the image."""
    torch.testing.assert_close(
        actual.cpu(), expected.bfloat16(), rtol=2**-7, atol=NEARLY, equal_nan=True
    )


# By tiles, by panels.
NOT_FINITE = [(1, 20, 70, 40), (1, 80, 130, 20)]


@pytest.mark.parametrize("shape", NOT_FINITE, ids=str)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
def test_what_is_not_finite_stays_where_it_is(
    shape: tuple[int, int, int, int], last: bool, bad: float
) -> None:
    """Anywhere in a tile and beside its edges."""
    batch, channels, filters, size = shape
    assert suits(batch, channels, filters, size, size)
    weights = last_too(weights_of(filters, channels), last)
    for place in range(0, size * size, 41):
        images = last_too(numbers(batch, channels, size, size), last)
        images[0, place % channels, place // size, place % size] = bad
        expected = F.conv2d(images.float(), weights.float(), padding=1)
        same(F.conv2d(images.to("loom"), weights.to("loom"), padding=1), expected)


@pytest.mark.parametrize("shape", NOT_FINITE, ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_numbers_that_only_the_transforms_overflow_with(
    shape: tuple[int, int, int, int], last: bool
) -> None:
    batch, channels, filters, size = shape
    scale = 2.0**123
    images = last_too(numbers(batch, channels, size, size) * scale, last)
    weights = last_too(weights_of(filters, channels), last)
    agree(images, weights, padding=1, atol=NEARLY * scale)


@sums_in_float32
@pytest.mark.parametrize("shape", NOT_FINITE, ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_a_filter_that_is_not_finite_leaves_the_others_alone(
    shape: tuple[int, int, int, int], last: bool
) -> None:
    batch, channels, filters, size = shape
    images = last_too(numbers(batch, channels, size, size), last)
    weights, bias = last_too(weights_of(filters, channels), last), numbers(filters, seed=19)
    weights[3, 2, 1, 0], weights[filters - 1, 0, 2, 2] = float("inf"), float("nan")
    bias[7] = float("nan")
    expected = F.conv2d(images.float(), weights.float(), bias.float(), padding=1)
    same(F.conv2d(images.to("loom"), weights.to("loom"), bias.to("loom"), padding=1), expected)


@sums_in_float32
@pytest.mark.parametrize("shape", NOT_FINITE, ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_the_gradient_of_the_images_where_something_is_not_finite(
    shape: tuple[int, int, int, int], last: bool
) -> None:
    batch, filters, channels, size = shape
    images = last_too(numbers(batch, channels, size, size), last)
    weights = last_too(weights_of(filters, channels), last)
    gradient = last_too(numbers(batch, filters, size, size, seed=20), last)
    gradient[0, 3, 5, 6], gradient[0, 1, 0, size - 1] = float("inf"), float("nan")
    weights[2, 1, 0, 0] = float("inf")

    def run(device: str, dtype: torch.dtype) -> torch.Tensor:
        x = images.to(device, dtype).requires_grad_()
        y = F.conv2d(x, weights.to(device, dtype), padding=1)
        return torch.autograd.grad(y, x, gradient.to(device, dtype))[0]

    same(run("loom", torch.bfloat16), run("cpu", torch.float32))


def test_the_gradient_of_the_weights_where_something_is_not_finite() -> None:
    """All taps of its channel and filters, and no others."""
    images, weights = numbers(1, 24, 24, 24), weights_of(33, 24)
    gradient = numbers(1, 33, 24, 24, seed=20)
    images[0, 5, 7, 8], gradient[0, 3, 9, 10] = float("inf"), float("nan")
    own = weights.to("loom").requires_grad_()
    y = F.conv2d(images.to("loom"), own, padding=1)
    (made,) = torch.autograd.grad(y, own, gradient.to("loom"))
    finite = torch.ones(33, 24, 3, 3, dtype=torch.bool)
    finite[3], finite[:, 5] = False, False
    assert torch.equal(made.isfinite().cpu(), finite)


def test_operands_inside_other_tensors() -> None:
    """At odd places, and beside numbers that must not be read."""
    nan = float("nan")
    memory = torch.full((2 * 16 * 24 * 24 + 2,), nan).bfloat16()
    memory[1:-1] = numbers(2 * 16 * 24 * 24)
    assert suits(2, 16, 18, 24, 24)
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
for batch, channels, filters, size in ((3, 32, 70, 24), (3, 16, 17, 61), (2, 130, 140, 16)):
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(batch, channels, size, size, device="loom").bfloat16()
        w = torch.randn(filters, channels, 3, 3, device="loom").bfloat16()
        x, w = (tensor.to(memory_format=layout).requires_grad_() for tensor in (x, w))
        y = torch.nn.functional.conv2d(x, w, padding=1)
        for tensor in (y, *torch.autograd.grad(y.float().square().sum(), (x, w))):
            digest.update(tensor.detach().cpu().view(torch.int16).numpy().tobytes())
print(digest.hexdigest())
"""


def test_results_do_not_depend_on_the_number_of_threads(check) -> None:
    assert len({check(THREADS, LOOM_THREADS=threads).out for threads in "123"}) == 1
