# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent layers and cells on loom against stock cpu: one call waited for, without and with its
gradients. `python benchmarks/recurrent.py GRU LSTMCell` for some of them; `--dtype bfloat16`, and
`--projected` for LSTMs whose states are half as wide."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable

import torch
from measure import describe, duration, interleaved, seconds_per_call, table
from torch import nn

SECONDS = 0.05

LAYERS: dict[str, Callable[..., nn.Module]] = {
    "LSTM": nn.LSTM,
    "GRU": nn.GRU,
    "RNN": nn.RNN,
}
CELLS: dict[str, Callable[..., nn.Module]] = {
    "LSTMCell": nn.LSTMCell,
    "GRUCell": nn.GRUCell,
    "RNNCell": nn.RNNCell,
}
# Features and units, layers, steps, batch.
CASES = [
    (256, 2, 64, 1),
    (256, 2, 64, 16),
    (64, 1, 64, 32),
    (128, 2, 64, 8),
    (512, 1, 32, 64),
    (1024, 1, 16, 1),
]
# Features and units, batch.
CELL_CASES = [(64, 1), (256, 1), (256, 16), (512, 64)]


def inference(layer: nn.Module, x: torch.Tensor) -> Callable[[], object]:
    @torch.no_grad()
    def run() -> object:
        return layer(x)

    return run


def training(layer: nn.Module, x: torch.Tensor) -> Callable[[], object]:
    def run() -> None:
        result = layer(x)
        output = result[0] if isinstance(result, tuple) else result
        output.backward(torch.ones_like(output))

    return run


def row(name: str, sizes: tuple[int, ...], dtype: torch.dtype, *, projected: bool) -> list[str]:
    width, *others = sizes
    options = {"proj_size": width // 2} if projected else {}
    if name in CELLS:
        layer, x = CELLS[name](width, width), torch.randn(others[-1], width)
    else:
        layers, steps, batch = others
        layer = LAYERS[name](width, width, num_layers=layers, **options)
        x = torch.randn(steps, batch, width)
    layer, x = layer.to(dtype), x.to(dtype)
    twin, y = copy.deepcopy(layer).to("loom"), x.to("loom")
    cells = [name, *(str(size) for size in sizes)]
    cells[2:2] = ["", ""] if name in CELLS else []
    for make in (inference, training):
        on_cpu, on_loom = make(layer, x), make(twin, y)
        times = interleaved(
            {
                "cpu": lambda f=on_cpu: seconds_per_call(f, lambda: None, 1, SECONDS, keep=True),
                "loom": lambda f=on_loom: seconds_per_call(
                    f, torch.loom.synchronize, 1, SECONDS, keep=True
                ),
            }
        )
        ratio = times["cpu"] / times["loom"]
        cells += [duration(times["cpu"]), duration(times["loom"]), f"{ratio:.2f}"]
    return cells


def main() -> None:
    describe("Recurrent layers (cpu / loom: more than 1 is faster than cpu)")
    header = ["layer", "units", "layers", "steps", "batch", "inference: cpu", "loom", "ratio"]
    header += ["with gradients: cpu", "loom", "ratio"]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--projected", action="store_true")
    arguments = parser.parse_args()
    dtype, projected = getattr(torch, arguments.dtype), arguments.projected
    chosen = ["LSTM"] if projected else arguments.names or [*LAYERS, *CELLS]
    rows = [
        row(name, case, dtype, projected=projected and name in LAYERS)
        for names, cases in ((LAYERS, CASES), (CELLS, CELL_CASES))
        for name in names
        if name in chosen
        for case in cases
    ]
    table(header, rows)


if __name__ == "__main__":
    main()
