# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions of every kind, forward and backward."""

import pytest
import torch
from compare import agrees, assert_same, gradients_agree, same_error, to_loom

F = torch.nn.functional


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(11)) / 4


# name: (function, input, weight, bias)
KINDS = {
    "1d": (F.conv1d, {}, (4, 6, 50), (8, 6, 3), 8),
    "2d": (F.conv2d, {"padding": 1}, (16, 8, 32, 32), (12, 8, 3, 3), 12),
    "2d strided": (F.conv2d, {"stride": 2, "padding": (1, 2)}, (5, 3, 33, 17), (4, 3, 3, 5), 4),
    "2d dilated": (F.conv2d, {"dilation": 2}, (3, 4, 20, 20), (4, 4, 3, 3), None),
    "2d grouped": (F.conv2d, {"groups": 4}, (6, 8, 14, 14), (16, 2, 3, 3), 16),
    "2d grouped, one sample": (
        F.conv2d,
        {"groups": 4, "padding": 1},
        (1, 80, 40, 40),
        (120, 20, 3, 3),
        120,
    ),
    "1d, one sample": (F.conv1d, {"padding": 1}, (1, 40, 300), (64, 40, 3), 64),
    "depthwise": (F.conv2d, {"groups": 8, "padding": 1}, (6, 8, 14, 14), (8, 1, 3, 3), None),
    "2d same": (F.conv2d, {"padding": "same"}, (2, 3, 9, 9), (4, 3, 3, 5), 4),
    "one sample": (F.conv2d, {"padding": 1}, (1, 64, 40, 40), (96, 64, 3, 3), 96),
    "no batch": (F.conv2d, {}, (8, 20, 20), (4, 8, 3, 3), 4),
    "1x1": (F.conv2d, {}, (8, 32, 16, 16), (64, 32, 1, 1), 64),
    "1x1, one sample": (F.conv2d, {}, (1, 64, 40, 40), (96, 64, 1, 1), 96),
    "1x1, few channels": (F.conv2d, {}, (3, 1, 9, 9), (1, 1, 1, 1), 1),
    "1x1, 1d": (F.conv1d, {}, (4, 32, 50), (48, 32, 1), 48),
    "1x1, 3d": (F.conv3d, {}, (2, 16, 4, 5, 6), (24, 16, 1, 1, 1), None),
    "many samples": (F.conv2d, {"padding": 1}, (32, 32, 16, 16), (48, 32, 3, 3), 48),
    "many weights": (F.conv2d, {"padding": 1}, (8, 256, 3, 3), (288, 256, 3, 3), 288),
    "3d": (F.conv3d, {"padding": 1}, (2, 4, 8, 8, 8), (6, 4, 3, 3, 3), 6),
    "transposed 1d": (F.conv_transpose1d, {"stride": 2}, (3, 4, 10), (4, 5, 3), 5),
    "transposed 2d": (
        F.conv_transpose2d,
        {"stride": 2, "padding": 1, "output_padding": 1},
        (4, 16, 12, 12),
        (16, 8, 3, 3),
        8,
    ),
    "transposed, one sample": (F.conv_transpose2d, {}, (1, 64, 24, 24), (64, 80, 3, 3), 80),
    "transposed many weights": (
        F.conv_transpose2d,
        {"stride": 2},
        (8, 256, 3, 3),
        (256, 288, 2, 2),
        288,
    ),
    "transposed grouped, one sample": (
        F.conv_transpose2d,
        {"groups": 4, "stride": 2},
        (1, 80, 20, 20),
        (80, 25, 4, 4),
        100,
    ),
    "transposed grouped": (F.conv_transpose2d, {"groups": 2}, (3, 4, 9, 9), (4, 3, 3, 3), 6),
    "transposed 3d": (F.conv_transpose3d, {}, (2, 3, 5, 5, 5), (3, 4, 2, 2, 2), 4),
}


def operands(name):
    function, keywords, input_shape, weight_shape, bias = KINDS[name]
    tensors = [numbers(*input_shape), numbers(*weight_shape)]
    if bias:
        tensors.append(numbers(bias))
    return (lambda *arguments: function(*arguments, **keywords)), tensors


@pytest.mark.parametrize("name", KINDS)
def test_forward(name):
    function, tensors = operands(name)
    agrees(function, *tensors)
    agrees(function, *(tensor.double() for tensor in tensors))


