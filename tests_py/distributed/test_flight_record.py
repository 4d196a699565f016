# SPDX-License-Identifier: BSD-3-Clause
"""What ranks have called can be dumped, and PyTorch's analyser finds out where they part."""

from __future__ import annotations

import pickle
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from rank_pool import RankPool

from torch_loom.distributed import flight_record, recent_operations


def some_operations() -> None:
    rank, count = dist.get_rank(), dist.get_world_size()
    x = torch.ones(3, 4, device="loom")
    dist.all_reduce(x)
    dist.all_gather_single(torch.empty(count * 3, 4, device="loom"), x)
    dist.reduce_scatter_single(torch.empty(3, 4, device="loom"), x.repeat(count, 1))
    dist.all_to_all_single(torch.empty(2 * count, device="loom"), torch.ones(2 * count).to("loom"))
    dist.broadcast(x.bfloat16(), 1)
    dist.barrier(device_ids=[0])
    if rank == 0:
        dist.send(x, 1)
    elif rank == 1:
        dist.recv(x, 0)
    torch.loom.synchronize()


def wait_for_some(folder: str) -> dict[str, Any]:
    some_operations()
    record = flight_record()
    Path(folder, f"rank_{dist.get_rank()}").write_bytes(record)
    names = [each["name"] for each in recent_operations()]
    assert names[0] == "all_reduce"
    found: dict[str, Any] = pickle.loads(record)
    return found


def analyse(folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_record_of_what_has_ended(tmp_path: Path) -> None:
    pool = RankPool(2)
    try:
        first = pool.run(wait_for_some, str(tmp_path))[0]
    finally:
        pool.close()
    assert first["pg_config"] == {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    reduced = first["entries"][0]
    assert reduced["profiling_name"] == "xccl:all_reduce"
    assert reduced["process_group"] == ("0", "default_pg")
    assert reduced["input_sizes"] == reduced["output_sizes"] == [[3, 4]]
    assert reduced["input_dtypes"] == ["Float"]
    assert reduced["state"] == "completed"
    assert reduced["timeout_ms"] == 60_000
    assert reduced["time_created_ns"] <= reduced["time_discovered_started_ns"]
    assert reduced["time_discovered_started_ns"] <= reduced["time_discovered_completed_ns"]
    assert [each["is_p2p"] for each in first["entries"]] == [False] * 6 + [True]
    text = analyse(tmp_path)
    for complaint in ("Not all ranks", "has errors", "mismatch", "cannot decide"):
        assert complaint not in text


def part(how: str) -> None:
    """All ranks do two operations, then one of three does something else."""
    is_last = dist.get_rank() == 2
    for _ in range(2):
        dist.all_reduce(torch.ones(3, device="loom"))
    torch.loom.synchronize()
    dist.barrier()  # Gloo's: an abort ends what slower ranks are still in, too
    store = dist.distributed_c10d._get_default_store()
    if how == "absent" and is_last:
        store.wait(["told 0", "told 1"], timedelta(seconds=50))  # and calls nothing of lccl's
        return
    x = torch.ones(5 if how == "sizes" and is_last else 3, device="loom")
    if is_last:
        dist.barrier()
    work = dist.all_reduce(x, async_op=True)
    if not is_last and how == "sizes":
        dist.barrier()  # all have called before anybody finds out
    assert work is not None
    with pytest.raises(dist.DistBackendError):
        work.wait(timedelta(seconds=50))
    store.set(f"told {dist.get_rank()}", "")


def dumps(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("absent", ("Not all ranks joining collective, sequence number: 3", "missing ranks: {2}")),
        ("sizes", ("Collective sequence number: 3 has errors", "SIZE_OR_SYNTAX_MISMATCH")),
    ],
)
def test_a_failed_group_is_dumped(tmp_path: Path, how: str, expected: tuple[str, str]) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    pool = RankPool(3, timeout=3.0, TORCH_FR_DUMP_TEMP_FILE=str(folder / "rank_"))
    try:
        pool.run(part, how)
    finally:
        pool.close()  # at which a dump is made at the latest
    assert dumps(folder) == ["rank_0", "rank_1", "rank_2"]
    text = analyse(folder)
    for line in expected:
        assert line in text


def test_nothing_is_dumped_unless_asked_for(tmp_path: Path) -> None:
    variables = {"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "rank_")}
    pool = RankPool(3, timeout=60.0, TORCH_NCCL_DUMP_ON_TIMEOUT="0", **variables)
    try:
        pool.run(part, "sizes")
    finally:
        pool.close()
    assert dumps(tmp_path) == []
