# SPDX-License-Identifier: BSD-3-Clause
"""A user's program with types: ``torch.loom`` under a name that type checkers see."""

import torch
from torch import nn

from torch_loom import loom


def train(model: nn.Module, steps: int) -> float:
    """Train on a side stream under autocast, and return the milliseconds that it took."""
    loom.manual_seed(7)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    side = loom.Stream(priority=-1)
    side.wait_stream(loom.current_stream())
    start, end = loom.Event(enable_timing=True), loom.Event(enable_timing=True)
    with loom.stream(side):
        start.record()
        for _ in range(steps):
            with torch.autocast("loom", dtype=loom.get_autocast_dtype()):
                loss = model(torch.randn(8, 16, device="loom")).square().mean()
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
        end.record()
    end.synchronize()
    loom.current_stream().wait_event(end)
    elapsed: float = start.elapsed_time(end)
    return elapsed


def memory() -> tuple[int, int]:
    """Return the bytes in use, and the most since the last call."""
    stats: dict[str, int] = loom.memory_stats()
    peak: int = loom.max_memory_allocated(0)
    loom.reset_peak_memory_stats()
    return stats["allocated_bytes.all.current"], peak


def main() -> None:
    """Train a layer, and say what it took."""
    index: int = loom.current_device()
    properties = loom.get_device_properties(index)
    cores: int = properties.core_count
    with loom.device(index):
        milliseconds = train(nn.Linear(16, 4).to("loom"), steps=3)
    state: torch.Tensor = loom.get_rng_state()
    loom.set_rng_state(state)
    graph = loom.Graph()
    static = torch.zeros(4, device="loom")
    with loom.graph(graph):
        static += 1
    graph.replay()
    loom.synchronize()
    slow = [name for name, row in loom.fallbacks().items() if row.seconds > 1]
    used, peak = memory()
    assert milliseconds >= 0
    assert used <= peak
    assert static.tolist() == [1.0] * 4
    print(cores, loom.memory_summary(abbreviated=True), slow, loom.is_fusion_enabled())


if __name__ == "__main__":
    main()
