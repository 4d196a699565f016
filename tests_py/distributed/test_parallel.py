# SPDX-License-Identifier: BSD-3-Clause
"""What PyTorch builds on groups trains as one process does with all the data."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from rank_pool import RankPool
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from training import alone, check, data, make_model, train


def ddp(named: dict[str, object]) -> None:
    model = make_model().to("loom")
    parallel = DistributedDataParallel(model, **named)  # type: ignore[arg-type]
    parallel._set_ddp_runtime_logging_sample_rate(1)
    train(parallel, torch.optim.SGD(parallel.parameters(), lr=0.05))
    check(model, alone())
    statistics = parallel._get_ddp_logging_data()
    assert statistics["avg_backward_compute_time"] > 0


@pytest.mark.parametrize(
    "named",
    [
        {},
        {"static_graph": True},
        {"find_unused_parameters": True},
        {"gradient_as_bucket_view": True},
        {"bucket_cap_mb": 0.001},
    ],
    ids=lambda named: "_".join(named) or "plain",
)
def test_ddp(pair: RankPool, named: dict[str, object]) -> None:
    pair.run(ddp, named)


def test_ddp_on_hosts(hosts: RankPool) -> None:
    hosts.run(ddp, {})


def ddp_sparse() -> None:
    torch.manual_seed(0)
    embedding = nn.Embedding(10, 4, sparse=True)
    reference = copy.deepcopy(embedding)
    parallel = DistributedDataParallel(embedding.to("loom"))
    count = dist.get_world_size()
    rows = [torch.tensor([rank, 3, 3]) for rank in range(count)]
    parallel(rows[dist.get_rank()].to("loom")).sum().backward()
    (sum(reference(r).sum() for r in rows) / count).backward()
    torch.testing.assert_close(
        embedding.weight.grad.to_dense().cpu(), reference.weight.grad.to_dense()
    )


def test_ddp_sparse_gradients(pair: RankPool) -> None:
    pair.run(ddp_sparse)


def ddp_unused() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(16, 4), nn.Linear(16, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    torch.manual_seed(0)
    model = DistributedDataParallel(Branches().to("loom"), find_unused_parameters=True)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert model.module.unused.weight.grad is None


def test_ddp_unused_parameters(pair: RankPool) -> None:
    pair.run(ddp_unused)


def ddp_no_sync() -> None:
    model = make_model().to("loom")
    parallel = DistributedDataParallel(model)
    x, y = (part.to("loom") for part in data(dist.get_rank()))
    with parallel.no_sync():
        nn.functional.mse_loss(parallel(x[0]), y[0]).backward()
    nn.functional.mse_loss(parallel(x[1]), y[1]).backward()
    reference = make_model()
    all_data = [data(rank) for rank in range(dist.get_world_size())]
    for i in range(2):
        loss = [nn.functional.mse_loss(reference(d[0][i]), d[1][i]) for d in all_data]
        (sum(loss) / len(loss)).backward()
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad, rtol=2e-4, atol=2e-5)


def test_ddp_no_sync(pair: RankPool) -> None:
    pair.run(ddp_no_sync)


def ddp_hooks() -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    hooks: list[tuple[object, Callable[..., object], float]] = [
        (None, default_hooks.allreduce_hook, 2e-4),
        (None, default_hooks.fp16_compress_hook, 2e-2),
        (None, default_hooks.bf16_compress_hook, 5e-2),
    ]
    for state, hook, tolerance in hooks:
        model = make_model().to("loom")
        parallel = DistributedDataParallel(model)
        parallel.register_comm_hook(state, hook)
        train(parallel, torch.optim.SGD(parallel.parameters(), lr=0.05))
        for name, value in alone().items():
            ours = model.state_dict()[name].cpu()
            torch.testing.assert_close(ours, value, rtol=tolerance, atol=tolerance)
    parallel = DistributedDataParallel(make_model().to("loom"))
    state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, matrix_approximation_rank=2)
    parallel.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(parallel, torch.optim.SGD(parallel.parameters(), lr=0.05))


def test_ddp_hooks(pair: RankPool) -> None:
    pair.run(ddp_hooks)


def ddp_bad_hooks() -> None:
    def bf16_compress_mine(state: object, bucket: int) -> None:
        pass

    parallel = DistributedDataParallel(make_model().to("loom"))
    with pytest.raises(TypeError, match="must be callable"):
        parallel.register_comm_hook({}, {})
    with pytest.raises(ValueError, match=r"bucket annotation should be dist\.GradBucket"):
        parallel.register_comm_hook(None, bf16_compress_mine)


def test_ddp_refuses_what_are_no_hooks(pair: RankPool) -> None:
    pair.run(ddp_bad_hooks)


def sync_batch_norm() -> None:
    model = nn.SyncBatchNorm.convert_sync_batchnorm(make_model(norm=True)).to("loom")
    parallel = DistributedDataParallel(model)
    train(parallel, torch.optim.SGD(parallel.parameters(), lr=0.05))
    check(model, alone(norm=True))


def test_sync_batch_norm(ranks: RankPool) -> None:
    ranks.run(sync_batch_norm)


def zero() -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = make_model().to("loom")
    parallel = DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(
        parallel.parameters(), optimizer_class=torch.optim.Adam, lr=0.05
    )
    train(parallel, optimizer)
    check(model, alone(optimizer="Adam"))
    optimizer.consolidate_state_dict()


def test_zero(pair: RankPool) -> None:
    pair.run(zero)


def fully_sharded() -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model = make_model().to("loom")
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    train(model, torch.optim.SGD(model.parameters(), lr=0.05))
    expected = alone()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value.full_tensor().cpu(), expected[name], rtol=2e-4, atol=2e-5)
    half = make_model().to("loom")
    fully_shard(half, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    train(half, torch.optim.SGD(half.parameters(), lr=0.05))
    for name, value in half.state_dict().items():
        torch.testing.assert_close(value.full_tensor().cpu(), expected[name], rtol=0.1, atol=0.05)


def test_fully_shard(ranks: RankPool) -> None:
    ranks.run(fully_sharded)


def fsdp1() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(
        make_model().to("loom"), device_id=torch.loom.current_device(), use_orig_params=True
    )
    train(model, torch.optim.SGD(model.parameters(), lr=0.05))
    with FullyShardedDataParallel.summon_full_params(model):
        expected = alone()
        for name, value in model.module.named_parameters():
            torch.testing.assert_close(value.detach().cpu(), expected[name], rtol=2e-4, atol=2e-5)


def test_fsdp1(pair: RankPool) -> None:
    pair.run(fsdp1)


def tensor_parallel() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    count = dist.get_world_size()
    mesh = init_device_mesh("loom", (count,))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 12 * count), nn.ReLU(), nn.Linear(12 * count, 4))
    reference = copy.deepcopy(model)
    model = parallelize_module(
        model.to("loom"), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}
    )
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    out = model(x.to("loom"))
    torch.testing.assert_close(out.cpu(), reference(x), rtol=2e-4, atol=2e-5)
    out.sum().backward()
    reference(x).sum().backward()
    gradient = model[0].weight.grad
    assert isinstance(gradient, DTensor)
    torch.testing.assert_close(
        gradient.full_tensor().cpu(), reference[0].weight.grad, rtol=2e-4, atol=2e-5
    )
    whole = torch.arange(count * 6.0).reshape(count * 2, 3)
    sharded = distribute_tensor(whole.to("loom"), mesh, [Shard(0)])
    assert torch.equal(sharded.redistribute(mesh, [Shard(1)]).full_tensor().cpu(), whole)
    total = (sharded * 2).sum()
    assert total.redistribute(mesh, [Replicate()]).to_local().item() == 2 * whole.sum().item()


def test_tensor_parallel(ranks: RankPool) -> None:
    ranks.run(tensor_parallel)


def pipeline() -> None:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    rank, count = dist.get_rank(), dist.get_world_size()
    device = torch.device("loom", torch.loom.current_device())
    for schedule_class in (ScheduleGPipe, Schedule1F1B):
        torch.manual_seed(0)
        stages = [nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(count)]
        whole = nn.Sequential(*copy.deepcopy(stages))
        stage = PipelineStage(stages[rank].to(device), rank, count, device)
        schedule = schedule_class(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
        generator = torch.Generator().manual_seed(1)
        x, y = torch.randn(8, 16, generator=generator), torch.randn(8, 16, generator=generator)
        losses: list[torch.Tensor] = []
        if rank == 0:
            schedule.step(x.to(device))
        elif rank == count - 1:
            schedule.step(target=y.to(device), losses=losses)
        else:
            schedule.step()
        nn.functional.mse_loss(whole(x), y).backward()
        ours, theirs = stages[rank][0].weight.grad, whole[rank][0].weight.grad
        assert ours is not None
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-3, atol=1e-5)


def test_pipeline(ranks: RankPool) -> None:
    ranks.run(pipeline)


def checkpoint(folder: str) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.fsdp import fully_shard

    model = make_model().to("loom")
    fully_shard(model)
    train(model, torch.optim.SGD(model.parameters(), lr=0.05))
    trained = {name: value.full_tensor().cpu() for name, value in model.state_dict().items()}
    for write, path in ((dcp.save, f"{folder}/now"), (dcp.async_save, f"{folder}/later")):
        written = write(model.state_dict(), checkpoint_id=path)
        if write is dcp.async_save:
            written.result()  # type: ignore[union-attr]
        fresh = make_model().to("loom")
        with torch.no_grad():
            for parameter in fresh.parameters():
                parameter.zero_()
        fully_shard(fresh)
        state = fresh.state_dict()
        dcp.load(state, checkpoint_id=path)
        fresh.load_state_dict(state)
        for name, value in fresh.state_dict().items():
            assert torch.equal(value.full_tensor().cpu(), trained[name])


def test_checkpoint(pair: RankPool, tmp_path: Path) -> None:
    pair.run(checkpoint, str(tmp_path))


def functional() -> None:
    import torch.distributed._functional_collectives as funcol

    rank, count = dist.get_rank(), dist.get_world_size()
    group = dist.group.WORLD
    x = torch.full((4,), float(rank), device="loom")
    total = sum(range(count))

    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return funcol.all_reduce(x + 0, "sum", group) * 2, funcol.all_gather_tensor(x, 0, group)

    for run in (both, torch.compile(both, fullgraph=True)):
        reduced, gathered = run(x)
        assert (reduced.cpu() == 2 * total).all()
        expected = torch.arange(count, dtype=torch.float32).repeat_interleave(4)
        assert torch.equal(gathered.cpu(), expected)


def test_functional_collectives(pair: RankPool) -> None:
    pair.run(functional)
