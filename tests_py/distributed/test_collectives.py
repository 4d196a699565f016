# SPDX-License-Identifier: BSD-3-Clause
"""Every operation of a group gives each rank what one process would compute."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import torch.distributed as dist
from rank_pool import RankPool

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
COMPLEX = (torch.complex64, torch.complex128)
MOVED = (*FLOATS, *INTEGERS, *UNSIGNED, *COMPLEX, torch.bool, torch.float8_e4m3fn)
SIZES = (1, 5, 1000, 70_000)


def values(rank: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    """What a rank has: any rank can make it."""
    generator = torch.Generator().manual_seed(1000 + rank)
    if dtype == torch.bool:
        return torch.randint(0, 2, (size,), generator=generator).bool()
    if dtype.is_floating_point or dtype.is_complex:
        wide = torch.complex128 if dtype.is_complex else torch.float64
        return torch.randn(size, generator=generator, dtype=wide).to(dtype)
    return torch.randint(0, 100, (size,), generator=generator).to(dtype)


def on_loom(rank: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    return values(rank, size, dtype).to("loom")


def same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert actual.device.type == "loom"
    actual = actual.cpu()
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert torch.equal(actual.view(torch.uint8), expected.view(torch.uint8))


def combined(size: int, dtype: torch.dtype, reduction: Any, ranks: int) -> torch.Tensor:
    """What a reduction gives, in the order of ranks; half types are rounded once."""
    if dtype.is_complex:  # of which real and imaginary parts are averaged apart
        real = torch.view_as_real(torch.empty(0, dtype=dtype)).dtype
        parts = [torch.view_as_real(values(rank, size, dtype)) for rank in range(ranks)]
        total = functools.reduce(torch.add, parts).to(real)
        return torch.view_as_complex(total / ranks if reduction == dist.ReduceOp.AVG else total)
    held = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    parts = [values(rank, size, dtype).to(held) for rank in range(ranks)]
    if dtype in UNSIGNED:  # of which torch has few operators
        parts = [part.to(torch.int64) for part in parts]
    op = dist.ReduceOp
    binary: dict[Any, Any] = {
        op.SUM: torch.add,
        op.AVG: torch.add,
        op.PRODUCT: torch.mul,
        op.MIN: torch.minimum,
        op.MAX: torch.maximum,
        op.BAND: torch.bitwise_and,
        op.BOR: torch.bitwise_or,
        op.BXOR: torch.bitwise_xor,
    }
    result = functools.reduce(binary[reduction], parts)
    if reduction == op.AVG:
        mode = None if dtype.is_floating_point else "trunc"
        result = result.div(ranks, rounding_mode=mode)
    return result.to(dtype)


def reductions_of(dtype: torch.dtype) -> list[Any]:
    op = dist.ReduceOp
    if dtype.is_complex:
        return [op.SUM, op.AVG]
    arithmetic = [op.SUM, op.PRODUCT, op.MIN, op.MAX]
    if dtype == torch.bool:
        return [*arithmetic, op.BAND, op.BOR, op.BXOR]
    if dtype.is_floating_point:
        return [*arithmetic, op.AVG]
    return [*arithmetic, op.AVG, op.BAND, op.BOR, op.BXOR]


def all_reduce(dtype: torch.dtype) -> None:
    rank, count = dist.get_rank(), dist.get_world_size()
    for reduction in reductions_of(dtype):
        for size in SIZES:
            x = on_loom(rank, size, dtype)
            dist.all_reduce(x, reduction)
            same(x, combined(size, dtype, reduction, count))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, *UNSIGNED, *COMPLEX, torch.bool])
def test_all_reduce(ranks: RankPool, dtype: torch.dtype) -> None:
    ranks.run(all_reduce, dtype)


def scaled_sum() -> None:
    rank, count = dist.get_rank(), dist.get_world_size()
    for factor in (0.5, torch.tensor(0.25, device="loom")):
        x = on_loom(rank, 1000, torch.float32)
        dist.all_reduce(x, dist._make_nccl_premul_sum(factor))
        number = factor if isinstance(factor, float) else factor.item()
        parts = [values(r, 1000, torch.float32) * number for r in range(count)]
        same(x, functools.reduce(torch.add, parts))


def test_scaled_sum(ranks: RankPool) -> None:
    ranks.run(scaled_sum)


def moves(dtype: torch.dtype) -> None:
    rank, count = dist.get_rank(), dist.get_world_size()
    for size in SIZES:
        mine = on_loom(rank, size, dtype)
        every = [values(r, size, dtype) for r in range(count)]
        for root in range(count):
            x = mine.clone()
            dist.broadcast(x, root)
            same(x, every[root])
            parts = [torch.empty_like(mine) for _ in range(count)] if rank == root else None
            dist.gather(mine, parts, root)
            if parts is not None:
                for part, expected in zip(parts, every, strict=True):
                    same(part, expected)
            back = torch.empty_like(mine)
            dist.scatter(back, parts, root)
            same(back, values(rank, size, dtype))
        parts = [torch.empty_like(mine) for _ in range(count)]
        dist.all_gather(parts, mine)
        for part, expected in zip(parts, every, strict=True):
            same(part, expected)
        whole = torch.empty(size * count, dtype=dtype, device="loom")
        dist.all_gather_into_tensor(whole, mine)
        same(whole, torch.cat([e.view(torch.uint8) for e in every]).view(dtype))
        dist.all_to_all(parts, [mine] * count)
        for part, expected in zip(parts, every, strict=True):
            same(part, expected)


@pytest.mark.parametrize("dtype", MOVED)
def test_moves(ranks: RankPool, dtype: torch.dtype) -> None:
    ranks.run(moves, dtype)


def reduce_and_scatter(dtype: torch.dtype) -> None:
    rank, count = dist.get_rank(), dist.get_world_size()
    for reduction in reductions_of(dtype):
        for size in SIZES:
            expected = combined(size, dtype, reduction, count)
            for root in range(count):
                x = on_loom(rank, size, dtype)
                dist.reduce(x, root, reduction)
                same(x, expected if rank == root else values(rank, size, dtype))
            out = torch.empty(size, dtype=dtype, device="loom")
            dist.reduce_scatter(out, [on_loom(rank, size, dtype)] * count, reduction)
            same(out, expected)
            whole = torch.cat([values(rank, size, dtype).view(torch.uint8)] * count).view(dtype)
            dist.reduce_scatter_tensor(out, whole.to("loom"), reduction)
            same(out, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64])
def test_reduce_and_scatter(ranks: RankPool, dtype: torch.dtype) -> None:
    ranks.run(reduce_and_scatter, dtype)


def uneven() -> None:
    rank, count = dist.get_rank(), dist.get_world_size()
    sizes = [3 * r + (r != 1) for r in range(count)]
    mine = on_loom(rank, sizes[rank], torch.float32)
    parts = [torch.empty(size, device="loom") for size in sizes]
    dist.all_gather(parts, mine)
    for r, part in enumerate(parts):
        same(part, values(r, sizes[r], torch.float32))
    out = torch.empty(sizes[rank], device="loom")
    dist.reduce_scatter(out, [torch.full((size,), float(rank), device="loom") for size in sizes])
    same(out, torch.full((sizes[rank],), float(sum(range(count)))))
    # Rank r sends r + 1 elements to each of the others, and two more to the first.
    sent = [rank + 1 + 2 * (r == 0) for r in range(count)]
    got = [r + 1 + 2 * (rank == 0) for r in range(count)]
    x = torch.full((sum(sent), 4), float(rank), device="loom")
    y = torch.empty(sum(got), 4, device="loom")
    dist.all_to_all_single(y, x, got, sent)
    same(y, torch.cat([torch.full((n, 4), float(r)) for r, n in enumerate(got)]))


def test_uneven_sizes(ranks: RankPool) -> None:
    ranks.run(uneven)


def coalesced() -> None:
    rank, count = dist.get_rank(), dist.get_world_size()
    total = float(sum(range(count)))
    group = dist.group.WORLD
    tensors = [torch.full((n,), float(rank), device="loom") for n in (3, 40_000, 1)]
    with dist._coalescing_manager(group, torch.device("loom"), async_ops=True) as work:
        for tensor in tensors:
            dist.all_reduce(tensor)
    work.wait()
    for tensor in tensors:
        same(tensor, torch.full(tensor.shape, total))
    outs = [torch.empty(count * n, device="loom") for n in (2, 5)]
    with dist._coalescing_manager(group, torch.device("loom")):
        for n, out in zip((2, 5), outs, strict=True):
            dist.all_gather_into_tensor(out, torch.full((n,), float(rank), device="loom"))
    for n, out in zip((2, 5), outs, strict=True):
        same(out, torch.arange(count, dtype=torch.float32).repeat_interleave(n))
    outs = [torch.empty(n, device="loom") for n in (2, 5)]
    with dist._coalescing_manager(group, torch.device("loom")):
        for n, out in zip((2, 5), outs, strict=True):
            dist.reduce_scatter_tensor(out, torch.full((count * n,), float(rank), device="loom"))
    for out in outs:
        same(out, torch.full(out.shape, total))


def test_coalesced(ranks: RankPool) -> None:
    ranks.run(coalesced)


def sparse() -> None:
    rank, count = dist.get_rank(), dist.get_world_size()

    def of(r: int) -> torch.Tensor:
        indices = torch.tensor([[r, r + 1, 0]])
        return torch.sparse_coo_tensor(indices, torch.ones(3, 2) * (r + 1), (count + 1, 2))

    x = of(rank).to("loom")
    dist.all_reduce(x)
    expected = functools.reduce(torch.add, [of(r) for r in range(count)])
    torch.testing.assert_close(x.to_dense().cpu(), expected.to_dense())


def test_sparse(ranks: RankPool) -> None:
    ranks.run(sparse)


def objects() -> None:
    rank, count = dist.get_rank(), dist.get_world_size()
    gathered: list[Any] = [None] * count
    dist.all_gather_object(gathered, {"rank": rank, "x": torch.full((2,), float(rank))})
    assert [g["rank"] for g in gathered] == list(range(count))
    sent = [{"from": rank}, "two"]
    dist.broadcast_object_list(sent, src=1)
    assert sent == [{"from": 1}, "two"]
    got: list[Any] = [None]
    dist.scatter_object_list(got, list(range(count)) if rank == 0 else None, src=0)
    assert got == [rank]


def test_objects(ranks: RankPool) -> None:
    ranks.run(objects)


def follows_streams() -> None:
    """Operations see what the current stream has queued, and later work sees their results."""
    count = dist.get_world_size()
    x = torch.ones(100_000, device="loom")
    for _ in range(20):
        x = x * 2 - 1
        dist.all_reduce(x)
        x = x / count
    side = torch.loom.Stream()
    side.wait_stream(torch.loom.current_stream())
    with torch.loom.stream(side):
        y = x + 1
        work = dist.all_reduce(y, async_op=True)
        work.wait()
        y = y + 1
    side.synchronize()
    same(x, torch.ones(100_000))
    same(y, torch.full((100_000,), 2.0 * count + 1))
    future = dist.all_reduce(torch.ones(10, device="loom"), async_op=True).get_future()
    tripled = future.then(lambda done: done.value()[0] * 3).wait()
    same(tripled, torch.full((10,), 3.0 * count))


def test_follows_streams(ranks: RankPool) -> None:
    ranks.run(follows_streams)


def memory_is_kept() -> None:
    """What is dropped right after the call is not given to others before the ranks have it."""
    rank, count = dist.get_rank(), dist.get_world_size()
    results = []
    for turn in range(50):
        x = torch.full((30_000,), float(rank + turn), device="loom")
        out = torch.empty(30_000 * count, device="loom")
        work = dist.all_gather_into_tensor(out, x, async_op=True)
        del x
        torch.full((30_000,), -1.0, device="loom")
        results.append(out)
    work.wait()  # and so for all before it
    for turn, out in enumerate(results):
        expected = torch.arange(count, dtype=torch.float32) + turn
        same(out, expected.repeat_interleave(30_000))


def test_memory_is_kept(ranks: RankPool) -> None:
    ranks.run(memory_is_kept)


def comes_late() -> None:
    """What a rank has dropped is not given to others before those have it that begin later."""
    rank, count = dist.get_rank(), dist.get_world_size()
    if rank != 0:
        dist.barrier()
    x = torch.full((30_000,), float(rank), device="loom")
    out = torch.empty(30_000 * count, device="loom")
    work = dist.all_gather_into_tensor(out, x, async_op=True)
    del x
    if rank == 0:
        for _ in range(20):
            torch.full((30_000,), -1.0, device="loom")
        torch.loom.current_stream().synchronize()
        dist.barrier()
    work.wait()
    same(out, torch.arange(count, dtype=torch.float32).repeat_interleave(30_000))


def test_memory_is_kept_for_a_rank_that_comes_late(ranks: RankPool) -> None:
    ranks.run(comes_late)


@pytest.mark.parametrize("threads", ["2", "3"])
def test_threads_change_no_bits(threads: str) -> None:
    pool = RankPool(2, LOOM_THREADS=threads)
    try:
        for dtype in (torch.float32, torch.bfloat16):
            pool.run(all_reduce, dtype)
    finally:
        pool.close()


def bad_arguments() -> None:
    count = dist.get_world_size()
    x = torch.ones(4, 4, device="loom")
    with pytest.raises(ValueError, match="must be contiguous"):
        dist.all_reduce(x[:, ::2])
    with pytest.raises(ValueError, match="expected integers or bool for BAND"):
        dist.all_reduce(x, dist.ReduceOp.BAND)
    with pytest.raises(TypeError, match="a dtype that can be reduced"):
        dist.all_reduce(x.to(torch.float8_e4m3fn))
    with pytest.raises((ValueError, TypeError), match=r"one dtype|different dtypes"):
        dist.all_gather([x] * count, x.double())
    with pytest.raises((ValueError, RuntimeError), match="world_size times"):
        dist.all_gather_into_tensor(torch.empty(3, device="loom"), x)
    with pytest.raises(ValueError, match="does not divide equally"):
        dist.all_to_all_single(
            torch.empty(2 * count + 1, device="loom"), torch.empty(2 * count + 1, device="loom")
        )
    parts = [torch.empty(1, device="loom") for _ in range(count)]
    with pytest.raises(ValueError, match="sends to itself"):
        dist.all_to_all(parts, [torch.ones(4, device="loom")] * count)
    sizes = [-1, *[1] * (count - 2), 1 + 4 - (count - 2)]
    with pytest.raises(ValueError, match="split sizes from 0 on"):
        dist.all_to_all_single(torch.empty(4, device="loom"), x[0].clone(), sizes, sizes)
    dist.all_reduce(x)  # the group is none the worse
    same(x, torch.full((4, 4), float(count)))


def test_bad_arguments(ranks: RankPool) -> None:
    ranks.run(bad_arguments)
