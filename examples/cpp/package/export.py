# SPDX-License-Identifier: BSD-3-Clause
"""Compiles a small classifier for loom, with its weights and for any batch: export.py FILE.pt2."""

import sys

import torch
from torch import nn

import torch_loom  # noqa: F401  autoload steps aside where torch sees a GPU

torch.manual_seed(0)
# Vectors of up to 8 elements would become part of the code, and no weights of the package.
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 10), nn.Softmax(-1)).to("loom")
batch = torch.export.Dim("batch", min=1, max=4096)
program = torch.export.export(
    model, (torch.randn(8, 16, device="loom"),), dynamic_shapes=({0: batch},)
)
print(torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[1]))
