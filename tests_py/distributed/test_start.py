# SPDX-License-Identifier: BSD-3-Clause
"""Every way to write the start of a group, and what is made of groups, gives lccl for loom."""

from __future__ import annotations

import os
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from rank_pool import RankPool
from torch.distributed.device_mesh import init_device_mesh
from torchrun import torchrun

from torch_loom._torch_features import GROUP_TIMEOUTS, WORK_TIMEOUT


def start(store: str, named: dict[str, Any], reduces_on_cpu: bool) -> None:
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if named.pop("bind", False):
        named["device_id"] = torch.device("loom", torch.loom.current_device())
    dist.init_process_group(
        store=dist.FileStore(store, count),
        rank=rank,
        world_size=count,
        timeout=timedelta(seconds=60),
        **named,
    )
    x = torch.ones(10, device="loom")
    dist.all_reduce(x)
    assert (x.cpu() == count).all()
    if reduces_on_cpu:
        y = torch.ones(10)
        dist.all_reduce(y)
        assert (y == count).all()
        everybody: list[Any] = [None] * count
        dist.all_gather_object(everybody, rank)
        assert everybody == list(range(count))
    dist.barrier()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2).to("loom"))
    model(torch.ones(1, 3, device="loom")).sum().backward()
    first = dist.new_group([0])
    if rank == 0:
        dist.all_reduce(x, group=first)
    everyone = dist.new_group(list(range(count)))
    dist.all_reduce(x, group=everyone)
    assert (x.cpu() == count * count).all()
    mesh = init_device_mesh("loom", (count,))
    dist.all_reduce(x, group=mesh.get_group())
    grid = init_device_mesh("loom", (1, count), mesh_dim_names=("dp", "tp"))
    z = torch.ones(3, device="loom")
    dist.all_reduce(z, group=grid["tp"].get_group())
    assert (z.cpu() == count).all()
    dist.destroy_process_group()
    assert not dist.is_initialized()


def gloo_for_loom(store: str) -> None:
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(store, int(os.environ["WORLD_SIZE"])),
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    x = torch.ones(4, device="loom")
    calls = {
        "allreduce": lambda: dist.all_reduce(x),
        "broadcast": lambda: dist.broadcast(x, 0),
        "allgather": lambda: dist.all_gather([x.clone() for _ in range(2)], x),
        "all_gather_single": lambda: dist.all_gather_into_tensor(torch.empty(8, device="loom"), x),
        "send": lambda: dist.send(x, 1 - dist.get_rank()),
        "verify_params_across_processes": lambda: torch.nn.parallel.DistributedDataParallel(
            torch.nn.Linear(3, 2).to("loom")
        ),
    }
    for name, call in calls.items():
        with pytest.raises(RuntimeError, match=rf"^{name}: .*got tensors on loom.*loom:lccl"):
            call()
    y = torch.ones(4)
    dist.all_reduce(y)
    assert (y == 2).all()
    dist.destroy_process_group()


def test_gloo_alone_says_how_to_get_lccl(tmp_path: Path) -> None:
    pool = RankPool(2, None)
    try:
        pool.run(gloo_for_loom, str(tmp_path / "store"))
    finally:
        pool.close()


def gloo_alone(store: str) -> None:
    """Groups without loom are as they are without torch-loom."""
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", store=dist.FileStore(store, count), rank=rank, world_size=count)
    x = torch.ones(10)
    dist.all_reduce(x)
    assert (x == count).all()
    dist.all_reduce(x, group=dist.new_group(list(range(count)), backend="gloo"))
    dist.destroy_process_group()


def again_at_one_store(store: str) -> None:
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    file = dist.FileStore(store, count)
    for _ in range(3):
        dist.init_process_group("loom:lccl", store=file, rank=rank, world_size=count)
        x = torch.ones(10, device="loom")
        dist.all_reduce(x)
        assert (x.cpu() == count).all()
        dist.destroy_process_group()


