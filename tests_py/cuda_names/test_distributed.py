# SPDX-License-Identifier: BSD-3-Clause
"""A program for NCCL under torchrun: lccl answers, and sums as one process would."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.usefixtures("loom_names")


def _expected():
    """What two ranks compute, in one process of the cpu."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = [torch.Generator().manual_seed(rank) for rank in range(2)]
    losses = []
    for _ in range(3):
        each = [model(torch.randn(4, 4, generator=g)).square().mean() for g in data]
        loss = sum(each) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_ddp_and_fsdp_train_under_torchrun():
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "torch_loom",
        "run",
        "--as-cuda",
        "--gpus",
        "2",
    ]
    command += ["-m", "torch.distributed.run", "--nproc-per-node=gpu", "--standalone"]
    command.append(str(Path(__file__).with_name("ranks.py")))
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("losses"))
    losses = ast.literal_eval(line.removeprefix("losses "))
    for kind in ("ddp", "fsdp", "fully_shard"):
        assert losses[kind] == pytest.approx(_expected(), rel=1e-4), kind
