# SPDX-License-Identifier: BSD-3-Clause
"""Sharded training: FSDP and FSDP1, hybrid over 2 x 2 ranks, ZeRO; as one process with all data."""

import pytest
import torch
import torch.distributed as dist
from training import BATCH, alone, check, make_model, train

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(300)]


def check_sharded(model, expected, rtol=2e-4, atol=2e-5):
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value.full_tensor().cpu(), expected[name], rtol=rtol, atol=atol)


def hybrid():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh("loom", (2, 2), mesh_dim_names=("replicate", "shard"))
    policies = [MixedPrecisionPolicy(), MixedPrecisionPolicy(torch.bfloat16, torch.float32)]
    for policy, tolerance in zip(policies, ({}, {"rtol": 0.1, "atol": 0.05}), strict=True):
        model = make_model().to("loom")
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        train(model, torch.optim.AdamW(model.parameters(), lr=0.01))
        assert model[0].weight.to_local().shape == (16, 16)  # a half, on each of two ranks
        check_sharded(model, alone(optimizer="AdamW", lr=0.01), **tolerance)


def test_hybrid_sharding(four):
    four.run(hybrid)


def offloaded():
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

    model = make_model()
    for layer in (model[0], model[2], model):
        fully_shard(layer, offload_policy=CPUOffloadPolicy())
    train(model, torch.optim.SGD(model.parameters(), lr=0.05))
    assert model[0].weight.device.type == "cpu"
    expected = alone()
    for name, value in model.state_dict().items():
        whole = value.to("loom").full_tensor()
        torch.testing.assert_close(whole.cpu(), expected[name], rtol=2e-4, atol=2e-5)


def test_parameters_that_rest_on_the_host(four):
    four.run(offloaded)


def accumulated():
    """Gradients of two batches: only the second one is reduced."""
    from torch.distributed.fsdp import fully_shard

    model = make_model().to("loom")
    for layer in (model[0], model[2], model):
        fully_shard(layer)
    reference = make_model()
    x = torch.randn(dist.get_world_size(), 2, BATCH, 16, generator=torch.Generator().manual_seed(3))
    for half in range(2):
        model.set_requires_gradient_sync(half == 1)
        model(x[dist.get_rank(), half].to("loom")).square().mean().backward()
    for rank in range(len(x)):
        for half in range(2):
            (reference(x[rank, half]).square().mean() / len(x)).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    expected = torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.1)
    torch.testing.assert_close(norm.full_tensor().cpu(), expected, rtol=1e-4, atol=1e-6)
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        gradient = ours.grad.full_tensor().cpu()
        torch.testing.assert_close(gradient, theirs.grad, rtol=2e-4, atol=2e-6)


def test_accumulation_and_clipping(four):
    four.run(accumulated)


def first_fsdp(strategy):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    named = {"sharding_strategy": ShardingStrategy[strategy], "use_orig_params": True}
    if strategy.startswith("HYBRID"):
        named["device_mesh"] = init_device_mesh("loom", (2, 2))
    model = FullyShardedDataParallel(
        make_model().to("loom"), device_id=torch.loom.current_device(), **named
    )
    train(model, torch.optim.SGD(model.parameters(), lr=0.05))
    with FullyShardedDataParallel.summon_full_params(model):
        check(model.module, alone())


@pytest.mark.parametrize("strategy", ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"])
def test_first_fsdp(four, strategy):
    four.run(first_fsdp, strategy)


def zero(overlapped):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = make_model().to("loom")
    parallel = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(
        parallel.parameters(),
        optimizer_class=torch.optim.Adam,
        parameters_as_bucket_view=overlapped,
        lr=0.05,
    )
    train(parallel, optimizer)
    check(model, alone(optimizer="Adam"))
    optimizer.consolidate_state_dict(to=1)
    if dist.get_rank() == 1:
        whole = optimizer.state_dict()["state"]
        assert len(whole) == len(list(model.parameters()))
        own = sum(len(group["params"]) for group in optimizer.optim.param_groups)
        assert own < len(whole)  # of which each rank holds a part


@pytest.mark.parametrize("overlapped", [False, True])
def test_zero_redundancy_optimizer(four, overlapped):
    four.run(zero, overlapped)
