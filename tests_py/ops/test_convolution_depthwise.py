# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions that have a filter for each channel, by vectors of pixels or of channels."""

import random

import pytest
import torch
from convolution_checks import last_too, normal

F = torch.nn.functional
TOLERANCES = {torch.float32: (1e-5, 1e-5), torch.bfloat16: (2**-8, 2e-6)}


def convolve(images, weights, bias, on="cpu", **window):
    function = F.conv1d if images.dim() == 3 else F.conv2d
    operands = (each if each is None else each.to(on) for each in (images, weights, bias))
    return function(*operands, **window, groups=images.shape[1])


def agree(images, weights, bias=None, **window):
    """Sums in float64, rounded once; on loom in float32 before."""
    actual = convolve(images, weights, bias, "loom", **window)
    wide = (each if each is None else each.double() for each in (images, weights, bias))
    expected = convolve(*wide, **window)
    on_cpu = convolve(images, weights, bias, **window)
    assert actual.dtype == images.dtype
    assert actual.stride() == on_cpu.stride()
    rtol, atol = TOLERANCES[images.dtype]
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=rtol, atol=atol)


def cases(count):
    """Batch, channels, height and width, window, stride, padding, dilation."""
    choose = random.Random(11)
    made = []
    windows = ((3, 3), (3, 3), (5, 5), (7, 7), (1, 1), (3, 1), (1, 7), (2, 2), (4, 4), (9, 9))
    while len(made) < count:
        kernel = choose.choice(windows)
        size = choose.randint(1, 40), choose.randint(1, choose.choice((9, 33, 130)))
        stride = choose.choice(((1, 1), (2, 2), (1, 1), (2, 2), (3, 3), (1, 2), (2, 1), (4, 3)))
        padding = tuple(choose.randint(0, length) for length in kernel)
        dilation = choose.choice(((1, 1), (1, 1), (2, 2), (1, 3), (3, 2)))
        inside = (
            edge + 2 * beside > step * (length - 1)
            for edge, beside, step, length in zip(size, padding, dilation, kernel, strict=True)
        )
        if all(inside):
            batch, channels = choose.choice((1, 2, 5)), choose.choice((2, 7, 16, 33, 64))
            made.append((batch, channels, size, kernel, stride, padding, dilation))
    return made


# A window beside the image in all directions, many rows of a band, more than a vector of padding.
SPECIAL = [
    (1, 3, (2, 2), (3, 3), (1, 1), (9, 20), (1, 1)),
    (1, 3, (2, 2), (3, 3), (2, 2), (9, 40), (1, 1)),
    (1, 2, (300, 500), (3, 3), (1, 1), (1, 1), (1, 1)),
    (1, 2, (300, 500), (3, 3), (2, 2), (1, 1), (1, 1)),
    (2, 5, (70, 5), (7, 7), (1, 1), (3, 3), (1, 1)),
    (1, 5, (3, 7000), (3, 3), (1, 1), (1, 1), (1, 1)),
    (1, 400, (7, 7), (3, 3), (1, 1), (1, 1), (1, 1)),
    (1, 40, (28, 28), (11, 11), (1, 1), (5, 5), (1, 1)),
    (1, 40, (28, 28), (12, 12), (1, 1), (5, 5), (1, 1)),
]


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("case", cases(60) + SPECIAL, ids=str)
def test_any_window(case, last, dtype):
    batch, channels, size, kernel, stride, padding, dilation = case
    images = last_too(normal(batch, channels, *size, seed=17).to(dtype), last)
    weights = normal(channels, 1, *kernel, seed=18).to(dtype)
    bias = normal(channels, seed=19).to(dtype) if (batch + channels) % 2 else None
    agree(
        images,
        last_too(weights, last),
        bias,
        stride=stride,
        padding=padding,
        dilation=dilation,
    )


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_several_filters_of_a_channel(last, dtype):
    images = last_too(normal(2, 6, 19, 21, seed=17).to(dtype), last)
    for filters in (12, 18):
        weights = normal(filters, 1, 3, 3, seed=18).to(dtype)
        agree(images, weights, normal(filters, seed=19).to(dtype), padding=1)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("length", [1, 15, 16, 17, 700])
def test_signals(length, dtype):
    images = normal(3, 20, length, seed=17).to(dtype)
    weights = normal(20, 1, 5, seed=18).to(dtype)
    for window in ({"padding": 2}, {"padding": 4, "dilation": 2}, {"padding": 2, "stride": 3}):
        agree(images, weights, normal(20, seed=19).to(dtype), **window)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("last", [False, True])
def test_infinities_reach_the_pixels_that_see_them_and_no_others(last, stride):
    images, weights = normal(1, 9, 12, 13, seed=17), normal(9, 1, 3, 3, seed=18)
    images[0, 3, 7, 12] = float("inf")
    images[0, 5, 0, 0] = float("nan")
    weights[1, 0, 0, 0] = float("inf")
    weights[2, 0, 2, 1] = float("nan")
    images, weights = last_too(images, last), last_too(weights, last)
    window = {"padding": 1, "stride": stride, "groups": 9}
    # In float64 cpu's kernel sees the image only.
    expected = F.conv2d(images.double(), weights.double(), **window).float()
    actual = F.conv2d(images.to("loom"), weights.to("loom"), **window).cpu()
    inside = torch.nn.functional.conv2d(torch.ones_like(images), torch.ones_like(weights), **window)
    assert torch.equal(actual.isfinite()[inside == 9], expected.isfinite()[inside == 9])
    assert actual[0, 1, 0].isfinite().all()
    assert actual[0, 4].isfinite().all()


THREADS = """
import hashlib, torch
torch.manual_seed(3)
digest = hashlib.sha256()
shapes = (33, 90, 3, 1), (200, 14, 5, 2), (64, 50, 7, 1), (3, 400, 3, 1)
for channels, size, kernel, stride in shapes:
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(3, channels, size, size, device="loom", requires_grad=True)
        w = torch.randn(channels, 1, kernel, kernel, device="loom", requires_grad=True)
        x.data = x.data.to(memory_format=layout)
        y = torch.nn.functional.conv2d(x, w, padding=kernel // 2, stride=stride, groups=channels)
        y.square().sum().backward()
        for each in (y, x.grad, w.grad):
            digest.update(each.detach().cpu().numpy().tobytes())
print(digest.hexdigest())
"""


@pytest.mark.thorough
def test_results_do_not_depend_on_the_number_of_threads(check):
    assert len({check(THREADS, LOOM_THREADS=threads).out for threads in "123"}) == 1


@pytest.mark.parametrize("last", [False, True])
def test_operators_that_follow_are_right(last):
    images = last_too(normal(2, 40, 70, 70, seed=17), last)
    weights = last_too(normal(40, 1, 3, 3, seed=18), last)
    mean, factor = normal(40, seed=19), normal(40, seed=20)

    def run(device):
        x, w, m, f = (each.to(device) for each in (images, weights, mean, factor))
        y = F.conv2d(x, w, padding=1, groups=40)
        return F.relu6(F.batch_norm(y, m, f.abs() + 1, f, m)) + x

    torch.testing.assert_close(run("loom").cpu(), run("cpu"), rtol=1e-5, atol=1e-5)
