# SPDX-License-Identifier: BSD-3-Clause
"""Messages between two ranks, in any pattern that matches."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from rank_pool import RankPool

import torch_loom


def filled(value: float, size: int = 1000) -> torch.Tensor:
    return torch.full((size,), float(value), device="loom")


def is_filled(x: torch.Tensor, value: float) -> bool:
    return bool((x.cpu() == value).all())


def in_turn() -> None:
    rank, count = dist.get_rank(), dist.get_world_size()
    for size in (1, 1000, 1_000_000):
        for sender in range(count):
            for receiver in range(count):
                if sender == receiver:
                    continue
                if rank == sender:
                    dist.send(filled(10 * sender + receiver, size), receiver, tag=size)
                elif rank == receiver:
                    x = filled(-1, size)
                    assert dist.recv(x, sender, tag=size) == sender
                    assert is_filled(x, 10 * sender + receiver)


def test_in_turn(ranks: RankPool) -> None:
    ranks.run(in_turn)


def ring() -> None:
    """Everybody sends before anybody receives, more than the ways hold."""
    rank, count = dist.get_rank(), dist.get_world_size()
    size = 3_000_000
    for _ in range(3):
        x = filled(-1, size)
        works = [
            dist.isend(filled(rank, size), (rank + 1) % count),
            dist.irecv(x, (rank - 1) % count),
        ]
        for work in works:
            assert work is not None
            work.wait()
        assert is_filled(x, (rank - 1) % count)


def test_unbatched_ring(ranks: RankPool) -> None:
    ranks.run(ring)


def batched() -> None:
    rank, count = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % count, (rank - 1) % count
    x, y = filled(-1), filled(-1)
    operations = [
        dist.P2POp(dist.isend, filled(rank), after),
        dist.P2POp(dist.isend, filled(rank + 100), before),
        dist.P2POp(dist.irecv, x, before),
        dist.P2POp(dist.irecv, y, after),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    if count == 2:  # both come from one rank, in the order of their sending
        assert is_filled(x, before)
        assert is_filled(y, after + 100)
    else:
        assert is_filled(x, before)
        assert is_filled(y, after + 100)


def test_batched(ranks: RankPool) -> None:
    ranks.run(batched)


def tags() -> None:
    rank = dist.get_rank()
    if rank == 0:
        for tag in range(5):
            dist.send(filled(tag), 1, tag=tag)
    elif rank == 1:
        for tag in reversed(range(5)):
            x = filled(-1)
            dist.recv(x, 0, tag=tag)
            assert is_filled(x, tag)


def test_tags(ranks: RankPool) -> None:
    ranks.run(tags)


def tags_that_come_otherwise() -> None:
    """What is received first comes last: tags find each other, whatever waits."""
    rank = dist.get_rank()
    if rank == 0:
        dist.send(filled(2), 1, tag=2)
        dist.recv(filled(-1), 1, tag=3)
        dist.send(filled(1), 1, tag=1)
    elif rank == 1:
        first, second = filled(-1), filled(-1)
        late, early = dist.irecv(first, 0, tag=1), dist.irecv(second, 0, tag=2)
        assert late is not None
        assert early is not None
        early.wait(timedelta(seconds=30))
        assert is_filled(second, 2)
        dist.send(filled(3), 0, tag=3)
        late.wait(timedelta(seconds=30))
        assert is_filled(first, 1)


def test_tags_that_come_otherwise(ranks: RankPool) -> None:
    ranks.run(tags_that_come_otherwise)


def many_tags() -> None:
    rank = dist.get_rank()
    tags = list(range(20))
    if rank == 0:
        for tag in reversed(tags):
            dist.send(filled(tag), 1, tag=tag)
    elif rank == 1:
        received = [filled(-1) for _ in tags]
        works = [dist.irecv(x, 0, tag=tag) for tag, x in zip(tags, received, strict=True)]
        for tag, work in zip(tags, works, strict=True):
            assert work is not None
            work.wait()
            assert is_filled(received[tag], tag)


def test_many_tags(ranks: RankPool) -> None:
    ranks.run(many_tags)


def the_first_to_ask() -> None:
    """A message is that of the first call that it suits, though that one runs later."""
    rank = dist.get_rank()
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        dist.send(filled(1), 1)
        dist.send(filled(2), 1)
        store.set("the_first_to_ask", "sent")
    elif rank == 1:
        first, second = filled(-1), filled(-1)
        side = torch.loom.Stream()
        torch.loom.synchronize()
        hold = torch_loom._C._Hold(torch.loom.current_device(), 50.0)
        earlier = dist.irecv(first, 0)
        with torch.loom.stream(side):
            later = dist.irecv(second)  # from anybody
        store.wait(["the_first_to_ask"])
        hold.release()
        assert earlier is not None
        assert later is not None
        earlier.wait()
        later.wait()
        assert is_filled(first, 1)
        assert is_filled(second, 2)
    dist.barrier()
    if rank == 0:
        store.delete_key("the_first_to_ask")


@pytest.mark.queued
def test_the_first_to_ask(ranks: RankPool) -> None:
    ranks.run(the_first_to_ask)


def from_anybody() -> None:
    rank, count = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        sources = set()
        for _ in range(count - 1):
            x = filled(-1)
            source = dist.recv(x)
            assert is_filled(x, source)
            sources.add(source)
        assert sources == set(range(1, count))
    else:
        dist.send(filled(rank), 0)
    dist.barrier()


def test_from_anybody(ranks: RankPool) -> None:
    ranks.run(from_anybody)


def object_lists() -> None:
    rank = dist.get_rank()
    if rank == 0:
        dist.send_object_list([{"a": 1}, "b"], 1, device=torch.device("loom"))
    elif rank == 1:
        got: list[object] = [None, None]
        dist.recv_object_list(got, 0, device=torch.device("loom"))
        assert got == [{"a": 1}, "b"]


def test_object_lists(ranks: RankPool) -> None:
    ranks.run(object_lists)


def to_itself() -> None:
    """In a batch, as pipelines with several stages on a rank send; in the order of tags."""
    rank = dist.get_rank()
    x = torch.arange(100_000.0, device="loom") + rank
    first, second = torch.empty_like(x), torch.empty_like(x)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.irecv, second, rank, tag=2),
            dist.P2POp(dist.isend, x, rank, tag=1),
            dist.P2POp(dist.isend, x * 2, rank, tag=2),
            dist.P2POp(dist.irecv, first, rank, tag=1),
        ],
    )
    for work in works:
        work.wait()
    assert torch.equal(first, x)
    assert torch.equal(second, x * 2)


def test_to_itself(pair: RankPool) -> None:
    pair.run(to_itself)
