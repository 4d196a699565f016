# SPDX-License-Identifier: BSD-3-Clause
"""A rank that is killed, hangs or raises ends the training of all others, with an error that says
which rank it was, and no weight moves on without its gradients."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from rank_pool import RankPool

BLOCKING = os.environ.get("LOOM_LAUNCH_BLOCKING") == "1"

STEPS = 4

# A letter for each rank.
on_hosts = pytest.mark.parametrize("hosts", ["aa", "ab"])
on_hosts_slowly = pytest.mark.parametrize(
    "hosts", ["aa", pytest.param("ab", marks=pytest.mark.slow)]
)


@contextlib.contextmanager
def pool_of(hosts: str, timeout: float = 60.0, **environment: str) -> Iterator[RankPool]:
    pool = RankPool(len(hosts), timeout=timeout, hosts=hosts, **environment)
    try:
        yield pool
    finally:
        pool.close()


def misbehave(how: str) -> None:
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hang":
        threading.Event().wait()
    raise RuntimeError("rank 1 has had enough")


def is_unmoved(weight: torch.Tensor, before: torch.Tensor) -> bool:
    """Whether the memory holds what it held, whether or not its values have failed."""
    if os.environ.get("LOOM_MEMORY") == "isolated":
        return True  # nobody can read it past the checks
    memory = (ctypes.c_char * weight.nbytes).from_address(weight.data_ptr())
    return torch.equal(torch.frombuffer(bytearray(memory), dtype=torch.float32), before.flatten())


def train(how: str, when: int) -> tuple[int, str, bool]:
    """Train; rank 1 misbehaves before a step's backward. Return the step in which the error came,
    its text, and whether the memory of the weights is that of the last good step."""
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 100).to("loom"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    weight = model.module.weight
    before = weight.detach().cpu()
    for step in range(STEPS):
        try:
            loss = model(torch.ones(8, 100, device="loom")).square().mean()
            if rank == 1 and step == when:
                misbehave(how)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            moved = weight.detach().cpu()
        except RuntimeError as error:
            if rank == 1:
                raise
            if not BLOCKING:  # else the optimiser's step has not been queued
                with pytest.raises(RuntimeError):  # for ever: its values are not to be had
                    weight.cpu()
            return step, str(error), is_unmoved(weight, before)
        before = moved
    return STEPS, "", False


CASES = [("kill", 0), ("kill", 2), ("kill", STEPS - 1), ("hang", 2), ("raise", STEPS - 1)]


@pytest.mark.parametrize(
    ("hosts", "how", "when"),
    [
        *(("aa", how, when) for how, when in CASES),
        ("ab", "kill", 2),
        *(
            pytest.param(hosts, how, when, marks=pytest.mark.slow)
            for hosts in ("ab", "abab", "abbb")
            for how, when in CASES
            if (hosts, how, when) != ("ab", "kill", 2)
        ),
    ],
)
def test_the_others_are_told_in_the_same_step(hosts: str, how: str, when: int) -> None:
    # Who hangs is known by the timeout only, and the others must not run into it by themselves.
    with pool_of(hosts, timeout=8.0 if how == "hang" else 60.0) as pool:
        pool.start(train, how, when)
        if how == "raise":
            with pytest.raises(AssertionError, match="rank 1 has had enough"):
                pool.answer(1)
            pool.processes[1].kill()
        for rank in range(len(hosts)):
            if rank == 1:
                continue
            step, text, unmoved = pool.answer(rank)
            assert step == when
            assert "all_reduce (number " in text
            assert "rank 1" in text
            assert unmoved


def unmatched() -> None:
    group = dist.new_group(backend="lccl")
    if dist.get_rank() == 0:
        for device in ("loom", "cpu"):
            dist.all_reduce(torch.ones(10, device=device), group=group, async_op=True)


@on_hosts
def test_exit_with_an_operation_in_flight(hosts: str) -> None:
    with pool_of(hosts, timeout=1800.0) as pool:
        pool.run(unmatched)
        pool._pipes[0].send(None)
        pool.processes[0].join(60)  # and not until the timeout of half an hour
        assert pool.processes[0].exitcode == 0


def destroyed() -> list[float]:
    x = torch.ones(1_000_000, device="loom")
    for _ in range(20):
        dist.all_reduce(x, dist.ReduceOp.AVG, async_op=True)
    work = dist.all_reduce(x, async_op=True)
    dist.destroy_process_group()
    assert work is not None
    work.wait()
    return x[:2].tolist()


@on_hosts
def test_destroy_waits_for_what_is_queued(hosts: str) -> None:
    with pool_of(hosts) as pool:
        assert pool.run(destroyed) == [[2.0, 2.0]] * 2


def aborted() -> str:
    group = dist.group.WORLD
    assert group is not None
    if dist.get_rank() == 1:
        group.abort()
        return "rank 1 has aborted the group"
    text = error_of(torch.ones(10, device="loom"))
    with pytest.raises(dist.DistBackendError, match="the group has ended"):
        dist.all_reduce(torch.ones(10, device="loom"))
    return text


@on_hosts
def test_abort_reaches_all_ranks(hosts: str) -> None:
    with pool_of(hosts) as pool:
        for text in pool.run(aborted):
            assert "rank 1 has aborted the group" in text


def reduce_and_look(x: torch.Tensor, group: dist.ProcessGroup) -> None:
    dist.all_reduce(x, group=group)
    x.cpu()


def after_an_error() -> None:
    """A new group has nothing to do with the errors of another one."""
    everyone = list(range(dist.get_world_size()))
    first = dist.new_group(everyone)
    x = torch.ones(10, device="loom")
    dist.all_reduce(x, group=first)
    torch.loom.synchronize()
    dist.barrier()
    first.abort()
    with pytest.raises(dist.DistBackendError, match="has aborted the group"):
        reduce_and_look(x, first)
    dist.destroy_process_group(first)
    second = dist.new_group(everyone)
    y = torch.ones(10, device="loom")
    work = dist.all_reduce(y, group=second, async_op=True)
    assert work is not None
    work.wait(timedelta(seconds=50))
    assert y.tolist() == [2.0] * 10


@on_hosts
def test_errors_stay_with_their_group(hosts: str) -> None:
    with pool_of(hosts) as pool:
        pool.run(after_an_error)


def failing_groups(count: int, how: str) -> list[int]:
    """How many threads there are after each of so many groups that end by an error."""
    rank = dist.get_rank()
    threads = []
    for _ in range(count):
        group = dist.new_group(backend="lccl")
        x = torch.ones(10, device="loom")
        dist.all_reduce(x, group=group)
        torch.loom.synchronize()
        dist.barrier()
        if how == "mismatch":
            assert error_of(torch.ones(10 + rank, device="loom"), group=group)
        elif how == "abort":
            group.abort()
        elif rank == 0:  # with work queued
            dist.isend(x, 1, group=group)
            dist.irecv(x, 1, group=group)
            group.abort()
        dist.destroy_process_group(group)
        with contextlib.suppress(dist.DistBackendError):
            torch.loom.synchronize()
        dist.barrier()
        threads.append(len(list(Path("/proc/self/task").iterdir())))
    return threads


def test_groups_that_fail_leave_no_threads() -> None:
    with pool_of("aa") as pool:
        for how in ("mismatch", "abort", "queued"):
            for threads in pool.run(failing_groups, 8, how):
                assert threads[-1] <= threads[2], how


def untold() -> None:
    """What nobody has been told of a group that has ended is not told to the next one."""
    first = dist.new_group(backend="lccl")
    dist.all_reduce(torch.ones(10 + dist.get_rank(), device="loom"), group=first, async_op=True)
    dist.destroy_process_group(first)
    second = dist.new_group(backend="lccl")
    y = torch.ones(10, device="loom")
    work = dist.all_reduce(y, group=second, async_op=True)
    assert work is not None
    work.wait(timedelta(seconds=50))
    assert y.tolist() == [2.0] * 10
    with pytest.raises(dist.DistBackendError, match="the same operations with the same sizes"):
        torch.loom.synchronize()
    torch.loom.synchronize()


@pytest.mark.queued
def test_an_error_that_nobody_was_told_of_stays_with_its_group() -> None:
    with pool_of("aa") as pool:
        pool.run(untold)


def test_a_forked_child_leaves_the_group_alone(check: Any) -> None:
    check(
        """
        import os, sys, tempfile
        import torch
        import torch.distributed as dist

        file = dist.FileStore(tempfile.mktemp(), 1)
        dist.init_process_group("loom:lccl", store=file, rank=0, world_size=1)
        dist.all_reduce(torch.ones(10, device="loom"))
        torch.loom.synchronize()
        child = os.fork()
        if child == 0:
            sys.exit(0)  # with all its destructors
        assert os.waitpid(child, 0)[1] == 0
        x = torch.ones(10, device="loom")
        dist.all_reduce(x)
        assert x.tolist() == [1.0] * 10
        """
    )


def own_timeout() -> str:
    if dist.get_rank() == 0:
        work = dist.all_reduce(torch.ones(10, device="loom"), async_op=True)
        assert work is not None
        try:
            work.wait(timedelta(seconds=0.3))
        except dist.DistBackendError as error:
            return str(error)
        return "no error"
    return ""


@on_hosts_slowly
def test_wait_with_a_timeout(hosts: str) -> None:
    with pool_of(hosts) as pool:
        assert "300 ms" in pool.run(own_timeout)[0]


def told_once() -> None:
    """An error that wait() has raised is none of later synchronisations."""
    if dist.get_rank() == 0:
        work = dist.all_reduce(torch.ones(10, device="loom"), async_op=True)
        assert work is not None
        with pytest.raises(dist.DistBackendError, match="300 ms"):
            work.wait(timedelta(seconds=0.3))
        torch.loom.synchronize()


@on_hosts_slowly
def test_an_error_is_told_once(hosts: str) -> None:
    with pool_of(hosts) as pool:
        pool.run(told_once)


def error_of(x: torch.Tensor, reduction: Any = dist.ReduceOp.SUM, group: Any = None) -> str:
    """What all_reduce() raises sooner or later, or nothing."""
    try:
        dist.all_reduce(x, reduction, group)
        x.cpu()
    except (RuntimeError, IndexError) as error:
        return str(error)
    return ""


def bad_values() -> str:
    """What one rank cannot compute is an error on all, at once."""
    x = torch.zeros(4, device="loom")
    if dist.get_rank() == 1:
        x = x[torch.tensor([9], device="loom")].sum().expand(4).contiguous()
    return error_of(x)


@pytest.mark.queued
@on_hosts_slowly
def test_a_rank_that_cannot_compute_its_part(hosts: str) -> None:
    with pool_of(hosts) as pool:
        first, second = pool.run(bad_values)
        assert "rank 1 cannot run all_reduce" in first
        assert "out of bounds" in first
        assert "out of bounds" in second


DIFFERENCES = {
    "size": "expected the same operations with the same sizes",
    "strides": "expected tensors with the same strides",
    "dtype": "expected the same dtypes, reductions and factors",
    "reduction": "expected the same dtypes, reductions and factors",
    "factor": "expected the same dtypes, reductions and factors",
}


def differ(what: str) -> str:
    """Rank 1 does something else than the others."""
    group = dist.new_group(backend="lccl")
    is_other = dist.get_rank() == 1
    x = torch.ones(4, 6, device="loom", dtype=torch.bfloat16)
    reduction: Any = dist.ReduceOp.SUM
    if what == "size" and is_other:
        x = torch.ones(4, 7, device="loom", dtype=torch.bfloat16)
    elif what == "strides" and is_other:
        x = torch.ones(6, 4, device="loom", dtype=torch.bfloat16).t()
    elif what == "dtype" and is_other:
        x = x.half()
    elif what == "reduction" and is_other:
        reduction = dist.ReduceOp.MAX
    elif what == "factor":
        reduction = dist._make_nccl_premul_sum(0.25 if is_other else 0.5)
    return error_of(x, reduction, group)


@on_hosts_slowly
def test_ranks_that_differ(hosts: str) -> None:
    with pool_of(hosts) as pool:
        for what, expected in DIFFERENCES.items():
            for text in pool.run(differ, what):
                assert expected in text, what


CALLS = {
    "broadcast": lambda x, root, group: dist.broadcast(x, root, group),
    "reduce": lambda x, root, group: dist.reduce(x, root, group=group),
    "gather": lambda x, root, group: dist.gather(
        x, [torch.empty_like(x) for _ in range(2)] if dist.get_rank() == root else None, root, group
    ),
    "scatter": lambda x, root, group: dist.scatter(
        x, [x.clone() for _ in range(2)] if dist.get_rank() == root else None, root, group
    ),
    "all_gather": lambda x, root, group: dist.all_gather(
        [torch.empty_like(x) for _ in range(2)], x, group
    ),
    "all_gather_into_tensor": lambda x, root, group: dist.all_gather_into_tensor(
        torch.empty(2 * x.numel(), dtype=x.dtype, device=x.device), x, group
    ),
    "all_to_all_single": lambda x, root, group: dist.all_to_all_single(
        torch.empty_like(x), x, group=group
    ),
}
ROOTED = ("broadcast", "reduce", "gather", "scatter")


def differ_in(name: str, dtypes: tuple[torch.dtype, ...], roots: tuple[int, ...], then: str) -> str:
    """What a rank is told, in the call itself, by the next one, or at the end of the group."""
    rank = dist.get_rank()
    group = dist.new_group(backend="lccl", timeout=timedelta(seconds=5))
    x = torch.ones(10, dtype=dtypes[rank], device="loom")
    steps: list[Callable[[], object]] = [
        lambda: CALLS[name](x, roots[rank], group),
        lambda: dist.all_reduce(torch.ones(1, device="loom"), group=group),
        torch.loom.synchronize,
        dist.barrier,
        lambda: dist.destroy_process_group(group),
        torch.loom.synchronize,
    ]
    if then == "end":
        del steps[1]
    texts = []
    for step in steps:
        try:
            step()
        except RuntimeError as error:
            texts.append(str(error))
    return texts[0] if texts else ""


@pytest.mark.queued
@on_hosts_slowly
def test_ranks_that_take_others_for_the_root(hosts: str) -> None:
    with pool_of(hosts) as pool:
        for name, then in itertools.product(ROOTED, ("call", "end")):
            # Who gives takes itself for the root; who gets takes the other one.
            roots = (0, 1) if name in ("broadcast", "scatter") else (1, 0)
            texts = pool.run(differ_in, name, (torch.float32,) * 2, roots, then)
            told = [text for text in texts if text]
            # Who leaves first has perhaps not got yet what is wrong.
            assert told if then == "end" else len(told) == 2, (name, texts)
            for text in told:
                assert "expected the same root on all ranks" in text
                for rank, root in enumerate(roots):
                    pattern = rf"{name} \(number 0, root {root}\)[^(]* on rank {rank}"
                    assert re.search(pattern, text), text


@pytest.mark.queued
@on_hosts_slowly
def test_ranks_that_move_other_dtypes(hosts: str) -> None:
    with pool_of(hosts) as pool:
        for name in CALLS:
            for text in pool.run(differ_in, name, (torch.float32, torch.int32), (0, 0), "call"):
                assert "expected the same dtypes, reductions and factors on all ranks" in text
                for dtype, rank in (("Float", 0), ("Int", 1)):
                    pattern = rf"{name} \(number 0[^)]*\)[^(]* of {dtype}[^(]* on rank {rank}"
                    assert re.search(pattern, text), text


@pytest.mark.queued
def test_waits_on_the_host_see_signals(check: Any) -> None:
    check(
        """
        import os, signal, tempfile, threading
        from datetime import timedelta
        import torch, torch_loom
        import torch.distributed as dist

        file = dist.FileStore(tempfile.mktemp(), 1)
        dist.init_process_group("loom:lccl", store=file, rank=0, world_size=1)
        waits = (
            lambda work: work.wait(timedelta(seconds=20)),
            lambda work: work.get_future_result().wait(),
        )
        for wait in waits:
            x = torch.ones(10, device="loom")
            torch.loom.synchronize()
            hold = torch_loom._C._Hold(0, 60.0)
            work = dist.all_reduce(x, async_op=True)
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                wait(work)
            except KeyboardInterrupt:
                hold.release()
                assert x.tolist() == [1.0] * 10
            else:
                raise AssertionError("no interrupt")
        """
    )


def test_tensors_of_the_cpu_go_when_they_are_waited_for(check: Any) -> None:
    check(
        """
        import tempfile, weakref
        import numpy
        import torch
        import torch.distributed as dist

        file = dist.FileStore(tempfile.mktemp(), 1)
        dist.init_process_group("lccl", store=file, rank=0, world_size=1)
        memory = numpy.ones(10)
        alive = weakref.ref(memory)
        x = torch.from_numpy(memory)
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        del work, x, memory
        assert alive() is None
        """
    )


def in_a_capture() -> None:
    x = torch.ones(10, device="loom")
    with (
        pytest.raises(RuntimeError, match="all_reduce cannot be captured in a graph"),
        torch.loom.graph(torch.accelerator.Graph()),
    ):
        dist.all_reduce(x)


def test_capture_is_refused() -> None:
    with pool_of("aa") as pool:
        pool.run(in_a_capture)
