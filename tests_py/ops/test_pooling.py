# SPDX-License-Identifier: BSD-3-Clause
"""Pooling by kernels of loom's own: windows, layouts, dtypes, gradients, and what stays ATen's."""

import pytest
import torch
from compare import agrees, natively, same_error, to_loom
from torch.nn import functional as F  # noqa: N812

LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
ALLOWED = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-5, torch.float64: 1e-12}


def random(*sizes, dtype=torch.float32, last=False):
    x = torch.randn(sizes, generator=torch.Generator().manual_seed(7)).to(dtype)
    return x.to(memory_format=LAST[x.dim()]) if last else x


def with_gradient(function, x):
    leaf = x.detach().requires_grad_()
    result = function(leaf)
    values = result[0] if isinstance(result, tuple) else result
    weights = torch.linspace(0.5, 1.5, values.numel()).view(values.shape).to(values)
    (grad,) = torch.autograd.grad(values, leaf, weights)
    return [values.detach(), grad, *(result[1:] if isinstance(result, tuple) else ())]


def agree(function, x):
    """Results, gradients and indices, and their strides."""
    got = natively(with_gradient, function, to_loom(x))
    # cpu adds half precision in half precision.
    expected = with_gradient(function, x)
    wide = with_gradient(function, x.float()) if x.dtype.itemsize == 2 else expected
    allowed = ALLOWED[x.dtype]
    for mine, theirs, exact in zip(got, expected, wide, strict=True):
        assert mine.dtype == theirs.dtype
        assert mine.stride() == theirs.stride()
        torch.testing.assert_close(mine.cpu(), exact.to(mine.dtype), rtol=allowed, atol=allowed)


IMAGES = {
    "avg 2": lambda x: F.avg_pool2d(x, 2),
    "avg 3, half a window beyond": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "avg of what is inside": lambda x: F.avg_pool2d(x, (3, 5), (2, 1), (1, 2), False, False),
    "avg by a divisor": lambda x: F.avg_pool2d(x, 3, 1, 1, divisor_override=7),
    "avg with gaps": lambda x: F.avg_pool2d(x, 2, 5),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, (3, 5)),
    "adaptive to more": lambda x: F.adaptive_avg_pool2d(x, (17, 40)),
    "area": lambda x: F.interpolate(x, (6, 9), mode="area"),
    "max 2": lambda x: F.max_pool2d(x, 2, return_indices=True),
    "max 3, half a window beyond": lambda x: F.max_pool2d(
        x, 3, 2, 1, ceil_mode=True, return_indices=True
    ),
    "max, dilated": lambda x: F.max_pool2d(x, (3, 2), 1, (1, 0), (2, 3), return_indices=True),
}
VOLUMES = {
    "avg 2": lambda x: F.avg_pool3d(x, 2),
    "avg of what is inside": lambda x: F.avg_pool3d(
        x, (2, 3, 5), (2, 1, 2), (1, 1, 2), True, False
    ),
    "avg by a divisor": lambda x: F.avg_pool3d(x, 3, 2, 1, divisor_override=5),
    "adaptive": lambda x: F.adaptive_avg_pool3d(x, (2, 3, 5)),
    "max 2": lambda x: F.max_pool3d(x, 2, return_indices=True),
    "max, dilated": lambda x: F.max_pool3d(
        x, (1, 2, 3), 2, (0, 1, 1), (1, 3, 2), True, return_indices=True
    ),
}


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("sizes", [(3, 5, 14, 19), (2, 40, 9, 16), (1, 3, 64, 33)])
@pytest.mark.parametrize("name", IMAGES)
def test_images(name, sizes, last):
    agree(IMAGES[name], random(*sizes, last=last))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("sizes", [(2, 3, 6, 9, 11), (1, 20, 4, 8, 8)])
@pytest.mark.parametrize("name", VOLUMES)
def test_volumes(name, sizes, last):
    agree(VOLUMES[name], random(*sizes, last=last))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["avg 3, half a window beyond", "adaptive", "max 2"])
def test_dtypes(name, dtype):
    agree(IMAGES[name], random(3, 5, 14, 19, dtype=dtype))
    agree(IMAGES[name], random(3, 5, 14, 19, dtype=dtype, last=True))


def test_rows_and_samples_without_a_batch():
    agree(lambda x: F.avg_pool1d(x, 3, 2, 1), random(4, 3, 50))
    agree(lambda x: F.max_pool1d(x, 5, 3, 2, 1, True, return_indices=True), random(4, 3, 50))
    agree(lambda x: F.adaptive_avg_pool1d(x, 7), random(4, 3, 50))
    agree(IMAGES["avg 2"], random(3, 14, 19))
    agree(IMAGES["adaptive"], random(3, 14, 19))
    agree(VOLUMES["max 2"], random(3, 6, 9, 11))
    agree(VOLUMES["adaptive"], random(3, 6, 9, 11))


