# SPDX-License-Identifier: BSD-3-Clause
"""Kill a rank at a random moment, many times, and see what becomes of the others.

Two to four ranks run random operations, or train with DDP, and one of them is killed. Each of the
others has to raise an error that names it, to have had the right numbers until then, bit by bit,
and to end. Ranks are forks of this process, which has imported torch and not used it.
"""

from __future__ import annotations

import argparse
import atexit
import hashlib
import json
import os
import random
import select
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Called after torch's and loom's own functions: those that are registered first are called last.
at_exit: list[Callable[[], None]] = []
atexit.register(lambda: [each() for each in at_exit])

os.environ.update(LOOM_THREADS="1", LOOM_DEVICES="1", OMP_NUM_THREADS="1")

import torch  # noqa: E402
import torch._dynamo  # noqa: E402  (DDP and optimisers import it, seconds later)
import torch.distributed as dist  # noqa: E402

import torch_loom  # noqa: E402, F401

MOST_RANKS = 4
STEPS = 40  # after which a training starts anew
MOST_STEPS_BEFORE = 60  # a rank is killed somewhere in what comes after so many, at most
SECONDS_TO_START = 60.0
SECONDS_TO_END = 60.0  # and not until the timeout of half an hour


def values(*seed: int, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(hash(seed) & 0x7FFFFFFF)
    return torch.randn(count, generator=generator)


def expect(got: torch.Tensor, wanted: torch.Tensor, what: str) -> None:
    if not torch.equal(got.cpu(), wanted):
        raise AssertionError(f"wrong numbers: {what}")


def operation(kind: str, rank: int, inputs: list[torch.Tensor], root: int) -> None:
    """Run one, and compare with what this rank knows of all ranks' inputs."""
    count = len(inputs)
    x = inputs[rank].to("loom")
    if kind in ("all_reduce", "reduce_scatter"):
        total = inputs[0].clone()
        for each in inputs[1:]:
            total += each  # in the order of ranks, as lccl does
    if kind == "all_reduce":
        dist.all_reduce(x)
        expect(x, total, kind)
    elif kind == "reduce_scatter":
        out = torch.empty(x.numel() // count, device="loom")
        dist.reduce_scatter_single(out, x)
        expect(out, total.chunk(count)[rank], kind)
    elif kind == "all_gather":
        out = torch.empty(x.numel() * count, device="loom")
        dist.all_gather_single(out, x)
        expect(out, torch.cat(inputs), kind)
    elif kind == "all_to_all":
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x)
        expect(out, torch.cat([each.chunk(count)[rank] for each in inputs]), kind)
    elif kind == "broadcast":
        dist.broadcast(x, root)
        expect(x, inputs[root], kind)
    elif kind == "ring":
        out = torch.empty_like(x)
        sent = dist.isend(x, (rank + 1) % count)
        dist.recv(out, (rank - 1) % count)
        sent.wait()
        expect(out, inputs[rank - 1], kind)
    else:
        dist.barrier(device_ids=[0])  # by lccl: without a device it is Gloo that runs it


KINDS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "ring", "barrier")


def run_operations(rank: int, count: int, seed: int) -> Iterator[str]:
    chance = random.Random(seed)
    for step in range(1_000_000):
        kind, root = chance.choice(KINDS), chance.randrange(count)
        elements = count * int(2 ** chance.uniform(0, 15))
        inputs = [values(seed, step, each, count=elements) for each in range(count)]
        operation(kind, rank, inputs, root)
        yield ""


