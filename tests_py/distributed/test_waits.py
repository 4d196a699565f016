# SPDX-License-Identifier: BSD-3-Clause
"""No wait of a rank stands in its own way: between streams and groups, in handlers of signals, and
behind messages that are yet to be asked for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from rank_pool import RankPool

START = """
import os, signal, sys, tempfile, threading
import torch, torch_loom
import torch.distributed as dist

file = dist.FileStore(tempfile.mktemp(), 1)
dist.init_process_group("lccl", store=file, rank=0, world_size=1)
x = torch.ones(1000, device="loom")
dist.all_reduce(x)
torch.loom.synchronize()
"""


@pytest.mark.queued
def test_what_follows_a_sparse_sum_may_wait_for_it(check: Any) -> None:
    """The sum's Work ends with a wait of the group's queue, which later ones must not extend."""
    check(
        START
        + """
from torch.utils._python_dispatch import TorchDispatchMode

class HoldWhenCopied(TorchDispatchMode):
    # Has the stream busy from the last copy of the sum on.
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function is torch.ops.aten.copy_.default and args[0].is_sparse:
            holds.append(torch_loom._C._Hold(0, 60.0))
        return result

holds = []
s = torch.eye(4).to_sparse().to("loom")
with HoldWhenCopied():
    group = dist.group.WORLD._get_backend(torch.device("loom"))
    work = group.allreduce([s], dist.AllreduceOptions())
assert len(holds) == 1
work.wait()
z = x.cumsum(0)
dist.all_reduce(z)
holds[0].release()
torch.loom.synchronize()
assert z[-1].item() == 1000
"""
    )


@pytest.mark.queued
def test_a_handler_may_use_the_group_while_a_call_is_held(check: Any) -> None:
    check(
        START
        + """
def handle(*_):
    handled.append(True)
    hold.release()
    use()

uses = {
    "calls": lambda: dist.all_reduce(x),
    "reads": lambda: torch_loom.distributed.recent_operations(),
    "aborts": lambda: dist.group.WORLD.abort(),
    "leaves": lambda: dist.destroy_process_group(),
}
signal.signal(signal.SIGTERM, handle)
for name, use in uses.items():
    print(name, file=sys.stderr, flush=True)
    handled = []
    hold = torch_loom._C._Hold(0, 60.0)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
    try:
        while not handled:
            dist.all_reduce(x)  # held once four of them are queued
        torch.loom.synchronize()
    except (RuntimeError, ValueError) as error:
        # The group has ended below a call of its own.
        ended = ("shut down", "has aborted the group", "not been initialized")
        assert name in ("aborts", "leaves") and any(text in str(error) for text in ended), error
        x = torch.ones(1000, device="loom")
        if dist.is_initialized():
            dist.destroy_process_group()
        store = dist.HashStore()
        dist.init_process_group("lccl", store=store, rank=0, world_size=1)
    assert x[0].item() == 1
""",
        LOOM_QUEUE_DEPTH="4",
    )


COUNT = 12


def many(sends_first: bool) -> None:
    """More messages than a queue takes, and larger than the ways between ranks."""
    peer = 1 - dist.get_rank()
    sent = [torch.full((300_000,), float(i), device="loom") for i in range(COUNT)]
    got = [torch.zeros(300_000, device="loom") for _ in range(COUNT)]

    def send() -> list[Any]:
        return [dist.isend(x, peer) for x in sent]

    def receive() -> list[Any]:
        return [dist.irecv(x, peer) for x in got]

    works = send() + receive() if sends_first else receive() + send()
    for work in works:
        work.wait()
    assert [x[-1].item() for x in got] == [x[-1].item() for x in sent]


@pytest.mark.parametrize("hosts", ["aa", pytest.param("ab", marks=pytest.mark.slow)])
def test_more_messages_than_a_queue_takes(hosts: str) -> None:
    pool = RankPool(2, hosts=hosts, timeout=20.0, LOOM_QUEUE_DEPTH="4")
    try:
        for sends_first in (True, False):
            pool.run(many, sends_first)
    finally:
        pool.close()


def test_timeouts_of_any_length(check: Any) -> None:
    check(
        START
        + """
from datetime import timedelta

for days in (365 * 10, 365 * 293, 365 * 1000, 999999999):
    dist.destroy_process_group()
    timeout = timedelta(days=days)
    dist.init_process_group(
        "lccl", store=dist.HashStore(), rank=0, world_size=1, timeout=timeout
    )
    dist.all_reduce(x, async_op=True).wait()
    dist.all_reduce(x, async_op=True).wait(timeout)
    dist.distributed_c10d._set_pg_timeout(timeout, dist.group.WORLD)
    dist.all_reduce(x)
    dist.barrier()
    part = dist.new_group([0], timeout=timeout)
    dist.all_reduce(x, group=part)
    torch.loom.synchronize()
"""
    )
