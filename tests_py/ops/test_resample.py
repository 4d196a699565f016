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
    # Gradients are sums of up to thousands of elements, in another order. cpu rounds weights, too.
    bounds = {torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 5e-3}.get(x.dtype)
    bounds = {} if bounds is None else {"rtol": bounds, "atol": bounds}
    torch.testing.assert_close(results["loom"], results["cpu"], **bounds)
    for mine, theirs in zip(*results.values(), strict=True):
        assert mine.stride() == theirs.stride()


@pytest.mark.parametrize(
    ("mode", "shape"),
    [
        *[(mode, (3, 5, 17)) for mode in LINES],
        *[(mode, (5, 3, 9, 13)) for mode in IMAGES],
        *[(mode, (1, 70, 9, 13)) for mode in IMAGES],  # cut along the channels
        *[(mode, (2, 70, 9, 13)) for mode in IMAGES],
        *[(mode, (2, 3, 4, 5, 6)) for mode in VOLUMES],
        *[(mode, (2, 9, 4, 5, 6)) for mode in VOLUMES],
        *[(mode, (2, 40, 33)) for mode in LINES],
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


@pytest.mark.parametrize(
    "shape",
    [(2, 5, 20), (2, 5, 6, 20), (2, 5, 40, 100), (2, 3, 4, 6, 20), (2, 8, 4, 6, 20)],
    ids=str,
)
@pytest.mark.parametrize("factor", [1.04, 2.04])  # sizes are those of 1 and 2, positions may not be
@pytest.mark.parametrize("last", [False, True])
def test_scales_beside_whole_ones(shape, factor, last):
    torch.manual_seed(0)
    x = torch.randn(shape)
    if last and x.dim() > 3:
        orders = {4: torch.channels_last, 5: torch.channels_last_3d}
        x = x.contiguous(memory_format=orders[x.dim()])
    same_on_both(x, scale_factor=factor, mode="nearest")
    same_on_both(x, scale_factor=factor, mode="nearest-exact")


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


@pytest.mark.parametrize("mode", IMAGES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(1, 70, 9, 13), (3, 5, 8, 6), (2, 1, 7, 5), (1, 300, 30, 41)])
def test_channels_beside_each_other(shape, dtype, mode):
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype).contiguous(memory_format=torch.channels_last)
    for size in [(20, 17), (3, 4), (9, 13), (1, 1)]:
        same_on_both(x, size=size, mode=mode)


@pytest.mark.parametrize("mode", VOLUMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_volumes_in_both_layouts(dtype, mode):
    torch.manual_seed(0)
    x = torch.randn(2, 17, 3, 6, 5).to(dtype)
    for layout in (torch.contiguous_format, torch.channels_last_3d):
        for size in [(5, 12, 11), (2, 3, 4), (3, 1, 9)]:
            same_on_both(x.contiguous(memory_format=layout), size=size, mode=mode)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("mode", IMAGES)
def test_halves_are_summed_up_in_float32_and_rounded_once(mode, dtype):
    torch.manual_seed(0)
    x = torch.randn(2, 9, 14, 11).to(dtype)
    wide = interpolate(x.float(), size=(31, 19), mode=mode).to(dtype)
    for layout in (torch.contiguous_format, torch.channels_last):
        own = x.to("loom").contiguous(memory_format=layout)
        result = interpolate(own, size=(31, 19), mode=mode).cpu()
        unit = torch.finfo(dtype).eps
        torch.testing.assert_close(result, wide, rtol=unit, atol=unit / 100)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_results_do_not_depend_on_cores(layout, mode):
    torch.manual_seed(0)
    x = torch.randn(1, 24, 90, 70).contiguous(memory_format=layout).to("loom").requires_grad_()
    found = []
    cores = torch.loom.get_device_properties(0).core_count
    for count in (1, cores):
        torch.loom.set_num_threads(count)
        result = interpolate(x, scale_factor=1.7, mode=mode)
        found += [(result.cpu(), torch.autograd.grad(result.sin().sum(), x)[0].cpu())]
    assert all(map(torch.equal, *found))


def test_large_factors_and_a_given_result():
    torch.manual_seed(0)
    same_on_both(torch.randn(1, 3, 2, 2), size=(150, 170), mode="bilinear")
    same_on_both(torch.randn(1, 3, 150, 170), size=(2, 2), mode="bicubic")
    x = torch.randn(2, 6, 5, 4)
    expected = torch.ops.aten.upsample_bilinear2d(x, (10, 8), False)
    given = torch.empty(2, 6, 8, 10, device="loom").transpose(2, 3)
    torch.ops.aten.upsample_bilinear2d(x.to("loom"), (10, 8), False, out=given)
    torch.testing.assert_close(given.cpu(), expected)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialiasing(mode):
    torch.manual_seed(0)
    for shape in [(3, 2, 20, 30), (1, 40, 20, 30), (2, 40, 20, 30), (2, 3, 20, 30)]:
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


@pytest.mark.parametrize("mode", ["nearest", "linear", "bilinear", "bicubic", "trilinear"])
def test_no_samples(mode: str) -> None:
    dims = {"linear": 1, "nearest": 1, "trilinear": 3}.get(mode, 2)
    empty = torch.randn(0, 3, *[4] * dims)
    expected = interpolate(empty, scale_factor=2, mode=mode)
    made = interpolate(empty.to("loom"), scale_factor=2, mode=mode).cpu()
    assert made.shape == expected.shape
    assert made.stride() == expected.stride()


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_results_do_not_depend_on_the_number_of_planes(dtype: torch.dtype, mode: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(7, 19, 6, 5).to(dtype)
    all_of = interpolate(x.to("loom"), scale_factor=2, mode=mode)
    alone = [interpolate(image[None].to("loom"), scale_factor=2, mode=mode) for image in x]
    assert torch.equal(all_of, torch.cat(alone))
    single = interpolate(x[3:4, 7:8].to("loom"), scale_factor=2, mode=mode)
    assert torch.equal(all_of[3:4, 7:8], single)
    same_on_both(x[:, ::2], scale_factor=2, mode=mode)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("channels", [1, 3, 4, 5])
@pytest.mark.parametrize("size", [(33, 1), (8, 1), (33, 2), (300, 40)], ids=str)
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_bytes_take_the_kernel_of_the_whole_image(batch, size, channels, mode):
    """ATen chooses it by the number of channels."""
    torch.manual_seed(0)
    x = torch.randint(0, 256, (batch, channels, *size), dtype=torch.uint8)
    for to in ((16, 1), (1, 16), (64, 64)):
        for image in (x, x.contiguous(memory_format=torch.channels_last)):
            expected = interpolate(image, size=to, mode=mode)
            found = interpolate(image.to("loom"), size=to, mode=mode)
            assert torch.equal(found.cpu(), expected)
