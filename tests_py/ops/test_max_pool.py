# SPDX-License-Identifier: BSD-3-Clause
"""Max pooling against cpu: values, places, gradients."""

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

CASES = [
    # sizes, kernel, stride, padding, dilation
    ((2, 3, 8, 8), 2, 2, 0, 1),
    ((8, 64, 32, 32), 3, 2, 1, 1),
    ((1, 2, 17, 31), (3, 5), (1, 2), (1, 2), 1),
    ((3, 20, 23), 3, 1, 1, 2),
    ((2, 2, 9, 40), (2, 4), (3, 5), (1, 0), (2, 3)),
    ((1, 1, 1, 1), 1, 1, 0, 1),
    ((2, 300, 4, 4), 4, 4, 2, 1),
    ((1, 4, 7, 7), (7, 1), None, (3, 0), 1),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_places_and_gradients(case, special, ceil_mode, dtype):
    sizes, kernel, stride, padding, dilation = case
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(-20, 20, sizes, generator=generator).to(dtype)
    if special:
        chosen = torch.rand(sizes, generator=generator)
        x[chosen < 0.1] = float("nan")
        x[chosen > 0.5] = -float("inf")
        x[(chosen > 0.3) & (chosen < 0.35)] = float("inf")
    results = []
    for device in ("cpu", "loom"):
        leaf = x.clone().to(device).requires_grad_()
        values, places = F.max_pool2d(
            leaf,
            kernel,
            stride,
            padding,
            dilation,
            ceil_mode=ceil_mode,
            return_indices=True,
        )
        values.backward(torch.arange(values.numel(), device=device).view_as(values).to(dtype))
        results.append((values.detach().cpu(), places.cpu(), leaf.grad.cpu()))
    for expected, actual in zip(*results, strict=True):
        assert actual.stride() == expected.stride()
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("how", ["channels_last", "sliced", "transposed"])
def test_other_layouts(how):
    x = torch.randn(2, 8, 12, 12, generator=torch.Generator().manual_seed(4))
    layouts = {
        "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
        "sliced": lambda x: x[:, ::2, 1:, 1:],
        "transposed": lambda x: x.transpose(2, 3),
    }
    expected, actual = (
        F.max_pool2d(layouts[how](x.to(device)), 3, 2, 1, return_indices=True)
        for device in ("cpu", "loom")
    )
    for a, e in zip(actual, expected, strict=True):
        assert a.stride() == e.stride()
        torch.testing.assert_close(a.cpu(), e, rtol=0, atol=0)


POOLS = {
    "max_pool3d": lambda x: F.max_pool3d(x, 2),
    "max_pool3d with places": lambda x: F.max_pool3d(x, 2, return_indices=True)[1],
    "avg_pool3d": lambda x: F.avg_pool3d(x, 2),
    "adaptive_max_pool3d": lambda x: F.adaptive_max_pool3d(x, 2),
    "adaptive_avg_pool3d": lambda x: F.adaptive_avg_pool3d(x, 2),
    "fractional_max_pool3d": lambda x: torch.ops.aten.fractional_max_pool3d(
        x, 2, 2, torch.full((1 if x.dim() == 4 else len(x), x.shape[-4], 3), 0.5, device=x.device)
    )[0],
    "upsample_nearest3d": lambda x: F.interpolate(x if x.dim() == 5 else x[None], scale_factor=2),
}


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("batch", [None, 1, 2])
@pytest.mark.parametrize("sizes", [(2, 4, 4, 4), (1, 4, 4, 4), (3, 6, 4, 5)])
@pytest.mark.parametrize("last", [False, True])
def test_layout_of_volumes(name, batch, sizes, last):
    x = torch.rand(batch or 1, *sizes)
    if last:
        x = x.to(memory_format=torch.channels_last_3d)
    if batch is None:
        x = x[0]
    got = POOLS[name](x.to("loom"))
    expected = POOLS[name](x)
    assert got.stride() == expected.stride()
    torch.testing.assert_close(got.cpu(), expected)


def test_gradient_of_unbatched_volumes_channels_last():
    def gradient(device):
        x = torch.arange(128.0).sin().view(1, 2, 4, 4, 4)
        x = x.to(device, memory_format=torch.channels_last_3d)[0].requires_grad_()
        (F.max_pool3d(x, 2) * 2).sum().backward()
        return x.grad

    got, expected = gradient("loom"), gradient("cpu")
    assert got.stride() == expected.stride()
    torch.testing.assert_close(got.cpu(), expected)
