# SPDX-License-Identifier: BSD-3-Clause
"""Language models whose weights and sequences are cut over ranks train as one process does."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.distributed as dist
from llama import Llama, Sizes, parallelize
from rank_pool import RankPool
from torch import nn

STEPS = 3
BATCH = 2
SIZES = Sizes()


def tokens(step: int, part: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(10 * step + part)
    return torch.randint(SIZES.vocabulary, (BATCH, SIZES.length + 1), generator=generator)


def loss_of(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    logits = model(batch[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def make() -> Llama:
    torch.manual_seed(0)
    return Llama(SIZES)


def losses_of_one_process(parts: int) -> list[list[float]]:
    """Of each step and part, on the cpu."""
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=True)
    losses = []
    for step in range(STEPS):
        of_parts = [loss_of(model, tokens(step, part)) for part in range(parts)]
        optimizer.zero_grad()
        torch.stack(of_parts).mean().backward()
        optimizer.step()
        losses.append([loss.item() for loss in of_parts])
    return losses


def sharded_and_parallel(local: bool) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("loom", (2, 2), mesh_dim_names=("dp", "tp"))
    model = make().to("loom")
    parallelize(model, mesh["tp"], local)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=True)
    part = mesh["dp"].get_local_rank()
    for step, expected in enumerate(losses_of_one_process(2)):
        loss = loss_of(model, tokens(step, part).to("loom"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(loss.item(), expected[part], rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("local", [True, False], ids=["tensors", "dtensors"])
def test_llama_with_fully_shard_and_tensor_parallelism(hosts: RankPool, local: bool) -> None:
    hosts.run(sharded_and_parallel, local)


MASKS = [None, (8, 8), (1, 1, 8, 8), (4, 1, 8, 8), (1, 4, 8, 8), (4, 4, 8, 8)]


def attention(dim: int, shape: tuple[int, ...] | None) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.debug import CommDebugMode

    mesh = init_device_mesh("loom", (dist.get_world_size(),))
    torch.manual_seed(0)
    whole = [torch.randn(4, 4, 8, 16, requires_grad=True) for _ in range(3)]
    mask = None if shape is None else torch.randn(shape)
    attend = nn.functional.scaled_dot_product_attention
    expected = attend(*whole, attn_mask=mask)
    expected.square().sum().backward()
    ours = [
        distribute_tensor(x.detach().to("loom"), mesh, [Shard(dim)]).requires_grad_() for x in whole
    ]
    if mask is not None:
        mask = distribute_tensor(mask.to("loom"), mesh, [Replicate()])
    with CommDebugMode() as communication:
        out = attend(*ours, attn_mask=mask)
        out.square().backward(torch.ones_like(out))
    assert out.placements == (Shard(dim),)
    assert communication.get_total_counts() == 0
    torch.testing.assert_close(out.full_tensor().cpu(), expected, rtol=1e-4, atol=1e-5)
    for x, y in zip(ours, whole, strict=True):
        assert x.grad.placements == (Shard(dim),)
        torch.testing.assert_close(x.grad.full_tensor().cpu(), y.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", MASKS, ids=str)
@pytest.mark.parametrize("dim", [0, 1], ids=["batch", "heads"])
def test_attention_stays_sharded(pair: RankPool, dim: int, shape: tuple[int, ...] | None) -> None:
    pair.run(attention, dim, shape)


def grouped(heads: int, of_keys: int, stays: bool) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("loom", (dist.get_world_size(),))
    torch.manual_seed(0)
    whole = [torch.randn(1, count, 8, 16) for count in (heads, of_keys, of_keys)]
    attend = nn.functional.scaled_dot_product_attention
    ours = [distribute_tensor(x.to("loom"), mesh, [Shard(1)]) for x in whole]
    out = attend(*ours, is_causal=True, enable_gqa=True)
    assert (out.placements == (Shard(1),)) is stays
    expected = attend(*whole, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(out.full_tensor().cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("heads", "of_keys", "stays"), [(8, 2, True), (6, 3, False), (4, 1, False)]
)
def test_grouped_queries_keep_their_keys(
    pair: RankPool, heads: int, of_keys: int, stays: bool
) -> None:
    pair.run(grouped, heads, of_keys, stays)


def cell(name: str, bias: bool) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_module, distribute_tensor

    mesh = init_device_mesh("loom", (dist.get_world_size(),))
    torch.manual_seed(0)
    reference = getattr(nn, name)(4, 6, bias=bias)
    module = distribute_module(copy.deepcopy(reference).to("loom"), mesh)
    x, *states = torch.randn(4, 4), *torch.randn(2 if "LSTM" in name else 1, 4, 6)

    def run(module: nn.Module, tensors: list[torch.Tensor]) -> torch.Tensor:
        x, *states = tensors
        for _ in range(2):
            made = module(x, states[0] if len(states) == 1 else tuple(states))
            states = [made] if len(states) == 1 else list(made)
        return states[-1]

    whole = [each.clone().requires_grad_() for each in (x, *states)]
    ours = [
        distribute_tensor(each.to("loom"), mesh, [Shard(0)]).requires_grad_()
        for each in (x, *states)
    ]
    expected, out = run(reference, whole), run(module, ours)
    assert out.placements == (Shard(0),)
    expected.square().sum().backward()
    out.square().sum().backward()
    torch.testing.assert_close(out.full_tensor().cpu(), expected, rtol=1e-4, atol=1e-5)
    pairs = zip((*ours, *module.parameters()), (*whole, *reference.parameters()), strict=True)
    for x, y in pairs:
        torch.testing.assert_close(x.grad.full_tensor().cpu(), y.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
@pytest.mark.parametrize("name", ["LSTMCell", "GRUCell"])
def test_recurrent_cells_stay_sharded(pair: RankPool, name: str, bias: bool) -> None:
    pair.run(cell, name, bias)


def sequences(causal: bool) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental._attention import (
        _cp_options,
        context_parallel_unshard,
    )

    _cp_options.enable_load_balance = causal
    count = dist.get_world_size()
    mesh = init_device_mesh("loom", (count,))
    torch.manual_seed(0)
    whole = [torch.randn(2, 4, 8 * count, 16, requires_grad=True) for _ in range(3)]
    attend = nn.functional.scaled_dot_product_attention
    expected = attend(*whole, is_causal=causal)
    expected.square().sum().backward()
    ours = [x.detach().to("loom") for x in whole]
    with context_parallel(
        mesh, buffers=list(ours), buffer_seq_dims=[2] * 3, no_restore_buffers=set(ours)
    ):
        for x in ours:
            x.requires_grad_()
        out = nn.functional.scaled_dot_product_attention(*ours, is_causal=causal)
        out.square().sum().backward()
        parts = [out.detach(), *(x.grad for x in ours)]
        got = context_parallel_unshard(mesh, parts, [2] * 4)
    for x, y in zip(got, [expected, *(x.grad for x in whole)], strict=True):
        torch.testing.assert_close(x.cpu(), y.detach(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
def test_context_parallel(pair: RankPool, causal: bool) -> None:
    pair.run(sequences, causal)
