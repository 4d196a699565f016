# SPDX-License-Identifier: BSD-3-Clause
"""Resampling: every mode and gradient, few and many samples, sizes that do not divide."""

import pytest
import torch
from torch.nn.functional import interpolate

LINES = ["nearest", "nearest-exact", "linear"]
IMAGES = ["nearest", "nearest-exact", "bilinear", "bicubic"]
VOLUMES = ["nearest", "nearest-exact", "trilinear"]


def same_on_both(x, grad=None, **options):
    """Result and gradient on loom are those of cpu."""
    results = {}
    for device in ("cpu", "loom"):
        leaf = x.detach().to(device).requires_grad_()
        result = interpolate(leaf, **options)
        torch.manual_seed(1)
        weights = torch.randn(result.shape).to(x.dtype) if grad is None else grad
        result.backward(weights.to(device))
        results[device] = (result.detach().cpu(), leaf.grad.cpu())
    # Gradients are sums of up to thousands of elements, in another order.
    bounds = {"rtol": 2e-5, "atol": 2e-5} if x.dtype == torch.float32 else {}
    torch.testing.assert_close(results["loom"], results["cpu"], **bounds)
    for mine, theirs in zip(*results.values(), strict=True):
        assert mine.stride() == theirs.stride()


@pytest.mark.parametrize(
    ("mode", "shape"),
    [
        *[(mode, (3, 5, 17)) for mode in LINES],
        *[(mode, (5, 3, 9, 13)) for mode in IMAGES],
        *[(mode, (1, 70, 9, 13)) for mode in IMAGES],  # cut along the channels
        *[(mode, (2, 3, 4, 5, 6)) for mode in VOLUMES],
    ],
    ids=str,
)
@pytest.mark.parametrize("factor", [0.4, 1.0, 2.0, 2.7])
def test_every_mode(mode, shape, factor):
    torch.manual_seed(0)
    x = torch.randn(shape)
    same_on_both(x, scale_factor=factor, mode=mode)
    same_on_both(x, scale_factor=factor, mode=mode, recompute_scale_factor=True)
    if "linear" in mode or "cubic" in mode:
        same_on_both(x, scale_factor=factor, mode=mode, align_corners=True)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("size", [(1, 1), (1, 40), (40, 1), (3, 200), (64, 64)], ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 1, 1), (2, 3, 1, 7), (2, 3, 33, 2), (1, 1, 50, 50)])
def test_sizes(shape, size, mode):
    torch.manual_seed(0)
    same_on_both(torch.randn(shape), size=size, mode=mode)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_layouts_and_dtypes(dtype, mode):
    torch.manual_seed(0)
    x = torch.randn(2, 8, 6, 7).to(dtype)
    same_on_both(x, scale_factor=2, mode=mode)
    same_on_both(x.contiguous(memory_format=torch.channels_last), scale_factor=2, mode=mode)
    same_on_both(x[:, 2:5], scale_factor=2, mode=mode)
    points = x[:1].permute(0, 2, 3, 1).reshape(1, 42, 8)
    same_on_both(points.transpose(1, 2).unflatten(2, (6, 7)), scale_factor=2, mode=mode)
    same_on_both(x, torch.ones((), dtype=dtype).expand(2, 8, 12, 14), scale_factor=2, mode=mode)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialiasing(mode):
    torch.manual_seed(0)
    for shape in [(3, 2, 20, 30), (1, 40, 20, 30)]:
        same_on_both(torch.randn(shape), size=(7, 11), mode=mode, antialias=True)


def test_what_is_not_a_number_stays_where_it_is():
    x = torch.zeros(1, 2, 6, 6)
    x[0, 1, 2, 3], x[0, 0, 5, 5] = torch.nan, torch.inf
    for mode in ("nearest", "bilinear"):
        mine = interpolate(x.to("loom"), scale_factor=2, mode=mode).cpu()
        torch.testing.assert_close(mine, interpolate(x, scale_factor=2, mode=mode), equal_nan=True)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear"])
@pytest.mark.parametrize("factor", [0.4, 2, 2.7])
def test_a_gradient_that_is_a_part_of_a_concatenations(mode, factor):
    torch.manual_seed(0)
    x = torch.randn(3, 4, 9, 13)
    larger = torch.randn(interpolate(x, scale_factor=factor, mode=mode).repeat(1, 2, 1, 1).shape)
    same_on_both(x, larger[:, 4:], scale_factor=factor, mode=mode)
