# SPDX-License-Identifier: BSD-3-Clause
"""Images, volumes and sums of products in blocks: the values of cpu, on any number of cores."""

import re

import pytest
import torch
from split_checks import (
    Case,
    all_cores,
    check_cores,
    check_gradients,
    check_values,
    grid,
    positive,
    random,
)
from torch.nn import functional as F  # noqa: N812

__all__ = ["all_cores"]  # a fixture

CASES: dict[str, Case] = {
    "grid_sample of one": (
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        (random(1, 3, 90, 90), grid(1, 301, 300, 2)),
    ),
    "grid_sample of one volume": (
        lambda x, g: F.grid_sample(x, g, align_corners=False, padding_mode="border"),
        (random(1, 3, 10, 20, 20), grid(1, 31, 30, 90, 3)),
    ),
    "max_pool2d of short rows": (
        lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True, return_indices=True),
        (random(4000, 2, 3, 9),),
    ),
    "max_pool3d": (
        lambda x: F.max_pool3d(x, 3, 2, return_indices=True),
        (random(30, 4, 9, 16, 16),),
    ),
    "max_pool3d of one": (lambda x: F.max_pool3d(x, 2), (random(1, 64, 9, 16, 16),)),
    "max_pool3d without a batch": (lambda x: F.max_pool3d(x, 2), (random(64, 9, 16, 16),)),
    "max_pool3d of channels last": (
        lambda x: F.max_pool3d(x.to(memory_format=torch.channels_last_3d), 2),
        (random(30, 4, 9, 16, 16),),
    ),
    "max_unpool2d": (
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
        (random(40, 9, 30, 30),),
    ),
    "max_unpool2d of one": (
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
        (random(1, 90, 60, 60),),
    ),
    "max_unpool3d": (
        lambda x: F.max_unpool3d(*F.max_pool3d(x, 2, return_indices=True), 2),
        (random(40, 9, 10, 12, 12),),
    ),
    "fractional_max_pool2d": (
        lambda x, s: F.fractional_max_pool2d(
            x, 3, output_size=9, return_indices=True, _random_samples=s.detach()
        ),
        (random(40, 9, 30, 30), random(40, 9, 2).sigmoid()),
    ),
    "fractional_max_pool3d": (
        lambda x, s: F.fractional_max_pool3d(
            x, 2, output_size=5, return_indices=True, _random_samples=s.detach()
        ),
        (random(1, 90, 10, 12, 14), random(1, 90, 3).sigmoid()),
    ),
    "windows": (lambda x: x.unfold(0, 4, 1).contiguous(), (random(30, 40, 90),)),
    "windows of columns": (lambda x: x.unfold(-1, 5, 2).contiguous(), (random(30, 40, 90),)),
    "windows apart": (lambda x: x.unfold(1, 3, 4).contiguous(), (random(30, 40, 90),)),
    "windows of a vector": (lambda x: x.unfold(0, 7, 3).contiguous(), (random(90_000),)),
    "avg_pool2d of one": (lambda x: F.avg_pool2d(x, 3, 2), (random(1, 64, 50, 50),)),
    "avg_pool3d of one": (lambda x: F.avg_pool3d(x, 2), (random(1, 64, 10, 20, 20),)),
    "adaptive_max_pool2d of one": (
        lambda x: F.adaptive_max_pool2d(x, 7, return_indices=True),
        (random(1, 64, 50, 50),),
    ),
    "pads of many": (
        lambda x: tuple(
            F.pad(x, pad, mode=mode)
            for mode in ("replicate", "reflect")
            for pad in ((1, 2, 3, 4), (2, -1, -3, 3))
        ),
        (random(300, 5, 12, 14),),
    ),
    "pads of many volumes": (
        lambda x: F.pad(x, (1, 2, 3, 4, 0, 1), mode="replicate"),
        (random(40, 5, 6, 12, 14),),
    ),
    "pads of one": (
        lambda x: F.pad(x, (1, 2, 3, 4), mode="replicate"),
        (random(1, 64, 90, 90),),
    ),
    "pads of one channels last": (
        lambda x: F.pad(x.to(memory_format=torch.channels_last), (1, 2, 3, 4), mode="replicate"),
        (random(1, 64, 90, 90),),
    ),
    "reflections of many": (
        lambda x: F.pad(x, (1, 2, 3, 4), mode="reflect"),
        (random(40, 5, 30, 31),),
    ),
    "reflections of one": (
        lambda x: F.pad(x, (1, 2, 3, 4), mode="reflect"),
        (random(1, 64, 90, 90),),
    ),
    "reflections without a batch": (
        lambda x: F.pad(x, (1, 2, 3, 4), mode="reflect"),
        (random(64, 90, 90),),
    ),
    "reflections of rows of one": (
        lambda x: F.pad(x, (1, 2, 0, 0), mode="reflect"),
        (random(1, 900, 290),),
    ),
    "reflections of channels last": (
        lambda x: F.pad(x.to(memory_format=torch.channels_last), (1, 2, 3, 4), mode="reflect"),
        (random(40, 5, 30, 31),),
    ),
    "reflections of one channels last": (
        lambda x: F.pad(x.to(memory_format=torch.channels_last), (1, 2, 3, 4), mode="reflect"),
        (random(1, 64, 90, 90),),
    ),
    "prelu": (F.prelu, (random(80, 30, 90), random(30))),
    "prelu of one slope": (F.prelu, (random(80, 30, 90), random(1))),
    "prelu of a number": (F.prelu, (random(80, 30, 90), random(1)[0])),
    "prelu of half": (lambda x, w: F.prelu(x.half(), w.half()), (random(80, 30, 90), random(30))),
    "prelu of channels last": (
        lambda x, w: F.prelu(x.to(memory_format=torch.channels_last), w),
        (random(20, 30, 20, 20), random(30)),
    ),
    "prelu of rows": (lambda x, w: F.prelu(x[:, ::2], w), (random(800, 60), random(30))),
    "conv_transpose1d in groups": (
        lambda x, w: F.conv_transpose1d(x, w, stride=3, dilation=4, groups=2),
        (random(9000, 2, 4), random(2, 2, 4)),
    ),
    "pixel_shuffle of one": (lambda x: F.pixel_shuffle(x, 3), (random(36, 50, 70),)),
    "pixel_shuffle of columns": (
        lambda x: F.pixel_shuffle(x.bfloat16().mT, 2).float(),
        (random(5, 2, 16, 40, 30),),
    ),
    "pixel_unshuffle of integers": (
        lambda x: F.pixel_unshuffle((9 * x).char(), 4),
        (random(3, 5, 48, 64),),
    ),
    "pixel_unshuffle, channels last": (
        lambda x: F.pixel_unshuffle(x, 2),
        (random(4, 8, 64, 64).contiguous(memory_format=torch.channels_last),),
    ),
    "channel_shuffle of rows": (
        lambda x: torch.channel_shuffle(x[:, :, ::2], 4),
        (random(8, 64, 50),),
    ),
    "channel_shuffle of volumes": (
        lambda x: torch.channel_shuffle(x, 4),
        (random(1, 64, 16, 13, 8),),
    ),
    "max_pool3d of one, channels last": (
        lambda x: F.max_pool3d(x, 2, return_indices=True),
        (random(1, 16, 16, 32, 32).contiguous(memory_format=torch.channels_last_3d),),
    ),
    "max_unpool2d of one, channels last": (
        lambda x: F.max_unpool2d(
            x, torch.arange(400, device=x.device).mul(4).view(20, 20).expand(1, 64, 20, 20), 2
        ),
        (random(1, 64, 20, 20).contiguous(memory_format=torch.channels_last),),
    ),
    "fractional_max_pool2d of one, channels last": (
        lambda x: F.fractional_max_pool2d(
            x, 3, output_size=21, _random_samples=torch.full((1, 64, 2), 0.4, device=x.device)
        ),
        (random(1, 64, 40, 40).contiguous(memory_format=torch.channels_last),),
    ),
    "adaptive_avg_pool2d of one, channels last": (
        lambda x: F.adaptive_avg_pool2d(x, 7),
        (random(1, 64, 60, 60).contiguous(memory_format=torch.channels_last),),
    ),
    "addbmm": (
        torch.addbmm,
        (random(60, 90).double(), random(30, 60, 50).double(), random(30, 50, 90).double()),
    ),
    "addbmm of a row": (
        lambda x, a, b: torch.addbmm(x, a, b, beta=0.5, alpha=2),
        (random(90).double(), random(30, 60, 50).double(), random(30, 50, 90).double()),
    ),
    "addmm of nothing": (
        lambda x, a, b: torch.addmm(x, a, b, beta=0.5),
        (random(90), random(900, 0), random(0, 90)),
    ),
    "mm of nothing": (torch.mm, (random(900, 0), random(0, 90))),
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_cpu(name: str) -> None:
    check_values(CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_cores_do_not_matter(name: str) -> None:
    check_cores(CASES[name])


GRADIENTS = (
    "grid_sample of one",
    "max_pool2d of short rows",
    "max_pool3d",
    "max_pool3d of one",
    "max_pool3d of one, channels last",
    "max_unpool2d of one, channels last",
    "fractional_max_pool2d of one, channels last",
    "max_unpool2d",
    "max_unpool3d",
    "fractional_max_pool2d",
    "fractional_max_pool3d",
    "windows",
    "windows of columns",
    "windows apart",
    "windows of a vector",
    "avg_pool2d of one",
    "adaptive_max_pool2d of one",
    "pads of one",
    "pads of many",
    "pads of many volumes",
    "reflections of many",
    "reflections of one",
    "reflections without a batch",
    "reflections of rows of one",
    "reflections of channels last",
    "reflections of one channels last",
    "prelu",
    "prelu of one slope",
    "prelu of a number",
    "prelu of channels last",
    "prelu of rows",
    "conv_transpose1d in groups",
    "addbmm",
    "addmm of nothing",
)


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_those_of_cpu(name: str) -> None:
    check_gradients(CASES[name])


def test_an_addend_times_nothing_leaves_no_nan() -> None:
    x = torch.full((900, 90), torch.nan, device="loom")
    empty = torch.empty(900, 0, device="loom")
    assert not torch.addmm(x, empty, empty[:90].mT, beta=0).any().item()
    assert not torch.baddbmm(x[None], empty[None], empty[None, :90].mT, beta=0).any().item()
    assert torch.addmm(x, empty, empty[:90].mT).isnan().all().item()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64])
