# SPDX-License-Identifier: BSD-3-Clause
"""What a small call costs while loom has the name of CUDA, beside the same call without it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from measure import describe, duration, interleaved, seconds_per_call, table

import torch_loom

SECONDS = 0.03
CALLS = 500

Call = Callable[[torch.Tensor, str], object]
SMALL_CALLS: dict[str, Call] = {
    "x + x": lambda x, device: x + x,
    "torch.relu(x)": lambda x, device: torch.relu(x),
    "torch.empty(4, device=...)": lambda x, device: torch.empty(4, device=device),
    "torch.empty_like(x)": lambda x, device: torch.empty_like(x),
    "x.to(...), of the same device": lambda x, device: x.to(device),
    "torch.device(...)": lambda x, device: torch.device(device),
    "x.device": lambda x, device: x.device,
    "x.device.type": lambda x, device: x.device.type,
    "x.shape": lambda x, device: x.shape,
    "x.is_cuda": lambda x, device: x.is_cuda,
    "current_stream()": lambda x, device: getattr(torch, device).current_stream(),
    "Event().record()": lambda x, device: getattr(torch, device).Event().record(),
}


def seconds_of(call: Call, device: str) -> float:
    x = torch.ones(4, device=device)
    return seconds_per_call(lambda: call(x, device), torch.loom.synchronize, CALLS, SECONDS)


def seconds_as_cuda(call: Call) -> float:
    with torch_loom.as_cuda():
        return seconds_of(call, "cuda")


def main() -> None:
    describe("Small calls of a program that says loom, and of one that says cuda")
    rows = []
    for name, call in SMALL_CALLS.items():
        medians = interleaved(
            {
                "loom": lambda call=call: seconds_of(call, "loom"),
                "cuda": lambda call=call: seconds_as_cuda(call),
            }
        )
        ratio = medians["cuda"] / medians["loom"]
        rows.append([name, duration(medians["loom"]), duration(medians["cuda"]), f"{ratio:.2f}"])
    table(["call", "loom", "as cuda", "times"], rows)


if __name__ == "__main__":
    main()
