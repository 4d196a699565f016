# SPDX-License-Identifier: BSD-3-Clause
"""Train a small network on several ranks: ``torchrun --nproc-per-node 2 examples/train_ddp.py``."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 50
BATCH = 64


def main() -> None:
    """Learn a function of points that each rank draws for itself."""
    torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    device = torch.accelerator.current_accelerator()
    dist.init_process_group()
    torch.manual_seed(0)  # the same weights; DDP would send rank 0's in any case
    model = nn.Sequential(
        nn.Linear(2, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1)
    )
    model = DistributedDataParallel(model.to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(dist.get_rank())  # other points on each rank
    for step in range(STEPS):
        points = torch.rand(BATCH, 2, device=device) * 2 - 1
        loss = nn.functional.mse_loss(model(points), points.prod(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()  # averages the gradients over the ranks
        optimizer.step()
        if step % 10 == 9:
            dist.all_reduce(loss, dist.ReduceOp.AVG)
            if dist.get_rank() == 0:
                print(f"step {step + 1}: loss {loss.item():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
