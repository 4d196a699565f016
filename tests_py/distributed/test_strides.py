# SPDX-License-Identifier: BSD-3-Clause
"""Elements of what is gathered, scattered or exchanged meet by their index, whatever the strides
are, and whatever memory tensors have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from rank_pool import RankPool

SHAPE = (4, 3, 2, 6)


def numbers(seed: int, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def contiguous(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous()


def channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def transposed(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(0, -1).contiguous().transpose(0, -1)


def every_other(x: torch.Tensor) -> torch.Tensor:
    wide = torch.zeros(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype, device=x.device)
    wide[..., ::2] = x
    return wide[..., ::2]


LAYOUTS = (contiguous, channels_last, transposed, every_other)


def operation(name: str, group: Any, of: Callable[..., Any], out: Callable[..., Any]) -> Any:
    """What a rank gets; of(seed, shape) are its inputs, out(shape) is an output."""
    rank, count = dist.get_rank(), dist.get_world_size()
    many = (count * SHAPE[0], *SHAPE[1:])
    outs = [out(SHAPE) for _ in range(count)]
    if name == "all_gather":
        dist.all_gather(outs, of(rank, SHAPE), group)
        return outs
    if name == "gather":
        dist.gather(of(rank, SHAPE), outs if rank == 1 else None, 1, group)
        return outs if rank == 1 else []
    if name == "scatter":
        inputs = [of(each, SHAPE) for each in range(count)]
        dist.scatter(outs[0], inputs if rank == 1 else None, 1, group)
        return outs[:1]
    if name == "reduce_scatter":
        dist.reduce_scatter(outs[0], [of(rank + each, SHAPE) for each in range(count)], group=group)
        return outs[:1]
    if name == "all_to_all":
        dist.all_to_all(outs, [of(10 * rank + each, SHAPE) for each in range(count)], group)
        return outs
    whole = out(many)
    if name == "all_gather_single":
        dist.all_gather_single(whole, of(rank, SHAPE), group)
    elif name == "reduce_scatter_single":
        dist.reduce_scatter_single(outs[0], of(rank, many), group=group)
        return outs[:1]
    elif name == "all_to_all_single":
        dist.all_to_all_single(whole, of(rank, many), group=group)
    return [whole]


OPERATIONS = (
    "all_gather",
    "gather",
    "scatter",
    "reduce_scatter",
    "all_to_all",
    "all_gather_single",
    "reduce_scatter_single",
    "all_to_all_single",
)


def all_layouts(name: str, device: str) -> None:
    # On the host, too: tensors of the cpu go to lccl in a group that has nothing else.
    group = dist.new_group(backend="lccl") if device == "cpu" else None

    def of(layout: Any) -> Callable[..., torch.Tensor]:
        return lambda seed, shape: layout(numbers(seed, shape).to(device))

    def out(layout: Any) -> Callable[..., torch.Tensor]:
        return lambda shape: layout(torch.zeros(shape, device=device))

    expected = operation(name, group, of(contiguous), out(contiguous))
    for given in LAYOUTS:
        for wanted in LAYOUTS:
            got = operation(name, group, of(given), out(wanted))
            for one, other in zip(got, expected, strict=True):
                assert torch.equal(one.cpu(), other.cpu()), (given.__name__, wanted.__name__)
                assert one.stride() == wanted(other.cpu()).stride()
    if group is not None:
        dist.destroy_process_group(group)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("device", ["loom", "cpu"])
def test_strides(pair: RankPool, name: str, device: str) -> None:
    pair.run(all_layouts, name, device)


def memory_in_common() -> None:
    """More than the ways between ranks hold, so that much is not sent yet when results come."""
    rank, count = dist.get_rank(), dist.get_world_size()
    size = 1_000_000
    total = torch.zeros(size)
    for each in range(count):
        total += numbers(each, (size,))
    for _ in range(3):
        x = numbers(rank, (size,)).to("loom")
        dist.reduce_scatter(x, [x] * count)
        assert torch.equal(x.cpu(), total)
        every = torch.zeros(count, size, device="loom")
        every[rank - 1] = rank
        slots = list(every)
        dist.all_gather(slots, slots[rank - 1])
        assert every.mean(1).tolist() == list(range(count))
        parts = torch.full((count, size), float(rank), device="loom")
        dist.all_to_all_single(parts, parts)
        assert parts.mean(1).tolist() == list(range(count))


def test_memory_in_common(ranks: RankPool) -> None:
    ranks.run(memory_in_common)


def work_includes_copies() -> None:
    """Who polls sees what it waits for whole; so do those who use the future."""
    rank, count = dist.get_rank(), dist.get_world_size()
    outs = [torch.zeros(300, 400, device="loom").t() for _ in range(count)]
    work = dist.all_gather(outs, torch.full((400, 300), float(rank), device="loom"), async_op=True)
    assert work is not None
    sums = work.get_future().then(lambda done: [x.sum() for x in done.value()[0:count]]).wait()
    assert [x.item() for x in sums] == [120_000.0 * each for each in range(count)]
    while not work.is_completed():
        pass
    assert outs[1].sum().item() == 120_000.0


def test_work_includes_copies(pair: RankPool) -> None:
    pair.run(work_includes_copies)


def coalesced() -> None:
    rank, count = dist.get_rank(), dist.get_world_size()
    outs = [torch.zeros(3 * count, n, device="loom") for n in (4, 5)]
    with dist._coalescing_manager(device=torch.device("loom")):
        for n, out in zip((4, 5), outs, strict=True):
            x = numbers(rank + n, (n, 3)).to("loom").t()
            dist.all_gather_single(out, x)
    for n, out in zip((4, 5), outs, strict=True):
        wanted = torch.cat([numbers(each + n, (n, 3)).t() for each in range(count)])
        assert torch.equal(out.cpu(), wanted)


def test_coalesced(pair: RankPool) -> None:
    pair.run(coalesced)