def second_device(store: str) -> None:
    """The first operation knows no device, and is not on that of the others."""
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.loom.set_device(0)
    dist.init_process_group("lccl", store=dist.FileStore(store, count), rank=rank, world_size=count)
    dist.barrier()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2).to("loom:1"))
    model(torch.full((1, 3), float(rank), device="loom:1")).sum().backward()
    assert model.module.weight.grad.tolist() == [[0.5] * 3] * 2
    torch.loom.set_device(rank % torch.loom.device_count())
    dist.destroy_process_group()


SPELLINGS = {
    "nothing": ({}, True),
    "lccl": ({"backend": "lccl"}, True),
    "devices": ({"backend": "cpu:gloo,loom:lccl"}, True),
    "loom alone": ({"backend": "loom:lccl"}, False),
    "device": ({"bind": True}, True),
    "lccl and device": ({"backend": "lccl", "bind": True}, True),
    "devices and device": ({"backend": "cpu:gloo,loom:lccl", "bind": True}, True),
}


@pytest.fixture(scope="module")
def groupless() -> Any:
    """Ranks that have no group yet."""
    pool = RankPool(2, backend=None)
    yield pool
    pool.close()


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings(groupless: RankPool, spelling: str, tmp_path: Path) -> None:
    named, reduces_on_cpu = SPELLINGS[spelling]
    groupless.run(start, str(tmp_path / "store"), dict(named), reduces_on_cpu)


@pytest.mark.parametrize("function", [gloo_alone, again_at_one_store, second_device])
def test_groups_of_other_kinds(groupless: RankPool, function: Any, tmp_path: Path) -> None:
    groupless.run(function, str(tmp_path / "store"))


def splits() -> None:
    rank, count = dist.get_rank(), dist.get_world_size()
    parts = [list(range(count - 1)), [count - 1]]
    group = dist.split_group(split_ranks=parts)
    assert group is not None
    x = torch.ones(4, device="loom")
    dist.all_reduce(x, group=group)
    assert (x.cpu() == (count - 1 if rank < count - 1 else 1)).all()
    dist.destroy_process_group(group)


def bind_and_split(store: str) -> None:
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        device_id=torch.device("loom", torch.loom.current_device()),
        store=dist.FileStore(store, count),
        rank=rank,
        world_size=count,
    )
    splits()
    dist.destroy_process_group()


def test_split_group(groupless: RankPool, tmp_path: Path) -> None:
    groupless.run(bind_and_split, str(tmp_path / "store"))


def test_split_group_on_hosts(tmp_path: Path) -> None:
    pool = RankPool(3, backend=None, hosts="aba")
    try:
        pool.run(bind_and_split, str(tmp_path / "store"))
    finally:
        pool.close()


def defaults() -> None:
    group = dist.group.WORLD
    assert group is not None
    backend = group._get_backend(torch.device("loom"))
    assert backend.name() == "lccl"
    assert backend.options._timeout == timedelta(seconds=60)
    assert dist.get_backend_config() == "cpu:gloo,loom:lccl"
    from torch_loom.distributed import recent_operations

    dist.all_reduce(torch.ones(8, device="loom"))
    torch.loom.synchronize()
    last = recent_operations()[-1]
    assert last["name"] == "all_reduce"
    assert last["bytes"] == 32
    assert last["state"] == "done"


def test_defaults(pair: RankPool) -> None:
    pair.run(defaults)


def set_timeout(*arguments: Any) -> None:
    if GROUP_TIMEOUTS.is_there():
        dist.set_timeout(*arguments)
    else:
        dist.distributed_c10d._set_pg_timeout(*arguments)


