# SPDX-License-Identifier: BSD-3-Clause
"""Products and convolutions of the shapes that models have, on loom against stock cpu.

`one` is a single call waited for; `queued` is the time of one of twenty products, or three
convolutions, that are queued and waited for together.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from measure import describe, duration, interleaved, seconds_per_call, table

F = torch.nn.functional
SECONDS = 0.02
QUEUED = {"product": 20, "convolution": 3}

Work = Callable[[], object]
# Kind, dtype and sizes: rows, columns, inner (and batch) of a product; batch, channels before and
# after, height and width, kernel, stride and padding of a convolution.
Case = tuple[str, torch.dtype, tuple[int, ...]]

SQUARES = [(n, n, n) for n in (32, 64, 128, 256, 512, 1024)]
LINEAR = [(1, 1024, 1024), (32, 256, 256), (32, 1024, 1024), (128, 1024, 1024)]
LINEAR += [(2048, 1536, 384), (2048, 384, 1536)]
IMAGES = [(8, 64, 64, 56, 3, 1, 1), (8, 3, 64, 224, 7, 2, 3), (8, 128, 128, 28, 3, 1, 1)]
IMAGES += [(8, 64, 128, 56, 3, 2, 1), (8, 512, 512, 7, 3, 1, 1), (8, 256, 64, 56, 1, 1, 0)]
IMAGES += [(32, 64, 64, 16, 3, 1, 1), (32, 512, 512, 2, 3, 1, 1), (1, 64, 64, 56, 3, 1, 1)]
IMAGES += [(16, 3, 32, 64, 3, 1, 1)]
# Those of ResNet-18 at 64x64: training with a batch of 8, inference of one image.
for count in (8, 1):
    IMAGES += [(count, 3, 64, 64, 7, 2, 3), (count, 64, 64, 16, 3, 1, 1)]
    IMAGES += [(count, 128, 128, 8, 3, 1, 1), (count, 128, 256, 8, 3, 2, 1)]
    IMAGES += [(count, 128, 256, 8, 1, 2, 0), (count, 256, 256, 4, 3, 1, 1)]
    IMAGES += [(count, 512, 512, 2, 3, 1, 1)]


# Rows, columns, inner elements that nothing divides.
ODD = [(127, 333, 1000), (700, 288, 96), (1000, 127, 333), (333, 555, 777), (17, 1023, 511)]
ODD += [(500, 65, 2047), (450, 130, 1000), (900, 70, 512)]
# Images, weights and what else there is of a window: volumes, signals, groups, dilated ones.
Layer = tuple[str, tuple[int, ...], tuple[int, ...], dict[str, object]]
LAYERS: list[Layer] = [
    ("conv3d", (1, 16, 16, 32, 32), (32, 16, 3, 3, 3), {"padding": 1}),
    ("conv3d", (2, 64, 8, 14, 14), (64, 64, 1, 3, 3), {"padding": (0, 1, 1)}),
    ("conv3d", (2, 64, 8, 14, 14), (64, 64, 3, 1, 1), {"padding": (1, 0, 0)}),
    ("conv1d", (1, 80, 3000), (384, 80, 3), {"padding": 1}),
    ("conv1d", (1, 384, 3000), (384, 384, 3), {"padding": 1, "stride": 2}),
    ("conv1d", (1, 1, 16000), (512, 1, 10), {"stride": 5}),
    ("conv2d", (8, 256, 14, 14), (256, 8, 3, 3), {"padding": 1, "groups": 32}),
    ("conv2d", (1, 128, 56, 56), (128, 4, 3, 3), {"padding": 1, "stride": 2, "groups": 32}),
    ("conv2d", (2, 64, 56, 56), (64, 64, 3, 3), {"padding": 2, "dilation": 2}),
    ("conv2d", (1, 512, 14, 14), (256, 512, 3, 3), {"padding": 12, "dilation": 12}),
    ("conv_transpose2d", (4, 128, 16, 16), (128, 64, 3, 3), {"stride": 2, "padding": 1}),
    ("conv_transpose3d", (1, 32, 8, 16, 16), (32, 16, 2, 2, 2), {"stride": 2}),
]


def cases(only: str) -> list[Case]:
    everything: list[Case] = []
    for dtype in (torch.float32, torch.bfloat16):
        everything += [("mm", dtype, sizes) for sizes in SQUARES]
        everything += [("mm of odd sizes", dtype, sizes) for sizes in ODD]
        everything += [("linear", dtype, sizes) for sizes in LINEAR]
        everything += [("mm of a.t()", dtype, sizes) for sizes in ((384, 1536, 2048), SQUARES[-1])]
        everything += [("bmm", dtype, sizes) for sizes in ((256, 64, 256, 48), (64, 64, 64, 32))]
    everything += [("mm of odd sizes", torch.float16, sizes) for sizes in ODD]
    everything += [("linear", torch.float16, sizes) for sizes in LINEAR[:3]]
    for kind in ("conv2d", "conv2d channels_last", "conv2d backward"):
        everything += [(kind, torch.float32, sizes) for sizes in IMAGES]
    return [case for case in everything if only in case[0]]


def numbers(device: str, dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, dtype=dtype).to(device)


def product(kind: str, dtype: torch.dtype, sizes: tuple[int, ...], device: str) -> Work:
    rows, columns, inner = sizes[:3]
    if kind == "linear":
        x, w = numbers(device, dtype, rows, inner), numbers(device, dtype, columns, inner)
        bias = numbers(device, dtype, columns)
        return lambda: F.linear(x, w, bias)
    if kind == "bmm":
        a = numbers(device, dtype, sizes[3], rows, inner)
        b = numbers(device, dtype, sizes[3], inner, columns)
        return lambda: torch.bmm(a, b)
    a = numbers(device, dtype, rows, inner)
    if kind == "mm of a.t()":
        a = a.t().contiguous().t()
    b = numbers(device, dtype, inner, columns)
    return lambda: torch.mm(a, b)


def convolution(kind: str, dtype: torch.dtype, sizes: tuple[int, ...], device: str) -> Work:
    batch, before, after, side, kernel, stride, padding = sizes
    layout = torch.channels_last if "channels_last" in kind else torch.contiguous_format
    x = numbers(device, dtype, batch, before, side, side).contiguous(memory_format=layout)
    w = numbers(device, dtype, after, before, kernel, kernel).contiguous(memory_format=layout)
    bias = numbers(device, dtype, after)
    if "backward" not in kind:
        return lambda: F.conv2d(x, w, bias, stride, padding)
    pairs = ([stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, [True] * 3)
    grad = torch.ones_like(F.conv2d(x, w, bias, stride, padding))
    return lambda: torch.ops.aten.convolution_backward(grad, x, w, [after], *pairs)


def layer(of: Layer, dtype: torch.dtype, backward: bool, device: str) -> Work:
    name, images, weights, window = of
    own = [numbers(device, dtype, *sizes).requires_grad_(backward) for sizes in (images, weights)]
    call = getattr(F, name)
    if not backward:
        return lambda: call(*own, **window)
    grad = torch.ones_like(call(*own, **window))
    return lambda: torch.autograd.grad(call(*own, **window), own, grad)


def layer_row(of: Layer, dtype: torch.dtype, backward: bool) -> list[str]:
    name, images, weights, _ = of
    sizes = ", ".join("x".join(map(str, sizes)) for sizes in (images, weights))
    work = {device: layer(of, dtype, backward, device) for device in ("cpu", "loom")}
    title = name + (" and backward" if backward else "")
    return [title, str(dtype).removeprefix("torch."), sizes, *timed(work, 3)]


def row(case: Case) -> list[str]:
    kind, dtype, sizes = case
    make = convolution if kind.startswith("conv") else product
    work = {device: make(kind, dtype, sizes, device) for device in ("cpu", "loom")}
    cells = [kind, str(dtype).removeprefix("torch."), "x".join(map(str, sizes))]
    return cells + timed(work, QUEUED[make.__name__])


def timed(work: dict[str, Work], queued: int) -> list[str]:
    """A call, and one of some that are queued."""
    cells = []
    finish: dict[str, Work] = {"cpu": lambda: None, "loom": torch.loom.synchronize}
    for batch in (1, queued):
        times = interleaved(
            {
                device: lambda d=device, n=batch: seconds_per_call(work[d], finish[d], n, SECONDS)
                for device in work
            }
        )
        ratio = times["cpu"] / times["loom"]
        cells += [duration(times["cpu"]), duration(times["loom"]), f"{ratio:.2f}"]
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "only", nargs="?", default="", help="only kinds that contain this, or `layers`"
    )
    given = parser.parse_args()
    describe("products and convolutions (cpu / loom: more than 1 is faster than cpu)")
    header = ["operation", "dtype", "sizes", "one: cpu", "loom", "ratio"]
    header += ["queued: cpu", "loom", "ratio"]
    rows = [row(case) for case in cases(given.only)]
    if given.only in ("", "layers"):
        dtypes = (torch.float32, torch.bfloat16)
        rows += [layer_row(of, t, b) for of in LAYERS for t in dtypes for b in (False, True)]
    table(header, rows)


if __name__ == "__main__":
    main()