@pytest.mark.parametrize("name", KINDS)
def test_gradients(name):
    function, tensors = operands(name)
    gradients_agree(function, *tensors)


@pytest.mark.parametrize(
    "name",
    [
        "2d",
        "2d strided",
        "one sample",
        "1x1",
        "1x1, one sample",
        "1x1, few channels",
        "many samples",
        "many weights",
        "transposed 2d",
        "transposed many weights",
        "depthwise",
        "2d grouped, one sample",
    ],
)
@pytest.mark.parametrize("which", [0, 1, 2])
def test_channels_last(name, which):
    function, tensors = operands(name)
    for i in (0, 1):
        if which in (i, 2):
            tensors[i] = tensors[i].contiguous(memory_format=torch.channels_last)
    agrees(function, *tensors)
    gradients_agree(function, *tensors)


@pytest.mark.parametrize("groups", [1, 24])
def test_points_of_one_image_are_no_channels_last(groups):
    """The stride of the batch decides which layout the result has."""
    points = numbers(1, 20 * 21, 24)

    def function(x, w):
        return F.conv2d(x.transpose(1, 2).unflatten(2, (20, 21)), w, padding=1, groups=groups)

    agrees(function, points, numbers(24, 24 // groups, 3, 3))
    gradients_agree(function, points, numbers(24, 24 // groups, 3, 3))


def test_some_gradients_only():
    for wanted in ((True, False), (False, True)):
        x, w = numbers(4, 3, 9, 9), numbers(5, 3, 3, 3)
        x.requires_grad_(wanted[0])
        w.requires_grad_(wanted[1])
        on_loom = to_loom((x, w))
        for operands_ in ((x, w), on_loom):
            F.conv2d(*operands_).square().sum().backward()
        for mine, theirs in zip(on_loom, (x, w), strict=True):
            assert (mine.grad is None) == (theirs.grad is None)
            if theirs.grad is not None:
                assert_same(mine.grad, theirs.grad)


def test_bfloat16():
    agrees(
        lambda x, w: F.conv2d(x, w), numbers(4, 3, 9, 9).bfloat16(), numbers(5, 3, 3, 3).bfloat16()
    )


def test_an_empty_batch():
    gradients_agree(lambda x, w: F.conv2d(x, w), numbers(0, 3, 9, 9), numbers(5, 3, 1, 1))
    agrees(lambda x, w: F.conv2d(x, w), numbers(0, 3, 9, 9), numbers(5, 3, 3, 3))
    gradients_agree(lambda x, w: F.conv2d(x, w), numbers(0, 3, 9, 9), numbers(5, 3, 3, 3))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.conv2d(x, x[:, :1]),
        lambda x: F.conv2d(x[:, :, :1], x[:, :, :3, :3]),
        lambda x: F.conv2d(x, x[:2, :, :3, :3], bias=x[0, 0, 0]),
        lambda x: F.conv2d(x, x[:, :, :3, :3], stride=0),
    ],
)
def test_errors(function):
    same_error(function, numbers(4, 4, 9, 9))


def test_dtypes_must_be_the_same():
    x = numbers(2, 3, 9, 9).to("loom")
    with pytest.raises(RuntimeError, match=r"Input type .* and weight type .* should be the same"):
        F.conv2d(x, x.double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("last", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    ("batch", "channels", "groups"), [(1, (4, 2), 1), (1, (8, 16), 1), (3, (8, 16), 2)]
)
def test_volumes_with_channels_last(dtype, last, batch, channels, groups):
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(batch, channels[0], 5, 6, 7, generator=generator).to(dtype)
    for weight, convolve in (
        (torch.randn(channels[1], channels[0] // groups, 2, 3, 3), F.conv3d),
        (torch.randn(channels[0], channels[1] // groups, 2, 3, 3), F.conv_transpose3d),
    ):
        given = [x, weight.to(dtype)]
        for i, is_last in enumerate(last):
            if is_last:
                given[i] = given[i].contiguous(memory_format=torch.channels_last_3d)
        # Where oneDNN has no half types, `cpu` rounds every partial sum of a transposed one.
        expected = convolve(*(each.double() for each in given), groups=groups).to(dtype)
        found = convolve(*(each.to("loom") for each in given), groups=groups).cpu()
        limit = 1e-2 if dtype.itemsize == 2 else 1e-4
        torch.testing.assert_close(found, expected, rtol=limit, atol=limit)


def layouts_of_results(function, x, w, device, **options):
    operands = [t.detach().to(device).requires_grad_() for t in (x, w)]
    y = function(*operands, **options)
    grads = torch.autograd.grad(y, operands, torch.ones(y.shape, dtype=y.dtype, device=device))
    return [t.stride() for t in (y, *grads)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(
    ("function", "options"),
    [
        (F.conv2d, {"stride": 2}),
        (F.conv2d, {"dilation": 2}),
        (F.conv_transpose2d, {"padding": 1}),
        (F.conv_transpose2d, {"stride": 2, "output_padding": 1}),
        (F.conv3d, {"padding": 1}),
        (F.conv3d, {"stride": 2}),
        (F.conv_transpose3d, {"stride": 2, "output_padding": 1}),
        (F.conv_transpose3d, {"dilation": 2, "output_padding": 1}),
    ],
)
def test_layouts_are_those_of_the_cpu(function, options, batch, dtype):
    rank = 3 if "3d" in function.__name__ else 2
    last = torch.channels_last_3d if rank == 3 else torch.channels_last
    x, w = numbers(batch, 4, *[7] * rank).to(dtype), numbers(4, 4, *[3] * rank).to(dtype)
    for x_format, w_format in ((last, last), (last, None), (None, last)):
        given = [
            t.contiguous(memory_format=f or torch.contiguous_format)
            for t, f in ((x, x_format), (w, w_format))
        ]
        expected = layouts_of_results(function, *given, "cpu", **options)
        assert layouts_of_results(function, *given, "loom", **options) == expected


@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_results_without_elements(groups):
    """oneDNN's kernels, to which PyTorch leaves batches of floats, give them."""
    x = torch.randn(2, 4, 2, 5, device="loom", requires_grad=True)
    weight = torch.randn(4, 4, 1, 1, device="loom", requires_grad=True)
    result = F.conv_transpose2d(x, weight, padding=(1, 0), groups=groups)
    assert result.shape == (2, 4 * groups, 0, 5)
    result.sum().backward()
    assert not x.grad.any()
    assert not weight.grad.any()
    with pytest.raises(RuntimeError, match="Calculated output size per channel: \\(-2 x 5\\)"):
        F.conv_transpose2d(x, weight, padding=(2, 0), groups=groups)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_loops_refuse_transposed_results_without_elements(rank, dtype):
    """PyTorch's own kernels, to which it leaves a single small image and most dtypes."""
    images, weight = torch.ones(1, 2, *[4] * rank, dtype=dtype), torch.ones(2, 3, *[3] * rank)
    function = getattr(F, f"conv_transpose{rank}d")
    for device in ("cpu", "loom"):
        given = images.to(device), weight.to(device, dtype)
        with pytest.raises(RuntimeError, match=r"size per channel.* 0\). Output size is too small"):
            function(*given, padding=3)


STEPS_OVER = """
import torch, torch_loom
x = torch.randn(2, 3, 1, 33).bfloat16().contiguous(memory_format=torch.channels_last)
w = torch.randn(8, 3, 3, 5).bfloat16()
for _ in range(20):
    made = torch.conv2d(x.to("loom"), w.to("loom"), None, 3, (3, 0), 2)
assert not made.any()
"""


def test_windows_that_step_over_the_image_in_bfloat16(check):
    """oneDNN's kernels for channels that lie last read what is beside the memory: cpu's process
    ends here."""
    check(STEPS_OVER, ONEDNN_MAX_CPU_ISA="ALL")


SINGLE_WINDOWS = """
import torch, torch_loom
for size in (33, 3), (3, 3), (4, 4), (64, 3):
    for stride in (1, 2), (2, 1), (2, 2), (3, 4):
        x = torch.randn(2, 16, *size).bfloat16()
        w = (torch.randn(16, 16, 1, 3) * 0.1).bfloat16()
        made = torch.conv2d(x.to("loom"), w.to("loom"), stride=stride)
        exact = torch.conv2d(x.double(), w.double(), stride=stride)
        torch.testing.assert_close(made.cpu().double(), exact, rtol=1e-2, atol=2e-2)
"""


def test_single_windows_of_a_row_in_bfloat16(check):
    """With the matrix unit oneDNN takes other places of an image that has one window across."""
    check(SINGLE_WINDOWS, ONEDNN_MAX_CPU_ISA="ALL")