@pytest.mark.parametrize("last", [False, True])
def test_values_without_places(last):
    """In inference there are none: nothing but memory tells."""
    image, volume = random(3, 5, 14, 19, last=last), random(2, 3, 6, 9, 11, last=last)
    image[0, 0, 3, 4], volume[0, 1, 2, 3, 4] = torch.nan, torch.nan
    agrees(lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), image)
    agrees(lambda x: F.max_pool3d(x, 3, 2, 1), volume)
    agrees(lambda x: F.max_pool1d(x, 3, 2, 1), random(4, 3, 50))
    agrees(lambda x: F.max_pool1d(x, 3, 2, 1), random(3, 50))
    agrees(lambda x: F.max_pool2d(x, 3, 2, 1), random(3, 14, 19))
    for pool, x in ((F.max_pool2d, image), (F.max_pool3d, volume)):
        with torch.inference_mode():
            mine = pool(x.to("loom"), 2).cpu()
        torch.testing.assert_close(mine, pool(x, 2), equal_nan=True)


def test_errors_of_values_are_those_of_cpu():
    for pool, x in (
        (F.max_pool1d, random(3, 8)),
        (F.max_pool2d, random(3, 8, 8)),
        (F.max_pool3d, random(3, 8, 8, 8)),
    ):
        same_error(lambda x, pool=pool: pool(x, 2, padding=2), x)
        same_error(lambda x, pool=pool: pool(x, 9), x)
        same_error(lambda x, pool=pool: pool(x, 2, -1), x)
        same_error(lambda x, pool=pool: pool(x, 2), x[0])


def test_numbers_that_are_none():
    x = random(2, 3, 12, 16)
    x[0, 0, 3, 4], x[1, 2, 5, 5], x[1, 2, 5, 6] = torch.nan, torch.inf, -torch.inf
    x[1, 1] = -torch.inf
    for last in (False, True):
        y = x.to(memory_format=LAST[4]) if last else x
        agrees(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), y)
        agrees(lambda x: F.avg_pool2d(x, 3, 2, 1), y)


def test_first_of_equal_elements():
    agrees(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), torch.ones(2, 3, 12, 16))
    agrees(
        lambda x: F.max_pool3d(x, 3, 1, return_indices=True),
        random(1, 2, 6, 6, 20).round(),
    )


def test_strided_and_given_results():
    agrees(lambda x: F.avg_pool2d(x[:, ::2], 3), random(2, 6, 12, 16))
    agrees(lambda x: F.max_pool2d(x.transpose(2, 3), 3, return_indices=True), random(2, 6, 12, 16))
    agrees(lambda x: F.max_pool3d(x[..., ::2], 2, return_indices=True), random(2, 6, 4, 12, 16))
    agrees(lambda x: F.adaptive_avg_pool2d(x[:, ::2], 3), random(2, 6, 12, 16))
    x = random(2, 6, 12, 16)
    given = torch.empty(2, 6, 8, 6, device="loom").permute(0, 3, 1, 2)
    result = torch._C._nn.avg_pool2d(x.to("loom"), 2, out=given)
    assert result.data_ptr() == given.data_ptr()
    torch.testing.assert_close(result.cpu(), F.avg_pool2d(x, 2))


def test_errors_are_those_of_cpu():
    x = random(2, 3, 8, 8, 8)
    same_error(lambda x: F.max_pool3d(x, 2, padding=2, return_indices=True), x)
    same_error(lambda x: F.max_pool3d(x, 9, return_indices=True), x)
    same_error(lambda x: F.max_pool3d(x, (1, 2), return_indices=True), x)
    same_error(lambda x: F.max_pool3d(x[0, 0], 2, return_indices=True), x)
    same_error(lambda x: torch._C._nn.adaptive_avg_pool3d(x, (1, 2)), x)
    same_error(lambda x: torch._C._nn.adaptive_avg_pool2d(x, (-1, 2)), x[0])


BYTES = """
import hashlib, torch
torch.manual_seed(0)
F = torch.nn.functional
x = torch.randn(3, 20, 60, 70).to("loom").requires_grad_()
for pool in (F.avg_pool2d, F.max_pool2d):
    for layout in (torch.contiguous_format, torch.channels_last):
        y = pool(x.contiguous(memory_format=layout), 3, 2, 1)
        (grad,) = torch.autograd.grad(y, x, torch.ones_like(y))
        for tensor in (y.detach(), grad):
            print(hashlib.sha256(tensor.cpu().contiguous().numpy().tobytes()).hexdigest())
"""


@pytest.mark.thorough
def test_results_do_not_depend_on_the_number_of_cores(check):
    runs = [check(BYTES, LOOM_THREADS=cores).out for cores in ("1", "3")]
    assert runs[0]
    assert runs[0] == runs[1]
