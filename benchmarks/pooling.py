# SPDX-License-Identifier: BSD-3-Clause
"""Pooling, resampling, windows, variances and norms on loom against stock cpu, and their gradients.

`python benchmarks/pooling.py max_pool var` for some of them, `bfloat16` among the words for that
dtype instead of float32.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from measure import describe, duration, interleaved, seconds_per_call, table

F = torch.nn.functional
SECONDS = 0.04

Tensor = torch.Tensor
Case = tuple[str, Callable[[Tensor], Tensor], tuple[int, ...], bool]  # last: channels last


def batch_norm(x: Tensor) -> Tensor:
    return F.batch_norm(x, None, None, training=True)


IMAGE, VOLUME = (16, 32, 56, 56), (2, 16, 16, 48, 48)
# Of decoders that segment one image, and of networks' last layers.
ONE, SMALL, LAST = (1, 64, 56, 56), (1, 16, 16, 32, 32), (8, 512, 7, 7)


def resample(mode: str) -> Callable[[Tensor], Tensor]:
    return lambda x: F.interpolate(x, scale_factor=2, mode=mode)


CASES: list[Case] = [
    ("avg_pool1d 3/2", lambda x: F.avg_pool1d(x, 3, 2, 1), (64, 64, 1000), False),
    ("avg_pool2d 2", lambda x: F.avg_pool2d(x, 2), IMAGE, False),
    ("avg_pool2d 3/1", lambda x: F.avg_pool2d(x, 3, 1, 1), IMAGE, False),
    ("avg_pool2d 3/2", lambda x: F.avg_pool2d(x, 3, 2, 1), IMAGE, False),
    ("avg_pool2d 3/2", lambda x: F.avg_pool2d(x, 3, 2, 1), IMAGE, True),
    ("avg_pool3d 2", lambda x: F.avg_pool3d(x, 2), VOLUME, False),
    ("avg_pool3d 3/2", lambda x: F.avg_pool3d(x, 3, 2, 1), VOLUME, True),
    ("max_pool1d 3/2", lambda x: F.max_pool1d(x, 3, 2, 1), (64, 64, 1000), False),
    ("max_pool2d 2", lambda x: F.max_pool2d(x, 2), IMAGE, False),
    ("max_pool2d 3/2", lambda x: F.max_pool2d(x, 3, 2, 1), IMAGE, False),
    ("max_pool2d 3/2", lambda x: F.max_pool2d(x, 3, 2, 1), IMAGE, True),
    ("max_pool2d 5/1", lambda x: F.max_pool2d(x, 5, 1, 2), IMAGE, False),
    ("max_pool3d 2", lambda x: F.max_pool3d(x, 2), VOLUME, False),
    ("max_pool3d 3/2", lambda x: F.max_pool3d(x, 3, 2, 1), VOLUME, True),
    ("adaptive_avg_pool2d 7", lambda x: F.adaptive_avg_pool2d(x, 7), IMAGE, False),
    ("adaptive_avg_pool2d 1", lambda x: F.adaptive_avg_pool2d(x, 1), IMAGE, True),
    ("adaptive_avg_pool2d 1", lambda x: F.adaptive_avg_pool2d(x, 1), LAST, True),
    ("adaptive_avg_pool2d 1", lambda x: F.adaptive_avg_pool2d(x, 1), ONE, True),
    ("adaptive_max_pool2d 7", lambda x: F.adaptive_max_pool2d(x, 7), IMAGE, False),
    ("area to 24x24", lambda x: F.interpolate(x, (24, 24), mode="area"), IMAGE, False),
    ("nearest", resample("nearest"), ONE, False),
    ("nearest", resample("nearest"), ONE, True),
    ("bilinear", resample("bilinear"), ONE, False),
    ("bilinear", resample("bilinear"), ONE, True),
    ("bilinear", resample("bilinear"), IMAGE, True),
    ("bicubic", resample("bicubic"), ONE, False),
    ("bicubic", resample("bicubic"), ONE, True),
    ("trilinear", resample("trilinear"), SMALL, False),
    ("trilinear", resample("trilinear"), SMALL, True),
    ("batch_norm", batch_norm, IMAGE, False),
    ("batch_norm", batch_norm, IMAGE, True),
    ("group_norm 8", lambda x: F.group_norm(x, 8), IMAGE, False),
    ("group_norm 8", lambda x: F.group_norm(x, 8), IMAGE, True),
    ("group_norm 8 of one", lambda x: F.group_norm(x, 8), ONE, False),
    ("var of columns", lambda x: x.var(0), (8192, 384), False),
    ("var of rows", lambda x: x.var(-1), (256, 20000), False),
    ("var of short rows", lambda x: x.var(-1), (65536, 32), False),
    ("var of planes", lambda x: x.var((0, 2, 3)), IMAGE, False),
    ("var of few columns", lambda x: x.var(0), (100000, 8), False),
    ("unfold 3", lambda x: F.unfold(x, 3, padding=1), IMAGE, False),
    ("unfold 3 of one", lambda x: F.unfold(x, 3, padding=1), ONE, False),
    ("fold 3", lambda x: F.fold(x, (56, 56), 3, padding=1), (16, 288, 3136), False),
]


def row(case: Case, dtype: torch.dtype) -> list[str]:
    name, function, sizes, channels_last = case
    torch.manual_seed(0)
    x = torch.randn(sizes, dtype=dtype)
    if channels_last:
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        x = x.to(memory_format=formats[x.dim()])
    cells = [name + (", channels last" if channels_last else ""), "x".join(map(str, sizes))]
    for backward in (False, True):
        variants = {}
        for device in ("cpu", "loom"):
            leaf = x.to(device).requires_grad_(backward)

            def call(leaf: Tensor = leaf, backward: bool = backward) -> Tensor:
                result = function(leaf)
                if not backward:
                    return result
                return torch.autograd.grad(result, leaf, torch.ones_like(result))[0]

            finish = torch.loom.synchronize if device == "loom" else lambda: None
            variants[device] = lambda call=call, finish=finish: seconds_per_call(
                call, finish, 1, SECONDS, keep=True
            )
        times = interleaved(variants, rounds=3)
        ratio = times["cpu"] / times["loom"]
        cells += [duration(times["cpu"]), duration(times["loom"]), f"{ratio:.2f}"]
    return cells


def main() -> None:
    words = set(sys.argv[1:])
    dtypes = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
    dtype = next((dtypes[word] for word in words & set(dtypes)), torch.float32)
    words -= set(dtypes)
    cases = [case for case in CASES if not words or any(word in case[0] for word in words)]
    describe(f"Pooling and norms, {dtype} (cpu / loom: more than 1 is faster than cpu)")
    header = ["operator", "input", "forward: cpu", "loom", "ratio"]
    header += ["with gradient: cpu", "loom", "ratio"]
    table(header, [row(case, dtype) for case in cases])


if __name__ == "__main__":
    main()
