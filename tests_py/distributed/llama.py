# SPDX-License-Identifier: BSD-3-Clause
"""A small Llama, as PyTorch's example of tensor parallelism with fully_shard has one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh


@dataclass(frozen=True)
class Sizes:
    dim: int = 32
    layers: int = 2
    heads: int = 4
    vocabulary: int = 64
    length: int = 16


def rotations(sizes: Sizes) -> torch.Tensor:
    """Of each position and pair of elements, as complex numbers."""
    head = sizes.dim // sizes.heads
    speeds = 10000.0 ** (-torch.arange(0, head, 2).float() / head)
    angles = torch.outer(torch.arange(sizes.length).float(), speeds)
    return torch.polar(torch.ones_like(angles), angles)


def rotate(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * by[: x.shape[1], None]).flatten(3).type_as(x)


class Attention(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.head = sizes.dim // sizes.heads
        self.wq = nn.Linear(sizes.dim, sizes.dim, bias=False)
        self.wk = nn.Linear(sizes.dim, sizes.dim, bias=False)
        self.wv = nn.Linear(sizes.dim, sizes.dim, bias=False)
        self.wo = nn.Linear(sizes.dim, sizes.dim, bias=False)

    def forward(self, x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        # -1, because tensor parallelism leaves each rank some of the heads.
        shape = (*x.shape[:2], -1, self.head)
        q, k, v = self.wq(x).view(shape), self.wk(x).view(shape), self.wv(x).view(shape)
        out = nn.functional.scaled_dot_product_attention(
            rotate(q, by).transpose(1, 2),
            rotate(k, by).transpose(1, 2),
            v.transpose(1, 2),
            is_causal=True,
        )
        return self.wo(out.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.w1 = nn.Linear(sizes.dim, 2 * sizes.dim, bias=False)
        self.w2 = nn.Linear(2 * sizes.dim, sizes.dim, bias=False)
        self.w3 = nn.Linear(sizes.dim, 2 * sizes.dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention = Attention(sizes)
        self.feed_forward = FeedForward(sizes)
        self.attention_norm = nn.RMSNorm(sizes.dim)
        self.ffn_norm = nn.RMSNorm(sizes.dim)

    def forward(self, x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), by)
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(sizes.vocabulary, sizes.dim)
        self.layers = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.dim)
        self.output = nn.Linear(sizes.dim, sizes.vocabulary, bias=False)
        self.register_buffer("rotations", rotations(sizes), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x, self.rotations)
        return self.output(self.norm(x)).float()


def parallelize(model: Llama, mesh: DeviceMesh, local: bool) -> None:
    """Distribute a model over the mesh's dimension "tp".

    If local, attention computes on tensors, otherwise on DTensors, as the example does.
    """
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    columns = {"use_local_output": local}
    rotations_as = None if local else Replicate()
    parallelize_module(
        model,
        mesh,
        {
            "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        },
    )
    for layer in model.layers:
        parallelize_module(
            layer,
            mesh,
            {
                "attention_norm": SequenceParallel(),
                "attention": PrepareModuleInput(
                    input_layouts=(Shard(1), rotations_as),
                    desired_input_layouts=(Replicate(), rotations_as),
                ),
                "attention.wq": ColwiseParallel(**columns),
                "attention.wk": ColwiseParallel(**columns),
                "attention.wv": ColwiseParallel(**columns),
                "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
                "ffn_norm": SequenceParallel(),
                "feed_forward": PrepareModuleInput(
                    input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
                ),
                "feed_forward.w1": ColwiseParallel(),
                "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
                "feed_forward.w3": ColwiseParallel(),
            },
        )