def test_sums_of_products_that_are_rounded_after_each(dtype: torch.dtype) -> None:
    given = [random(60, 90), random(30, 60, 50), random(30, 50, 90)]
    own = [each.mul(9).to(dtype) for each in given]
    found = torch.addbmm(*(each.to("loom") for each in own))
    torch.testing.assert_close(found.cpu(), torch.addbmm(*own))


@pytest.mark.parametrize("by_rows", [False, True])
def test_rows_of_scaled_products(by_rows: bool) -> None:
    a = random(3000, 64).to(torch.float8_e4m3fn)
    b = random(48, 64).to(torch.float8_e4m3fn)
    scales = (positive(1, 1).float(),) * 2
    if by_rows:
        scales = (random(3000, 1).abs(), random(1, 48).abs())

    def product(device: str) -> torch.Tensor:
        with_scales = [each.to(device) for each in scales]
        args = (a.to(device), b.to(device).t(), *with_scales)
        return torch._scaled_mm(*args, out_dtype=torch.bfloat16).cpu()

    try:
        expected = product("cpu")
    except RuntimeError as error:  # oneDNN has no such product for this processor
        with pytest.raises(RuntimeError, match=re.escape(str(error).split(".")[0])):
            product("loom")
        return
    torch.testing.assert_close(product("loom"), expected)


def test_an_index_out_of_range_is_found_in_any_block() -> None:
    values, indices = F.max_pool2d(random(40, 9, 30, 30), 2, return_indices=True)
    indices[33, 5, 3, 3] = 5000
    with pytest.raises(RuntimeError, match="invalid max index"):
        F.max_unpool2d(values.to("loom"), indices.to("loom"), 2).cpu()
