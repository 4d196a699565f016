# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions as products of columns or tiles, in every direction, against cpu."""

import random

import pytest
import torch
from compare import agrees, assert_same, gradients_agree, natively, to_loom

pytestmark = pytest.mark.thorough

F = torch.nn.functional


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(13)) / 4


def cases(count):
    """Batch, channels before and after, height and width, window, stride, padding, dilation."""
    choose = random.Random(5)
    made = []
    while len(made) < count:
        batch = choose.choice((1, 2, 3, 8, 9))
        channels = choose.choice((1, 3, 16, 65)), choose.choice((1, 5, 16, 70))
        size = choose.randint(1, 17), choose.randint(1, 17)
        kernel = choose.choice(((1, 1), (3, 3), (3, 5), (7, 7), (2, 1), (9, 9)))
        stride = choose.choice((1, 1, 2, 3)), choose.choice((1, 1, 2, 3))
        padding = tuple(choose.randint(0, length) for length in kernel)
        dilation = choose.choice((1, 1, 2)), choose.choice((1, 1, 2))
        reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
        if all(n + 2 * p >= r for n, p, r in zip(size, padding, reach, strict=True)):
            made.append((batch, *channels, size, kernel, stride, padding, dilation))
    return made


@pytest.mark.parametrize("case", cases(60), ids=str)
def test_any_window(case):
    batch, before, after, size, kernel, stride, padding, dilation = case
    tensors = [numbers(batch, before, *size), numbers(after, before, *kernel)]
    tensors[1] /= (before * kernel[0] * kernel[1]) ** 0.5
    if (batch + before) % 2:
        tensors.append(numbers(after))
    gradients_agree(
        lambda *x: (
            F.conv2d(*x, None, stride, padding, dilation)
            if len(x) == 2
            else F.conv2d(*x, stride, padding, dilation)
        ),
        *tensors,
    )


