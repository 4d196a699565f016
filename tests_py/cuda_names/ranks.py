# SPDX-License-Identifier: BSD-3-Clause
"""A program for CUDA and NCCL on several ranks, which test_distributed.py starts by torchrun."""

import os

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

RANK = int(os.environ["LOCAL_RANK"])


def train(wrap):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    model = wrap(model.cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(RANK)
    losses = []
    for _ in range(3):
        loss = model(torch.randn(4, 4, generator=data).cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        losses.append(mean.item())
    return losses


def shard(model):
    fully_shard(model)
    assert next(model.parameters()).device_mesh.device_type == "cuda"
    return model


def main():
    torch.cuda.set_device(RANK)
    dist.init_process_group("nccl", device_id=torch.device("cuda", RANK))
    assert dist.get_backend() == "nccl"
    assert dist.is_nccl_available()
    assert dist.get_backend_config() == "cuda:nccl"
    losses = {
        "ddp": train(lambda model: DistributedDataParallel(model, device_ids=[RANK])),
        "fsdp": train(lambda model: FullyShardedDataParallel(model, device_id=RANK)),
        "fully_shard": train(shard),
    }
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    assert mesh.device_type == "cuda"
    for backend in ("nccl", "NCCL", "cuda:nccl", "cpu:gloo,cuda:nccl"):
        options = dist.ProcessGroupNCCL.Options() if backend == "nccl" else None
        group = dist.new_group(backend=backend, pg_options=options)
        value = torch.ones(1, device="cuda")
        dist.all_reduce(value, group=group)
        assert value.item() == dist.get_world_size()
        assert "nccl" in dist.get_backend(group)
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, RANK)
    assert gathered == list(range(dist.get_world_size()))
    with pytest.raises(RuntimeError, match="cpu"):  # as NCCL
        dist.all_reduce(torch.ones(1))
    if RANK == 0:
        print("losses", losses)
    dist.destroy_process_group()
    dist.init_process_group(device_id=torch.device("cuda", RANK))
    value = torch.ones(1, device="cuda")
    dist.all_reduce(value)
    assert value.item() == dist.get_world_size()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