def train(rank: int, count: int, seed: int) -> Iterator[str]:
    """Says the weights after each step."""
    del count, seed  # so that a run without a death says what the numbers are
    while True:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)]
        model = torch.nn.parallel.DistributedDataParallel(
            torch.nn.Sequential(*layers).to("loom"), bucket_cap_mb=0.01
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        for step in range(STEPS):
            x = values(step, rank, count=16 * 32).reshape(16, 32).to("loom")
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            weights = torch.cat([p.detach().cpu().flatten() for p in model.parameters()])
            yield hashlib.sha1(weights.numpy().tobytes()).hexdigest()[:12]


WORK: dict[str, Callable[[int, int, int], Iterator[str]]] = {
    "operations": run_operations,
    "training": train,
}


@dataclass
class Rank:
    """A process, and what it has said."""

    process: int
    pipe: int
    said: list[dict[str, Any]] = field(default_factory=list)
    unread: bytes = b""
    code: int | None = None
    ended: float = 0.0  # when

    def last(self, what: str) -> Any:
        """What it has said last of something, or None."""
        return next((each[what] for each in reversed(self.said) if what in each), None)

    def listen(self, seconds: float) -> None:
        if select.select([self.pipe], [], [], seconds)[0]:
            *lines, self.unread = (self.unread + os.read(self.pipe, 1 << 16)).split(b"\n")
            self.said += [json.loads(line) for line in lines]

    def look(self) -> None:
        """Note whether it has ended."""
        if self.code is None:
            process, status = os.waitpid(self.process, os.WNOHANG)
            if process:
                self.code, self.ended = os.waitstatus_to_exitcode(status), time.monotonic()


def live(
    rank: int,
    count: int,
    seed: int,
    work: str,
    store: str,
    pipe: int,
    steps: int | None,
    due: int,
    hosts: str,
) -> None:
    """A rank's life: it says when `due` steps are done, what came of it, and when it has left the
    group."""

    def say(**what: Any) -> None:
        os.write(pipe, (json.dumps(what) + "\n").encode())

    at_exit.append(lambda: say(left=time.monotonic()))
    if hosts:
        os.environ["LOOM_HOST_ID"] = hosts[rank]
    torch.set_num_threads(1)
    dist.init_process_group(
        "cpu:gloo,loom:lccl", store=dist.FileStore(store, count), rank=rank, world_size=count
    )
    done: list[str] = []
    try:
        for result in WORK[work](rank, count, seed):
            done.append(result)
            if len(done) == due:
                say(due=True)
            if len(done) == steps:
                break
    except dist.DistBackendError as error:
        say(error=str(error), time=time.monotonic(), done=done)
        if seed % 2:
            dist.destroy_process_group()
    except BaseException as error:
        say(wrong=f"{type(error).__name__}: {error}", done=done)
    else:
        say(done=done)
    sys.exit(0)  # as a script ends, with all that is destroyed then


def start(
    count: int,
    seed: int,
    work: str,
    folder: Path,
    steps: int | None = None,
    due: int = 1,
    hosts: str = "",
) -> list[Rank]:
    store = str(folder / f"store.{work}.{count}.{seed}.{steps}")
    ranks = []
    for rank in range(count):
        ours, theirs = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(ours)
            live(rank, count, seed, work, store, theirs, steps, due, hosts)
        os.close(theirs)
        ranks.append(Rank(process, ours))
    return ranks


def wait(ranks: list[Rank], is_over: Callable[[Rank], bool], seconds: float) -> bool:
    """Whether it is over for all of them before so many seconds of this process's life."""
    lived, before = 0.0, time.monotonic()
    while not all(is_over(rank) for rank in ranks):
        if lived > seconds:
            return False
        for rank in ranks:
            if not is_over(rank):
                rank.listen(0.002)
                rank.look()
        now = time.monotonic()
        lived += min(now - before, 1.0)  # whoever stops this process, stops its ranks, too
        before = now
    return True


def end(ranks: list[Rank]) -> None:
    for rank in ranks:
        if rank.code is None:
            os.kill(rank.process, signal.SIGKILL)
            os.waitpid(rank.process, 0)
        os.close(rank.pipe)


def has_ended(rank: Rank) -> bool:
    return rank.code is not None


def numbers_of(count: int, work: str, folder: Path) -> list[str]:
    """What a run says in which nobody dies."""
    ranks = start(count, 0, work, folder, STEPS)
    assert wait(ranks, has_ended, SECONDS_TO_START), "a run without a death hangs"
    for rank in ranks:
        rank.listen(0)
    said = [rank.last("done") for rank in ranks]
    end(ranks)
    assert all(each == said[0] for each in said), "ranks disagree though nobody has died"
    return said[0]


@dataclass
class Deaths:
    """What came of all of them."""

    killed: int = 0
    errors: int = 0
    steps: int = 0
    faults: list[str] = field(default_factory=list)
    told: list[float] = field(default_factory=list)
    left: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)


def kill_one(
    seed: int, on_hosts: bool, folder: Path, numbers: dict[int, list[str]], deaths: Deaths
) -> None:
    chance = random.Random(seed)
    count, work = chance.randint(2, MOST_RANKS), chance.choice(sorted(WORK))
    victim, due = chance.randrange(count), chance.randint(1, MOST_STEPS_BEFORE)
    hosts = "".join(chance.choice("ab") for _ in range(count)) if on_hosts else ""
    ranks = start(count, seed, work, folder, due=due, hosts=hosts)

    def fault(what: str) -> None:
        deaths.faults.append(
            f"seed {seed}, {count} ranks {hosts}, {work}, rank {victim} killed: {what}"
        )

    # It goes on while it is waited for: where in its next steps it dies, nobody says.
    if not wait([ranks[victim]], lambda rank: rank.last("due") is not None, SECONDS_TO_START):
        fault(f"it has not done {due} steps")
        end(ranks)
        return
    killed = time.monotonic()
    os.kill(ranks[victim].process, signal.SIGKILL)
    deaths.killed += 1
    if not wait(ranks, has_ended, SECONDS_TO_END):
        fault(f"ranks hang: {[i for i, rank in enumerate(ranks) if rank.code is None]}")
    for i, rank in enumerate(ranks):
        rank.listen(0)
        if i == victim or rank.code is None:
            continue
        done, error = rank.last("done") or [], rank.last("error")
        deaths.steps += len(done)
        if error is None or rank.last("left") is None or rank.code != 0:
            fault(f"rank {i} ended with {rank.code} and said {rank.last('wrong') or error}")
            continue
        deaths.errors += 1
        deaths.told.append(rank.last("time") - killed)
        deaths.left.append(rank.last("left") - killed)
        deaths.ended.append(rank.ended - killed)
        if f"rank {victim} " not in error.replace(f"rank {i} of group", ""):
            fault(f"rank {i} is told {error}")
        if work == "training" and any(
            each != numbers[count][step % STEPS] for step, each in enumerate(done)
        ):
            fault(f"rank {i} had wrong numbers")
    end(ranks)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hosts", action="store_true", help="ranks are on two hosts, at random")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    numbers = {count: numbers_of(count, "training", folder) for count in range(2, MOST_RANKS + 1)}
    deaths = Deaths()
    for number in range(given.count):
        kill_one(given.seed + number, given.hosts, folder, numbers, deaths)
    shutil.rmtree(folder)
    for fault in deaths.faults:
        print(fault)
    print(
        f"{deaths.killed} ranks killed, {deaths.errors} errors on the others after "
        f"{deaths.steps} operations and steps, {len(deaths.faults)} faults"
    )
    for what, times in (
        ("are told", deaths.told),
        ("have left the group", deaths.left),
        ("have ended", deaths.ended),
    ):
        if times:
            middle, last = 1e3 * statistics.median(times), 1e3 * max(times)
            print(f"the others {what} after {middle:.0f} ms in the median, {last:.0f} at most")
    return int(bool(deaths.faults))


if __name__ == "__main__":
    sys.exit(main())