# What is made by pixels, by filters, with inner products; one image and several in a panel; tiles.
SHAPES = {
    "many pixels": ((2, 16, 40, 33), (24, 16, 5, 5)),
    "Winograd": ((2, 16, 40, 33), (24, 16, 3, 3)),
    "Winograd, a few tiles more than a panel": ((1, 20, 33, 34), (70, 20, 3, 3)),
    "Winograd, many tiles": ((3, 33, 37, 30), (130, 33, 3, 3)),
    "Winograd, small images": ((40, 16, 6, 6), (16, 16, 3, 3)),
    "a panel's pixels of several images": ((9, 20, 11, 11), (70, 20, 3, 3)),
    "more rows than a panel has room for": ((3, 300, 5, 5), (40, 300, 3, 3)),
    "few pixels": ((8, 130, 2, 2), (140, 130, 3, 3)),
    "tap by tap": ((5, 40, 4, 3), (50, 40, 3, 3)),
    "tap by tap, of which some see nothing": ((4, 32, 2, 2), (600, 32, 5, 5)),
    "tap by tap, more than a block has room for": ((6, 150, 2, 3), (33, 150, 3, 3)),
    "one pixel": ((1, 65, 1, 1), (33, 65, 3, 3)),
    "five pixels": ((5, 65, 1, 1), (33, 65, 3, 3)),
    "many filters": ((2, 20, 6, 6), (1100, 20, 3, 3)),
    "a large window": ((2, 4, 12, 12), (8, 4, 11, 11)),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("bias", [False, True])
def test_shapes(name, bias):
    images, weights = (numbers(*shape) for shape in SHAPES[name])
    weights = weights / weights[0].numel() ** 0.5
    tensors = [images, weights] + ([numbers(len(weights))] if bias else [])
    pad = SHAPES[name][1][-1] // 2
    agrees(lambda *x: F.conv2d(*x, padding=pad), *tensors)
    gradients_agree(lambda *x: F.conv2d(*x, padding=pad), *tensors)


@pytest.mark.parametrize("padding", [0, 1, 2, 3, (2, 0)])
def test_padding_of_tiles(padding):
    gradients_agree(
        lambda *x: F.conv2d(*x, padding=padding),
        numbers(2, 16, 34, 35),
        numbers(20, 16, 3, 3) / 12,
        numbers(20),
    )


# Batch, channels before and after, height and width.
TILES_LAST = {
    "blocks of a few tiles": (2, 32, 48, (16, 16)),
    "one image, blocks of different length": (1, 64, 64, (37, 36)),
    "odd sizes, channels of no whole vectors": (3, 33, 70, (17, 31)),
    "filters of two panels and one more": (2, 32, 129, (20, 19)),
    "channels of two panels and one more": (2, 129, 32, (20, 19)),
    "small images, several groups": (60, 48, 32, (7, 6)),
}


@pytest.mark.parametrize("name", TILES_LAST)
@pytest.mark.parametrize("padding", [0, 1, 2, (2, 0)])
@pytest.mark.parametrize("weights_last", [False, True])
def test_tiles_in_channels_last(name, padding, weights_last):
    def last(tensor, wanted=True):
        return tensor.contiguous(memory_format=torch.channels_last) if wanted else tensor

    batch, before, after, size = TILES_LAST[name]
    images, weights = numbers(batch, before, *size), numbers(after, before, 3, 3)
    weights = weights / (9 * before) ** 0.5
    pads = [padding] * 2 if isinstance(padding, int) else list(padding)
    for bias in ([], [numbers(after)]):
        agrees(
            lambda x, w, *b: F.conv2d(last(x), last(w, weights_last), *b, padding=padding),
            images,
            weights,
            *bias,
        )
    rows, columns = (n + 2 * pad - 2 for n, pad in zip(size, pads, strict=True))
    agrees(
        lambda g, x, w: torch.ops.aten.convolution_backward(
            *(last(g), last(x), last(w, weights_last), [after]),
            *([1, 1], pads, [1, 1], False, [0, 0], 1, [True, True, True]),
        ),
        numbers(batch, after, rows, columns) / (batch * rows * columns) ** 0.5,
        images,
        weights,
    )


def last_too(tensors):
    return [t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t for t in tensors]


@pytest.mark.parametrize("case", cases(60), ids=str)
def test_any_window_in_channels_last(case):
    batch, before, after, size, kernel, stride, padding, dilation = case
    tensors = [numbers(batch, before, *size), numbers(after, before, *kernel)]
    tensors[1] /= (before * kernel[0] * kernel[1]) ** 0.5
    for bias in ([], [numbers(after)]):
        agrees(
            lambda x, w, *b: F.conv2d(x, w, *(b or [None]), stride, padding, dilation),
            *last_too([*tensors, *bias]),
        )


# Images, weights, stride and padding of what runs run by run, and with columns in channels_last.
LAST = {
    "a first layer": ((2, 3, 65, 70), (64, 3, 7, 7), 2, 3),
    "rows of two tiles and one pixel more": ((1, 3, 20, 129), (33, 3, 3, 3), 1, 1),
    "several panels of filters": ((1, 4, 40, 40), (150, 4, 5, 5), 1, 2),
    "rows without what they see, padding wider than the window": (
        (2, 5, 9, 20),
        (8, 5, 3, 3),
        1,
        6,
    ),
    "columns by pixels": ((2, 20, 40, 36), (70, 20, 3, 3), 2, 1),
    "columns by filters": ((4, 33, 9, 9), (130, 33, 3, 3), 2, 1),
    "columns by filters, several groups": ((4, 33, 17, 17), (130, 33, 3, 3), 2, 1),
    "more rows than a panel has room for": ((3, 300, 5, 5), (40, 300, 3, 3), 1, 1),
    "long enough to be open": ((1, 256, 14, 14), (256, 256, 3, 3), 2, 1),
    "a first layer that is open": ((4, 3, 64, 64), (64, 3, 7, 7), 2, 3),
    "inner products": ((1, 130, 2, 2), (140, 130, 3, 3), 1, 1),
    "inner products, open": ((2, 300, 2, 2), (400, 300, 3, 3), 1, 1),
    "one weight a pair of channels": ((8, 64, 9, 9), (70, 64, 1, 1), 2, 0),
}


@pytest.mark.parametrize("name", LAST)
@pytest.mark.parametrize("follows", [False, True])
def test_columns_and_runs_in_channels_last(name, follows):
    images, weights, stride, padding = LAST[name]
    tensors = [numbers(*images), numbers(*weights), numbers(weights[0])]
    tensors[1] /= (weights[1] * weights[2] * weights[3]) ** 0.5

    def run(*operands):
        made = F.conv2d(*operands, stride=stride, padding=padding)
        return F.relu(made * 2 - 1) if follows else made

    agrees(run, *last_too(tensors))
    agrees(run, *last_too(tensors[:2]))


# Images, weights (channels before and after), and what else a transposed convolution takes.
TRANSPOSED = {
    "phases of rows and columns": ((3, 20, 9, 12), (20, 17, 4, 5), {"stride": (2, 3)}),
    "more rows than the gradient has": ((2, 5, 8, 8), (5, 9, 3, 3), {"stride": 2}),
    "a band of rows in each block": (
        (1, 40, 70, 66),
        (40, 3, 4, 4),
        {"stride": 2, "padding": 1, "output_padding": 1},
    ),
    "bands of several blocks of channels": ((1, 70, 60, 40), (70, 40, 5, 4), {"stride": 2}),
    "images of several blocks": ((20, 30, 30, 20), (30, 24, 3, 3), {"stride": 3, "padding": 1}),
    "phases that no tap reaches": ((4, 8, 7, 6), (8, 3, 2, 1), {"stride": 4}),
    "taps beyond the image": (
        (2, 16, 6, 20),
        (16, 2, 5, 7),
        {"stride": 2, "padding": 4, "dilation": (2, 1)},
    ),
    "more taps than a tile has rows": ((2, 6, 12, 12), (6, 2, 9, 9), {"padding": 2}),
    "a signal": ((3, 24, 1, 90), (24, 4, 1, 8), {"stride": (1, 4)}),
    "one channel": ((6, 12, 14, 14), (12, 1, 4, 4), {"stride": 2, "padding": 1}),
    "one pixel": ((70, 40, 1, 1), (40, 4, 4, 4), {}),
}


@pytest.mark.parametrize("name", TRANSPOSED)
@pytest.mark.parametrize("last", [False, True])
def test_transposed_by_phases(name, last):
    images, weights, keywords = TRANSPOSED[name]
    tensors = [numbers(*images), numbers(*weights), numbers(weights[1])]
    tensors[1] /= weights[0] ** 0.5

    def follows(*operands):
        return F.relu(F.conv_transpose2d(*operands, **keywords) * 2 - 1)

    plain = lambda *operands: F.conv_transpose2d(*operands, **keywords)  # noqa: E731
    for operands in (
        [last_too(tensors), [*last_too(tensors[:1]), *tensors[1:]]] if last else [tensors]
    ):
        agrees(plain, *operands)
        agrees(plain, *operands[:2])
        agrees(follows, *operands)
        gradients_agree(plain, *operands)


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("last", [False, True])
def test_infinities_of_what_is_transposed_stay_where_they_are_seen(last, padding):
    """Compared with sums in float64: oneDNN lets weights meet what is beside the image."""
    images, weights = numbers(2, 6, 9, 9), numbers(6, 3, 3, 3)
    images[0, 2, 0, 8] = images[1, 1, 8, 8] = float("inf")
    weights[3, 1, 0, 2] = float("nan")
    expected = F.conv_transpose2d(images.double(), weights.double(), stride=2, padding=padding)
    x, w = to_loom(last_too([images, weights]) if last else [images, weights])
    made = natively(F.conv_transpose2d, x, w, stride=2, padding=padding).cpu()
    torch.testing.assert_close(made.double(), expected, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_views_and_layouts(which):
    images, weights = numbers(4, 8, 9, 10), numbers(6, 8, 3, 3)
    views = [
        (images[:, :, ::2], weights),
        (images.transpose(2, 3), weights.flip(0)[1:]),
        (images[1:, :4], weights[:, ::2]),
        (images.expand(4, 8, 9, 10)[:1].expand(3, 8, 9, 10), weights),
        (images.contiguous(memory_format=torch.channels_last), weights),
    ]
    for x, w in views:
        operands = (x, w) if which != 1 else (x, w.contiguous(memory_format=torch.channels_last))
        agrees(lambda x, w: F.conv2d(x, w, padding=1), *operands)
        if which == 2:
            gradients_agree(lambda x, w: F.conv2d(x, w, padding=1), *operands)


@pytest.mark.parametrize("wanted", [(True, False), (False, True)])
@pytest.mark.parametrize("size", [2, 16, 120])
def test_one_gradient(wanted, size):
    def run(x, w):
        x.requires_grad_(wanted[0])
        w.requires_grad_(wanted[1])
        F.conv2d(x, w, padding=1).square().sum().backward()
        return [tensor.grad for tensor in (x, w) if tensor.grad is not None]

    operands = numbers(2, 20, size, size), numbers(24, 20, 3, 3) / 14
    on_loom = to_loom(operands)
    expected = run(*operands)
    for mine, theirs in zip(natively(run, *on_loom), expected, strict=True):
        scale = theirs.abs().max()
        assert_same(mine / scale.to("loom"), theirs / scale)


@pytest.mark.parametrize("stride", [1, 2])
def test_gradients_of_gradients(stride):
    def run(x, w):
        x.requires_grad_()
        w.requires_grad_()
        first = torch.autograd.grad(
            F.conv2d(x, w, stride=stride, padding=1).sin().sum(), (x, w), create_graph=True
        )
        return torch.autograd.grad(sum(g.square().sum() for g in first), (x, w))

    operands = numbers(2, 3, 6, 7), numbers(5, 3, 3, 3)
    on_loom = to_loom(operands)
    assert_same(run(*on_loom), run(*operands), strides=False)


def test_infinities_stay_where_they_are():
    images = numbers(2, 4, 6, 6)
    images[0, 1, 2, 3] = float("inf")
    images[1, 0, 0, 0] = float("nan")
    agrees(lambda x, w: F.conv2d(x, w, padding=1), images, numbers(5, 4, 3, 3).abs())


THREADS = """
import hashlib, torch
F = torch.nn.functional
torch.manual_seed(3)
digest = hashlib.sha256()
shapes = (1, 70, 2), (8, 70, 2), (5, 600, 4), (3, 40, 7), (4, 20, 30), (1, 33, 33), (2, 3, 40)
for batch, channels, size in shapes:
    x, w = torch.randn(batch, channels, size, size), torch.randn(80, channels, 3, 3)
    for layout in (torch.contiguous_format, torch.channels_last):
        x = x.detach().to("loom").to(memory_format=layout).requires_grad_()
        w = w.detach().to("loom").to(memory_format=layout).requires_grad_()
        y = F.conv2d(x, w, padding=1)
        y.backward(torch.ones_like(y))
        for tensor in (y.detach(), x.grad, w.grad):
            digest.update(tensor.cpu().numpy().tobytes())
print(digest.hexdigest())
"""


def test_results_do_not_depend_on_the_number_of_threads(check):
    assert len({check(THREADS, LOOM_THREADS=threads).out for threads in "123"}) == 1