def new_timeout() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch knows its own backends only, and says so
        set_timeout(timedelta(seconds=70))
        for device in ("cpu", "loom"):
            backend: Any = dist.group.WORLD._get_backend(torch.device(device))
            assert backend.options._timeout == timedelta(seconds=70)
        group = dist.new_group(backend="lccl")
        set_timeout(timedelta(seconds=0.5), group)
    if dist.get_rank() == 0:
        with pytest.raises(dist.DistBackendError, match="the timeout is over"):
            dist.all_reduce(torch.ones(3), group=group)
    dist.barrier()


def test_new_timeout(pair: RankPool) -> None:
    pair.run(new_timeout)
    pair.run(restore_timeout)


def work_timeout() -> None:
    group = dist.new_group(backend="lccl", timeout=timedelta(seconds=40))
    for device in ("cpu", "loom"):
        work = dist.all_reduce(torch.ones(3, device=device), group=group, async_op=True)
        assert work.timeout == timedelta(seconds=40)
        work.wait()


@pytest.mark.skipif(not WORK_TIMEOUT.is_there(), reason=WORK_TIMEOUT.place)
def test_an_operation_says_how_long_it_may_take(pair: RankPool) -> None:
    pair.run(work_timeout)


def restore_timeout() -> None:
    set_timeout(timedelta(seconds=60))


def last_operation() -> None:
    from torch_loom.distributed import recent_operations

    dist.all_reduce(torch.ones(8, device="loom"))
    assert recent_operations()[-1]["name"] == "all_reduce"


def test_recent_operations_of_a_wrapped_group() -> None:
    pool = RankPool(2, TORCH_DISTRIBUTED_DEBUG="DETAIL")
    try:
        pool.run(last_operation)
    finally:
        pool.close()


def alone_in_a_group() -> None:
    if dist.get_rank() == 0:
        with pytest.raises(dist.DistBackendError, match="rank 1 to come before the timeout"):
            dist.new_group(backend="lccl", timeout=timedelta(seconds=1))


@pytest.mark.timeout(60)
def test_a_group_waits_no_longer_than_its_own_timeout() -> None:
    pool = RankPool(2, timeout=1800.0)  # which the store has, too
    try:
        pool.run(alone_in_a_group)
    finally:
        pool.close()


SCRIPT = """
    import os

    import torch
    import torch.distributed as dist

    local = int(os.environ["LOCAL_RANK"])
    assert torch.accelerator.device_count() == 2
    torch.accelerator.set_device_index(local)
    dist.init_process_group()
    x = torch.full((4,), float(dist.get_rank()), device=f"loom:{local}")
    dist.all_reduce(x)
    assert x.tolist() == [1.0] * 4
    dist.destroy_process_group()
    print("rank", local, "done")
"""


def test_torchrun_gives_each_rank_a_device(tmp_path: Path) -> None:
    out = torchrun(tmp_path, SCRIPT, 2)
    assert sorted(line for line in out.splitlines() if "done" in line) == [
        "rank 0 done",
        "rank 1 done",
    ]


def groups_on_hosts() -> None:
    """Ranks 0 and 1 are on one host, 2 and 3 on another one."""
    rank = dist.get_rank()
    for members in ([0, 1], [1, 2], [0, 2, 3], [3, 1]):
        group = dist.new_group(members)
        if rank in members:
            x = torch.full((50_000,), float(rank), device="loom")
            dist.all_reduce(x, group=group)
            assert (x.cpu() == sum(members)).all()
            y = torch.full((10,), float(rank), device="loom")
            dist.broadcast(y, members[-1], group=group)
            assert (y.cpu() == members[-1]).all()
            dist.destroy_process_group(group)
    mesh = init_device_mesh("loom", (2, 2), mesh_dim_names=("hosts", "local"))
    z = torch.full((10,), float(rank), device="loom")
    dist.all_reduce(z, group=mesh["hosts"].get_group())
    dist.all_reduce(z, group=mesh["local"].get_group())
    assert (z.cpu() == 6).all()


def test_groups_on_hosts(hosts: RankPool) -> None:
    hosts.run(groups_on_hosts)
