# SPDX-License-Identifier: BSD-3-Clause
"""Pipeline parallel: every schedule over 4 ranks, several stages a rank, beside data parallel."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(300)]

WIDTH = 16
MICROBATCHES = 8


def stages_of(count):
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(count)]


def batch(seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 2 * MICROBATCHES, WIDTH, generator=generator).unbind()


def places(kind, rank, stages_per_rank, ranks):
    """The stages of a rank: round and round, or there and back again."""
    if kind in ("ZBVZeroBubble", "DualPipeV"):
        return [rank, 2 * ranks - 1 - rank]
    return [rank + turn * ranks for turn in range(stages_per_rank)]


def run_schedule(kind, stages_per_rank, group=None, seed=1):
    """Run a schedule once; return this rank's stages by number, and their losses."""
    from torch.distributed import pipelining
    from torch.distributed.pipelining.schedules import get_schedule_class

    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    device = torch.device("loom", torch.loom.current_device())
    total = stages_per_rank * ranks
    layers = stages_of(total)
    own = {
        number: layers[number].to(device) for number in places(kind, rank, stages_per_rank, ranks)
    }
    stages = [
        pipelining.PipelineStage(layer, number, total, device, group=group)
        for number, layer in own.items()
    ]
    schedule_class = get_schedule_class(kind)
    schedule = schedule_class(
        stages if stages_per_rank > 1 else stages[0],
        n_microbatches=MICROBATCHES,
        loss_fn=nn.functional.mse_loss,
    )
    x, y = (part.to(device) for part in batch(seed))
    losses = []
    named = {"target": y, "losses": losses} if total - 1 in own else {}
    schedule.step(*([x] if 0 in own else []), **named)
    return own, losses


def reference(count, seeds=(1,)):
    """The same stages in one process on the cpu."""
    layers = stages_of(count)
    whole = nn.Sequential(*copy.deepcopy(layers))
    losses = []
    for seed in seeds:
        x, y = batch(seed)
        losses.append(nn.functional.mse_loss(whole(x), y))
    (sum(losses) / len(losses)).backward()
    return whole, losses


def schedule(kind, stages_per_rank):
    own, losses = run_schedule(kind, stages_per_rank)
    whole, expected = reference(stages_per_rank * dist.get_world_size())
    for number, layer in own.items():
        for ours, theirs in zip(layer.parameters(), whole[number].parameters(), strict=True):
            torch.testing.assert_close(ours.grad.cpu(), theirs.grad, rtol=1e-3, atol=1e-6)
    if losses:
        torch.testing.assert_close(torch.stack(losses).mean().cpu(), expected[0].detach())


@pytest.mark.parametrize(
    ("kind", "stages_per_rank"),
    [
        ("GPipe", 1),
        ("1F1B", 1),
        ("Interleaved1F1B", 2),
        ("LoopedBFS", 2),
        ("InterleavedZeroBubble", 2),
        ("ZBVZeroBubble", 2),
        ("DualPipeV", 2),
    ],
)
def test_schedule(four, kind, stages_per_rank):
    four.run(schedule, kind, stages_per_rank)


def two_by_two():
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("loom", (2, 2), mesh_dim_names=("data", "stages"))
    seeds = (5, 6)
    own, _ = run_schedule("1F1B", 1, mesh.get_group("stages"), seeds[mesh.get_local_rank("data")])
    whole, _ = reference(2, seeds)
    for number, layer in own.items():
        for ours, theirs in zip(layer.parameters(), whole[number].parameters(), strict=True):
            dist.all_reduce(ours.grad, dist.ReduceOp.AVG, group=mesh.get_group("data"))
            torch.testing.assert_close(ours.grad.cpu(), theirs.grad, rtol=1e-3, atol=1e-6)


def test_two_pipelines_with_different_data(four):
    four.run(two_by_two)
