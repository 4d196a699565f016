# SPDX-License-Identifier: BSD-3-Clause
"""Functional collectives: eager and under torch.compile, with gradients; compiled DDP and FSDP."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from training import alone, check, make_model, train

pytestmark = pytest.mark.timeout(400)

COMPILED = pytest.param(True, marks=pytest.mark.thorough)


def values(rank):
    return torch.randn(8, 6, generator=torch.Generator().manual_seed(rank))


def all_kinds(x, group):
    import torch.distributed._functional_collectives as funcol

    count = dist.get_world_size()
    return [
        funcol.all_reduce(x * 2, "sum", group) + 1,
        funcol.all_reduce(x, "avg", group) * 3,
        funcol.all_gather_tensor(x.tanh(), 0, group).sum(1),
        funcol.reduce_scatter_tensor(x + 1, "sum", 0, group).abs(),
        funcol.all_to_all_single(x.exp(), None, None, group) - 1,
        funcol.broadcast(x, 1, group) * 2,
        *[each + 1 for each in funcol.all_reduce_coalesced([x, x.t()], "max", group)],
        *[each * 2 for each in funcol.all_gather_into_tensor_coalesced([x, x + 1], group)],
        funcol.permute_tensor(x.flatten(), [(rank + 1) % count for rank in range(count)], group),
    ]


def expected(rank, count):
    x = [values(each) for each in range(count)]
    rows = 8 // count
    own = slice(rank * rows, (rank + 1) * rows)
    largest = torch.stack(x).amax(0)
    return [
        sum(each * 2 for each in x) + 1,
        sum(x) / count * 3,
        torch.cat([each.tanh() for each in x]).sum(1),
        sum(each + 1 for each in x)[own].abs(),
        torch.cat([each[own].exp() for each in x]) - 1,
        x[1] * 2,
        largest + 1,
        largest.t() + 1,
        torch.cat(x) * 2,
        torch.cat([each + 1 for each in x]) * 2,
        x[rank - 1].flatten(),
    ]


def functional(compiled):
    group = dist.group.WORLD
    run = torch.compile(all_kinds, fullgraph=True) if compiled else all_kinds
    rank, count = dist.get_rank(), dist.get_world_size()
    for _ in range(2):
        got = run(values(rank).to("loom"), group)
        for ours, theirs in zip(got, expected(rank, count), strict=True):
            torch.testing.assert_close(ours.cpu(), theirs)


@pytest.mark.parametrize("compiled", [False, COMPILED], ids=["eager", "compiled"])
def test_every_kind(four, compiled):
    four.run(functional, compiled)


def gradients(compiled):
    from torch.distributed._functional_collectives import (
        all_gather_tensor_autograd,
        all_to_all_single_autograd,
        reduce_scatter_tensor_autograd,
    )

    group = dist.group.WORLD

    def loss(x):
        gathered = all_gather_tensor_autograd(x.sin(), 0, group)
        scattered = reduce_scatter_tensor_autograd(gathered * gathered, "sum", 0, group)
        swapped = all_to_all_single_autograd(scattered.exp(), None, None, group)
        return (swapped * x).sum()

    def reference(xs):
        gathered = torch.cat([x.sin() for x in xs])
        scattered = (gathered * gathered * len(xs)).chunk(len(xs))
        pieces = [each.exp().chunk(len(xs)) for each in scattered]
        return [
            (torch.cat([piece[rank] for piece in pieces]) * x).sum() for rank, x in enumerate(xs)
        ]

    run = torch.compile(loss) if compiled else loss
    rank, count = dist.get_rank(), dist.get_world_size()
    xs = [values(each).requires_grad_() for each in range(count)]
    x = values(rank).to("loom").requires_grad_()
    ours = run(x)
    ours.backward()
    theirs = reference(xs)
    sum(theirs).backward()
    torch.testing.assert_close(ours.detach().cpu(), theirs[rank].detach())
    torch.testing.assert_close(x.grad.cpu(), xs[rank].grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("compiled", [False, COMPILED], ids=["eager", "compiled"])
def test_gradients(four, compiled):
    four.run(gradients, compiled)


def compiled_ddp():
    model = make_model().to("loom")
    parallel = nn.parallel.DistributedDataParallel(model)
    train(torch.compile(parallel), torch.optim.SGD(model.parameters(), lr=0.05))
    check(model, alone())


@pytest.mark.thorough
def test_compiled_ddp(two):
    two.run(compiled_ddp)


def compiled_sharded():
    from torch.distributed.fsdp import fully_shard

    model = make_model().to("loom")
    for layer in (model[0], model[2], model):
        fully_shard(layer)
    train(torch.compile(model), torch.optim.SGD(model.parameters(), lr=0.05))
    for name, value in model.state_dict().items():
        whole = value.full_tensor().cpu()
        torch.testing.assert_close(whole, alone()[name], rtol=2e-4, atol=2e-5)


def test_compiled_fully_shard(two):
    two.run(compiled_sharded)


def compiled_tensor_parallel():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("loom", (dist.get_world_size(),))
    model = make_model()
    reference = make_model()
    model = parallelize_module(
        model.to("loom"), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}
    )
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    out = torch.compile(model)(x.to("loom"))
    torch.testing.assert_close(out.cpu(), reference(x), rtol=2e-4, atol=2e-5)
    out.square().sum().backward()
    reference(x).square().sum().backward()
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        gradient = ours.grad
        if hasattr(gradient, "full_tensor"):
            gradient = gradient.full_tensor()
        torch.testing.assert_close(gradient.cpu(), theirs.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.thorough
def test_compiled_tensor_parallel(two):
    two.run(compiled_tensor_parallel)
