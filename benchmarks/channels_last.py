# SPDX-License-Identifier: BSD-3-Clause
"""A convolutional network in channels_last and in the default layout, on loom and on cpu.

One training step (forward and backward) and one inference of convolutions, batch norms, ReLUs and
pooling on 64x64 images.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from measure import describe, duration, interleaved, seconds_per_call, table
from torch import nn

SECONDS = 0.5
FORMATS = {"default": torch.contiguous_format, "channels_last": torch.channels_last}


def network() -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 64), (64, 128)):
        layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after)]
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 16, 10))


def call(device: str, layout: str, training: bool) -> Callable[[], object]:
    memory_format = FORMATS[layout]
    model = network().to(device).to(memory_format=memory_format).train(training)
    images = torch.randn(16, 3, 64, 64).to(device).to(memory_format=memory_format)

    def step() -> None:
        model.zero_grad()
        model(images).square().mean().backward()

    def infer() -> None:
        with torch.no_grad():
            model(images)

    return step if training else infer


def main() -> None:
    describe("channels_last, batches of 16 images (cpu / loom: more than 1 is faster than cpu)")
    rows = []
    for training in (True, False):
        variants = {}
        for device, finish in (("cpu", lambda: None), ("loom", torch.loom.synchronize)):
            for layout in FORMATS:
                work = call(device, layout, training)
                variants[f"{device} {layout}"] = lambda work=work, finish=finish: seconds_per_call(
                    work, finish, 1, SECONDS
                )
        times = interleaved(variants)
        for layout in FORMATS:
            cpu, loom = times[f"cpu {layout}"], times[f"loom {layout}"]
            default = times["loom default"]
            rows.append(
                [
                    "training step" if training else "inference",
                    layout,
                    duration(cpu),
                    duration(loom),
                    f"{cpu / loom:.2f}",
                    f"{default / loom:.2f}",
                ]
            )
    table(["work", "layout", "cpu", "loom", "cpu / loom", "loom: default / this"], rows)


if __name__ == "__main__":
    main()
