# SPDX-License-Identifier: BSD-3-Clause
"""Profiles of ranks show operations as those of other backends, and what the device does."""

from __future__ import annotations

import torch
import torch.distributed as dist
from rank_pool import RankPool
from torch.profiler import ProfilerActivity, profile
from training import make_model, train


def run_everything() -> None:
    rank, count = dist.get_rank(), dist.get_world_size()
    x = torch.full((4, 6), float(rank), device="loom")
    dist.all_reduce(x)
    dist.all_gather([torch.empty_like(x) for _ in range(count)], x)
    dist.broadcast(x, 1)
    if rank == 0:
        dist.send(x, 1)
        dist.send(x, 1)
    elif rank == 1:
        dist.recv(torch.empty(24, device="loom"), 0)
        dist.recv(torch.empty(24, device="loom"))
    torch.loom.synchronize()


def record_shapes() -> dict[str, list[list[int]]]:
    with torch.autograd.profiler.profile(record_shapes=True) as prof:
        run_everything()
    events = [event for event in prof.function_events if event.name.startswith("lccl:")]
    assert all(event.is_async for event in events)
    return {event.name: event.input_shapes for event in events}


def test_calls(pair: RankPool) -> None:
    first, second = pair.run(record_shapes)
    both = {
        "lccl:all_reduce": [[4, 6]],
        "lccl:all_gather": [[4, 6]],
        "lccl:broadcast": [[4, 6]],
    }
    assert first == {**both, "lccl:send": [[4, 6]]}
    assert second == {**both, "lccl:recv": [[24]], "lccl:recvAnySource": [[24]]}


def device_work() -> tuple[list[str], list[str]]:
    model = torch.nn.parallel.DistributedDataParallel(make_model().to("loom"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
        train(model, optimizer)
        torch.loom.synchronize()
    on_device = torch.autograd.DeviceType.PrivateUse1
    calls = [event.name for event in prof.events() if event.device_type != on_device]
    return calls, [event.name for event in prof.events() if event.device_type == on_device]


def test_what_the_device_does(pair: RankPool) -> None:
    for calls, ours in pair.run(device_work):
        assert calls.count("lccl:all_reduce") == 3  # a bucket in each of three steps
        assert ours.count("all_reduce") == 3
