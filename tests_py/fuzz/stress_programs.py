# SPDX-License-Identifier: BSD-3-Clause
"""Programs for streams, two devices and several threads, in which commands fail, memory runs out,
the cache is emptied and the process forks.

A program runs in one to three threads, its lanes, with values of their own, which are the ranks of
a group; or in two processes. It is judged by what loom gives step by step, with a wait after each,
and by cpu. There no command fails: it makes numbers instead, of which nobody may see anything. So
cpu runs the program twice, with other such numbers. What differs between the two runs depends on a
command that failed on loom, and to look at it has to raise. What is the same has to be there.
"""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import os
import re
import select
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import stress_vocabulary
import torch
import torch.distributed as dist
from graph_programs import (
    Argument as Argument,  # scripts have it from here
    apart,
)
from stream_programs import (
    HOST,
    STREAMS,
    Memory,
    Placement,
    StreamProgram,
    StreamStep as StreamStep,
    is_host,
    scope_of,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "distributed"))

from support.program_checks import different_bits, different_form
from support.programs import shrink
from torch_loom import _C

SECONDS = 60.0
"""How long a thread waits for the others, and for a child."""

FAILED = "failed"
"""In place of a value: to look at it raises."""

DEVICES = ("loom:0", "loom:1")
LIMIT = 512 << 20
"""Bytes of each device while threads run."""

# What failing commands raise, and say.
RAISED_BY_FAILURES = (IndexError, RuntimeError)
SAID_BY_FAILURES = re.compile("out of (range|bounds|DATA bounds)|lccl: rank")
SPOILT = (0, 1)
# Steps that make nothing; a lane makes those of MEETINGS once, as all lanes meet in them.
QUIET = ("too_much", "brim", "note", "fork", "end_group")
MEETINGS = ("brim()", "end_group()")
NOT_THERE = "another lane did not come"
RAISED, TOLD, SKIPPED, DONE = "raised", "told", "skipped", "done"


@dataclass(frozen=True)
class StressProgram(StreamProgram):
    """Steps that each lane runs, a thread with values of its own.

    Attributes:
        processes: whether lanes are the threads of two processes.
    """

    lanes: int = 1
    processes: bool = False

    def script(self) -> str:
        """A script that checks the program, in tests_py/fuzz."""
        lines = "".join(f"# {line}\n" for line in placement_of(self).all_lines())
        return (
            "import os, sys; sys.path.insert(0, '..'); os.environ.setdefault('LOOM_DEVICES', '2')\n"
            f"import torch, torch_loom\nfrom stress_programs import *\n{lines}"
            f"program = {self!r}\n"
            "if __name__ == '__main__':\n    print(failure(program))\n"
        )


def is_there(name: str) -> bool:
    """Whether the tensor is one of the other device."""
    return re.fullmatch(r"d\d+", name) is not None


def is_collective(code: str) -> bool:
    return any(part in code for part in stress_vocabulary.EVENTS["collectives"])


def events_of(program: StressProgram) -> Counter[str]:
    """How often each kind of event is in the program, in all lanes."""
    counts: Counter[str] = Counter()
    for step in program.steps:
        for event, parts in stress_vocabulary.EVENTS.items():
            counts[event] += program.lanes * any(part in step.code for part in parts)
        here_and_there = {is_there(name) for name in (step.result, *step.uses) if name}
        counts["copies between devices"] += program.lanes * (len(here_and_there) > 1)
    return counts


class StressPlacement(Placement):
    """Leaves the memory of the other device alone: it is used in the order of one stream there,
    with which copies between the devices are in order on both sides."""

    def __init__(self, program: StressProgram) -> None:
        super().__init__(program, STREAMS, on_cpu(program, 0, SPOILT[1]))

    def _memories(self, names: Any, home: int) -> list[Memory]:
        return super()._memories([name for name in names if not is_there(name)], home)


def placement_of(program: StressProgram) -> StressPlacement:
    """Raises: what cpu says of a step."""
    placement = StressPlacement(program)
    for step in program.steps:
        placement.add(step)
    return placement


# --- what steps see ----------------------------------------------------------------------------


def nothing(*_: Any) -> None:
    pass


def on_cpu(program: StressProgram, lane: int, spoilt: int) -> dict[str, Any]:
    """What the steps of a lane see on cpu. `spoilt`: what the results of failing commands are."""
    seen: list[Any] = []
    scope = scope_of(program, "cpu", lane, seen)
    bad = torch.zeros(2, dtype=torch.long)
    quiet = dict.fromkeys(QUIET, nothing)
    scope.update(quiet, other="cpu", bad=bad, bad_there=bad, press=pressed, seen=seen)
    scope.update(spoil=lambda x: x.fill_(spoilt), s=[Idle()] * STREAMS)
    scope.update(Alone(program.lanes).operations())
    return scope


def step_by_step_on_loom(program: StressProgram, lane: int) -> dict[str, Any]:
    seen: list[Any] = []
    scope = scope_of(program, "loom", lane, seen)
    quiet = dict.fromkeys(QUIET, nothing)
    scope.update(quiet, seen=seen, s=[Idle()] * STREAMS, **names_on_loom())
    scope["press"] = lambda mebibytes: pressed(mebibytes).to("loom")
    scope.update(Alone(program.lanes).operations())
    return scope


def names_on_loom() -> dict[str, Any]:
    bad = torch.tensor([0, 1 << 40])
    return {
        "other": DEVICES[1],
        "bad": bad.to(DEVICES[0]),
        "bad_there": bad.to(DEVICES[1]),
        "spoil": lambda x: x,
    }


class Idle:
    """A stream where there are none."""

    def query(self) -> bool:
        return True


def pressed(mebibytes: int) -> torch.Tensor:
    return torch.arange(5.0) + mebibytes


# --- collectives -------------------------------------------------------------------------------


class Alone:
    """What a rank gets if all have what it has: right forms, and no other rank is asked.

    Other classes override the operations, of contiguous tensors.
    """

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks

    def operations(self) -> dict[str, Callable[..., torch.Tensor]]:
        def contiguous(operation: Callable[..., Any]) -> Callable[..., Any]:
            def call(x: torch.Tensor, *arguments: Any) -> Any:
                return operation(x.clone(memory_format=torch.contiguous_format), *arguments)

            return call

        names = ("broadcast", "all_gather", "exchange", "all_reduce", "reduce_scatter")
        return {name: contiguous(getattr(self, name)) for name in names}

    def root(self, root: int) -> int:
        return root % self.ranks

    def broadcast(self, x: torch.Tensor, root: int) -> torch.Tensor:
        return x

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x] * self.ranks)

    def exchange(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def all_reduce(self, x: torch.Tensor, reduction: str = "SUM") -> torch.Tensor:
        return x

    def reduce_scatter(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Rehearsal(Alone):
    """Computes on the host what each rank gets: all ranks run the step, which tells what they have,
    and then run it again."""

    def __init__(self, ranks: int) -> None:
        super().__init__(ranks)
        self.rank = 0
        self.told: list[torch.Tensor] | None = None  # while they tell

    def meet(self, x: torch.Tensor, combine: Callable[[list[torch.Tensor]], Any]) -> torch.Tensor:
        if self.told is not None and len(self.told) < self.ranks:
            self.told.append(x.cpu())
            return x
        return combine(self.told or []).to(x.device, copy=True)

    def broadcast(self, x: torch.Tensor, root: int) -> torch.Tensor:
        return self.meet(x, lambda all_: all_[self.root(root)])

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        return self.meet(x, torch.stack)

    def exchange(self, x: torch.Tensor) -> torch.Tensor:
        return self.meet(x, lambda all_: all_[(self.rank + 1) % self.ranks])

    def all_reduce(self, x: torch.Tensor, reduction: str = "SUM") -> torch.Tensor:
        return self.meet(x, lambda all_: reduced(all_, reduction))

    def reduce_scatter(self, x: torch.Tensor) -> torch.Tensor:
        return self.meet(x, lambda all_: reduced(all_, "SUM"))


def reduced(parts: Sequence[torch.Tensor], reduction: str) -> torch.Tensor:
    """In the order of ranks, half types in float32 and rounded once."""
    dtype = parts[0].dtype
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    total = parts[0].to(wide)
    for part in parts[1:]:
        total = torch.add(total, part) if reduction == "SUM" else torch.maximum(total, part)
    return total.to(dtype)


class Ranks(Alone):
    """A group whose ranks are lanes. They wait for each other before and after each call: what
    waits for all of a device would wait for a rank that has yet to call."""

    def __init__(self, backend: Any, rank: int, ranks: int, meet: Callable[[], None]) -> None:
        super().__init__(ranks)
        self.backend, self.rank, self.meet = backend, rank, meet

    def _call(self, operation: Callable[..., Any], *arguments: Any) -> None:
        self.meet()
        works = operation(*arguments)
        self.meet()
        for work in works if isinstance(works, list) else [works]:
            work.wait()

    def broadcast(self, x: torch.Tensor, root: int) -> torch.Tensor:
        options = dist.BroadcastOptions()
        options.rootRank = self.root(root)
        self._call(self.backend.broadcast, [x], options)
        return x

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        gathered = x.new_empty((self.ranks, *x.shape))
        self._call(self.backend._allgather_base, gathered, x)
        return gathered

    def exchange(self, x: torch.Tensor) -> torch.Tensor:
        got = torch.empty_like(x)
        to, source = (self.rank - 1) % self.ranks, (self.rank + 1) % self.ranks
        if to == self.rank:
            return x
        self._call(lambda: [self.backend.send([x], to, 7), self.backend.recv([got], source, 7)])
        return got

    def all_reduce(self, x: torch.Tensor, reduction: str = "SUM") -> torch.Tensor:
        options = dist.AllreduceOptions()
        options.reduceOp = getattr(dist.ReduceOp, reduction)
        self._call(self.backend.allreduce, [x], options)
        return x

    def reduce_scatter(self, x: torch.Tensor) -> torch.Tensor:
        """Of as many equal parts as there are ranks: each rank's is what all_reduce() gives."""
        got = torch.empty_like(x)
        parts = torch.stack([x] * self.ranks)
        options = dist.ReduceScatterOptions()
        options.reduceOp = dist.ReduceOp.SUM
        self._call(self.backend._reduce_scatter_base, got, parts, options)
        return got


# --- step by step ------------------------------------------------------------------------------


@dataclass
class Ran:
    """What a lane did.

    Attributes:
        seen: what it saw.
        named: the tensors that have names at the end, on the host, or FAILED.
        outcomes: of each step: DONE; RAISED, by the call, each time; TOLD, of a copy to the host,
            by the next wait; SKIPPED, as something that it uses is not there.
    """

    seen: list[Any]
    named: dict[str, Any] = field(default_factory=dict)
    outcomes: list[str] = field(default_factory=list)


def is_look(step: StreamStep) -> bool:
    return step.code.startswith("see(")


def is_download(step: StreamStep) -> bool:
    """Whether the step writes memory of the host, and the host does not wait for it."""
    names = (step.result, *step.writes)
    return step.stream != HOST and not step.waits and any(map(is_host, names))


def lacks(step: StreamStep, scope: dict[str, Any]) -> bool:
    return any(name not in scope for name in step.uses)


def is_failure(error: Exception) -> bool:
    return SAID_BY_FAILURES.search(str(error)) is not None


def succeeds(call: Callable[[], Any]) -> bool:
    """False if a failure of a command is raised."""
    try:
        call()
    except RAISED_BY_FAILURES as error:
        if not is_failure(error):
            raise
        return False
    return True


def drain() -> int:
    """Waits for both devices. Returns how many failures have been raised meanwhile."""
    raised = 0
    for device in DEVICES:
        while not succeeds(lambda: torch.loom.synchronize(device)):  # noqa: B023
            raised += 1
            assert raised < 1000
    return raised


def settle() -> None:
    """Waits for both devices, whatever is raised."""
    for device in DEVICES:
        for _ in range(100):
            try:
                torch.loom.synchronize(device)
            except Exception:
                continue
            break


def go_on(streams: Iterable[torch.Stream]) -> None:
    """Gives streams more to do. Of copies to pinned memory that failed, new threads are told as
    long as their stream has done nothing else since; and threads of later programs are new."""
    for stream in streams:
        with torch.loom.stream(stream):
            torch.zeros(1, device=stream.device)


def look_at(value: torch.Tensor) -> Any:
    """The tensor on the host, or FAILED: then each look raises."""
    values: list[torch.Tensor] = []

    def look() -> None:
        values.append(value.detach().cpu())

    if succeeds(look):
        return values[0]
    for _ in range(2):
        drain()
        if succeeds(look):
            return "a look raises, and another one does not"
    return FAILED


def tensors_of(scope: dict[str, Any]) -> dict[str, Any]:
    """Those that are results or arguments."""
    return {
        name: value
        for name, value in scope.items()
        if torch.is_tensor(value) and re.fullmatch(r"[advh]\d+", name)
    }


def failed_at(scope: dict[str, Any], step: StreamStep) -> None:
    """The step made nothing."""
    if is_look(step):
        scope["seen"].append(FAILED)
    elif step.result and step.result not in step.writes:
        scope.pop(step.result, None)


def lockstep(
    scopes: Sequence[dict[str, Any]],
    program: StressProgram,
    outcomes: Sequence[Sequence[str]] | None = None,
) -> list[Ran]:
    """Runs all lanes, a step of each after the other. `outcomes`: those of each lane on loom; what
    was not done there is not done. Raises: what a step does, but failures of commands."""
    is_loom = outcomes is None
    rans = [Ran(scope["seen"]) for scope in scopes]
    group = Rehearsal(len(scopes))
    for scope in scopes:
        scope.update(group.operations())
    for n, step in enumerate(program.steps):
        together = is_collective(step.code)
        lacking = [lacks(step, scope) for scope in scopes]
        if together and any(lacking):
            lacking = [True] * len(scopes)
        if together and not any(lacking):
            group.told = []
            for scope in scopes:
                exec(step.code, scope)
        for lane, scope in enumerate(scopes):
            group.rank = lane
            ran = rans[lane]
            was = outcomes[lane][n] if outcomes is not None else ""
            if lacking[lane] or (was in (RAISED, TOLD) and not is_look(step)):
                ran.outcomes.append(SKIPPED)
                failed_at(scope, step)
                continue
            outcome = DONE
            if together or not is_loom:
                exec(step.code, scope)
            elif not succeeds(lambda: exec(step.code, scope)):  # noqa: B023
                outcome = RAISED
            if is_loom and drain() and is_download(step):
                outcome = TOLD
            if outcome == RAISED or (outcome == TOLD and step.result not in step.writes):
                failed_at(scope, step)
            ran.outcomes.append(outcome)
    for scope, ran in zip(scopes, rans, strict=True):
        ran.named = {name: look_at(value) for name, value in tensors_of(scope).items()}
    return rans


# --- lanes as threads --------------------------------------------------------------------------


class Lane:
    """A thread that runs the program, on three streams of one device and one of the other."""

    def __init__(self, run: Run, number: int) -> None:
        self.run = run
        self.number = number
        self.ran = Ran([])
        self.error = ""
        self.told = 0  # how many failures have been raised here
        self.downloads: list[tuple[int, int]] = []  # which failed, and `told` then
        self.kept: list[Any] = []
        self.notes: list[tuple[torch.Stream, torch.Event]] = []
        self.streams: list[torch.Stream] = []
        self.groups = 0  # how many have ended

    def work(self) -> None:
        try:
            self._work()
        except threading.BrokenBarrierError:
            self.error = self.error or NOT_THERE
        except BaseException as error:
            self.error = f"{type(error).__name__}: {error}"
            if os.environ.get("LOOM_TEST_TRACEBACKS"):
                traceback.print_exc()
            self.run.barrier.abort()
        finally:
            self.kept.clear()

    def _work(self) -> None:
        program = self.run.program
        streams = [torch.loom.Stream(DEVICES[0], priority=-(n % 2)) for n in range(STREAMS)]
        self.streams = streams
        torch.loom.set_stream(torch.loom.Stream(DEVICES[1]))
        torch.loom.set_stream(streams[0])
        self.scope = scope_of(program, "loom", self.number, self.ran.seen)
        self.scope.update(
            names_on_loom(), s=streams, seen=self.ran.seen, too_much=too_much, brim=self.brim,
            note=self.note, fork=fork, press=press, end_group=self.end_group,
        )  # fmt: skip
        torch.loom.synchronize(DEVICES[1])
        if self.run.has_collectives:
            backend = self.run.backend(self.number, "")
            group = Ranks(backend, self.number, program.lanes, self.run.meet)
            self.scope.update(group.operations())
        self.run.meet()
        self.scope["keep_busy"]()
        lines = self.run.placement.lines
        for line in lines[0]:
            self.line(line)
        for n, step in enumerate(program.steps):
            for line in lines[n + 1]:
                if line == step.code:
                    self.ran.outcomes.append(self.step(n, step))
                else:
                    self.line(line)
        self.finish()

    def attempt(self, code: str) -> bool:
        """Whether it succeeds; who waits may be told of failures that are not its own first."""
        compiled = compile(code, "<step>", "exec")
        for _ in range(6):
            if succeeds(lambda: exec(compiled, self.scope)):
                return True
            self.told += 1 + drain()
        return False

    def line(self, code: str) -> None:
        """A wait, or the like: what it is about may not be there."""
        with contextlib.suppress(NameError):
            assert self.attempt(code), f"{code} raises again and again"

    def step(self, n: int, step: StreamStep) -> str:
        wanted = self.run.wanted[self.number].outcomes[n]
        if wanted == SKIPPED:
            failed_at(self.scope, step)
            return SKIPPED
        self.check_told(step)
        told = self.told
        if is_collective(step.code) or step.code in MEETINGS:
            exec(step.code, self.scope)
        elif not self.attempt(step.code):
            failed_at(self.scope, step)
            return RAISED
        if wanted == TOLD:
            self.downloads.append((n, told))
            if step.result not in step.writes:
                self.kept.append(self.scope[step.result])  # which is still written
                failed_at(self.scope, step)
        return wanted if wanted == TOLD else DONE

    def check_told(self, step: StreamStep) -> None:
        """Who reads what a copy did not bring has been told before."""
        steps = self.run.program.steps
        for n, told in self.downloads:
            names = {steps[n].result, *steps[n].writes}
            if step.stream == HOST and names & set(step.uses) and told == self.told:
                raise AssertionError(f"nobody said that {steps[n].code} failed")

    def finish(self) -> None:
        self.run.meet()
        self.told += drain()
        self.run.meet()
        for n, told in self.downloads:
            assert told < self.told, f"nobody said that {self.run.program.steps[n].code} failed"
        assert not drain(), "a failure is raised when nothing has failed since the last wait"
        assert all(event.query() for _, event in self.notes)
        for (stream, event), (last, later) in itertools.pairwise(self.notes):
            assert stream != last or event.elapsed_time(later) >= 0
        self.ran.named = {name: look_at(v) for name, v in tensors_of(self.scope).items()}

    def note(self) -> None:
        event = torch.loom.Event(enable_timing=True)
        event.record()
        self.notes.append((torch.loom.current_stream(), event))

    def brim(self) -> None:
        """Takes all memory that there is, and writes it, while the other lanes wait."""
        self.run.meet()
        if self.number == self.run.numbers[0]:
            self.told += drain()
            take_all_memory()
        self.run.meet()

    def end_group(self) -> None:
        """A rank lacks its operand: the group ends, and what it should have written fails."""
        if self.run.program.processes:
            return
        self.told += drain()  # or the group's calls may raise what failed before
        self.groups += 1
        backend = self.run.backend(self.number, str(self.groups))
        x = torch.ones(2, device="loom")
        if self.number == 0:
            x = x.index_select(0, self.scope["bad"])
        self.run.meet()
        works: list[Any] = []
        in_time = succeeds(lambda: works.append(backend.allreduce([x])))
        self.run.meet()
        if in_time:  # before the group has ended
            succeeds(works[0].wait)  # which says so if it has ended by then
            assert look_at(x * 2) == FAILED, "a rank has the sum of an operand that is not there"
        x.fill_(3)
        assert look_at(x * 2).tolist() == [6, 6]
        assert not succeeds(lambda: backend.allreduce([x])), "the group goes on"
        self.told += drain()
        self.run.backends.remove(backend)
        succeeds(backend.shutdown)


def take_all_memory() -> None:
    held = []
    for size in (48 << 20, 5 << 20, 700 << 10):
        with contextlib.suppress(torch.OutOfMemoryError):
            while True:
                held.append(torch.full((size,), len(held) % 100, dtype=torch.uint8, device="loom"))
                assert len(held) < 3000, f"{len(held)} blocks are no limit"
    for n, block in enumerate(held):
        block.add_(1)
        ends = [block[0].item(), block[-1].item()]
        assert ends == [n % 100 + 1] * 2, f"block {n}: {ends}"


def too_much() -> None:
    try:
        torch.empty(LIMIT + 1, dtype=torch.uint8, device="loom")
    except torch.OutOfMemoryError:
        return
    raise AssertionError(f"{LIMIT + 1} bytes were allocated")


def press(mebibytes: int) -> torch.Tensor:
    """Writes memory and lets go of it: the first elements are those of pressed()."""
    x = torch.arange(5, mebibytes << 18, device="loom", dtype=torch.float32)
    y = torch.empty(mebibytes << 19, device="loom").fill_(mebibytes)
    y[: len(x)].add_(x).sub_(5)
    return y[:5].clone()


# The latter where that is seen first, as it is of cpu's tensors.
REFUSED_IN_CHILDREN = re.compile(
    "Cannot re-initialize loom in forked subprocess|refers to a single memory location"
)


def fork(use: Callable[[], Any]) -> None:
    """A child computes on cpu, and gets the documented error where it uses loom."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            faulthandler.register(signal.SIGALRM, chain=True)
            signal.alarm(int(SECONDS / 2))
            os.write(writer, in_child(use).encode())
            code = 0
        except BaseException:
            os.write(writer, traceback.format_exc().encode())
        finally:
            os._exit(code)
    os.close(writer)
    text = ""
    while True:
        ready, _, _ = select.select([reader], [], [], SECONDS)
        if not ready:
            os.kill(child, signal.SIGKILL)
            text += "no answer"
            break
        part = os.read(reader, 4096)
        if not part:
            break
        text += part.decode()
    os.close(reader)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code or text:
        raise AssertionError(f"a forked child ended with {code}: {text}")


def in_child(use: Callable[[], Any]) -> str:
    """What is wrong."""
    if (torch.arange(7.0) * 2).sum().item() != 42:
        return "cpu computes something else"
    try:
        use()
    except RuntimeError as error:
        return "" if REFUSED_IN_CHILDREN.search(str(error)) else f"{error}"
    return "loom may be used"


class Run:
    """All lanes at once, in threads of this process."""

    def __init__(self, program: StressProgram, placement: Placement, wanted: Sequence[Ran]) -> None:
        self.program = program
        self.placement = placement
        self.wanted = wanted
        self.numbers = self.some_numbers()
        self.barrier = threading.Barrier(len(self.numbers))
        self.has_collectives = any(is_collective(step.code) for step in program.steps)
        self.store = dist.HashStore()
        self.backends: list[Any] = []

    def some_numbers(self) -> Sequence[int]:
        """Of the lanes in this process."""
        return range(self.program.lanes)

    def backend(self, rank: int, name: str) -> Any:
        """The rank's place in a group; called by all lanes at once."""
        _C._bind_distributed()
        options = _C._LcclOptions(timedelta(seconds=SECONDS))
        store = dist.PrefixStore(name, self.store)
        made = _C._ProcessGroupLccl(store, rank, self.program.lanes, options)
        self.backends.append(made)
        return made

    def meet(self) -> None:
        self.barrier.wait(SECONDS)

    def lanes(self) -> list[Lane]:
        lanes = [Lane(self, n) for n in self.numbers]
        threads = [threading.Thread(target=lane.work) for lane in lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for backend in self.backends:
            if any(lane.error for lane in lanes):
                backend.abort()
            else:
                backend.shutdown()
        return lanes

    def finding(self, compare: Comparisons) -> str:
        """What is wrong, or nothing."""
        with limited_memory():
            lanes = self.lanes()
            found = self._differs(lanes, compare)
            streams = [stream for lane in lanes for stream in lane.streams]
            del lanes
        # Each thread is told of copies to pinned memory that failed.
        if found or any(TOLD in ran.outcomes for ran in self.wanted):
            settle()
            go_on(streams)
        left = drain()
        return found or (f"{left} failures are raised again" if left else "")

    def _differs(self, lanes: Sequence[Lane], compare: Comparisons) -> str:
        # A lane that another one waits for has the reason.
        errors = sorted(filter(None, (lane.error for lane in lanes)), key=NOT_THERE.__eq__)
        if errors:
            return errors[0]
        for lane in lanes:
            wrong = same(self.program, lane.ran, self.wanted[lane.number], compare)
            if wrong:
                return f"lane {lane.number}: {wrong}"
        return ""


class RankRun(Run):
    """One lane, which is a rank of the process's group."""

    def some_numbers(self) -> Sequence[int]:
        return [dist.get_rank()]

    def backend(self, rank: int, name: str) -> Any:
        return dist.group.WORLD._get_backend(torch.device("loom"))


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    for device in DEVICES:
        torch.loom.synchronize(device)
    torch.loom.empty_cache()
    for device in DEVICES:
        _, total = torch.loom.mem_get_info(device)
        torch.loom.set_per_process_memory_fraction(LIMIT / total, device)
    try:
        yield
    finally:
        for device in DEVICES:
            torch.loom.set_per_process_memory_fraction(1.0, device)


# --- the judgement -----------------------------------------------------------------------------


@dataclass
class Comparisons:
    """Compares values, and counts them."""

    made: int = 0
    failed: int = 0

    def differs(self, got: Any, wanted: Any) -> str:
        self.made += 1
        self.failed += isinstance(wanted, str) and wanted == FAILED
        if isinstance(got, str) or isinstance(wanted, str):
            return "" if got == wanted else f"{short(got)} instead of {short(wanted)}"
        return different_bits(got, wanted)


def short(value: Any) -> str:
    return value if isinstance(value, str) else "a value"


def same_outcomes(program: StressProgram, got: Ran, wanted: Ran) -> str:
    for step, one, other in zip(program.steps, got.outcomes, wanted.outcomes, strict=True):
        if one != other:
            return f"{step.code}: {one} instead of {other}"
    return ""


def same(program: StressProgram, got: Ran, wanted: Ran, compare: Comparisons) -> str:
    wrong = same_outcomes(program, got, wanted)
    if wrong:
        return wrong
    for n, (one, other) in enumerate(zip(got.seen, wanted.seen, strict=True)):
        wrong = compare.differs(one, other)
        if wrong:
            return f"sight {n}: {wrong}"
    if got.named.keys() != wanted.named.keys():
        return f"names {sorted(got.named)} instead of {sorted(wanted.named)}"
    for name, value in wanted.named.items():
        wrong = compare.differs(got.named[name], value)
        if wrong:
            return f"{name}: {wrong}"
    return ""


def of_one_zero(value: Any) -> Any:
    """With 0.0 for -0.0: which of the two is larger, devices may decide as they like."""
    is_rounded = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value + 0.0 if is_rounded else value


def as_on_cpu(program: StressProgram, got: Ran, cpu: Ran, other: Ran, compare: Comparisons) -> str:
    """`cpu`, `other`: runs with different numbers where commands fail on loom."""
    looks = filter(is_look, program.steps)
    sights = zip(looks, got.seen, cpu.seen, other.seen, strict=True)
    for n, (step, value, one, two) in enumerate(sights):
        if isinstance(value, str) and value == FAILED:
            continue
        compare.made += 1
        if isinstance(one, str) or different_bits(one, two):
            return f"sight {n}, {step.code}, was seen, which depends on what failed"
        wrong = different_bits(of_one_zero(value), of_one_zero(one)) if step.comparable else ""
        if wrong:
            return f"sight {n}, {step.code}: {wrong}"
    for name, value in got.named.items():
        one, two = cpu.named.get(name), other.named.get(name)
        if one is None or two is None:
            return f"{name} is not there on cpu"
        if isinstance(value, str):
            continue
        compare.made += 1
        if different_bits(one, two):
            return f"{name} was seen, which depends on what failed"
        wrong = different_form(value, one)
        wrong = wrong or (apart(value, one, 0.0, 1.0) if name in program.exact else "")
        if wrong:
            return f"{name}: {wrong}"
    return ""


@dataclass
class Rehearsed:
    """How a program runs step by step.

    Attributes:
        placement: its waits.
        wanted: what each lane does on loom.
    """

    placement: StressPlacement
    wanted: list[Ran]


def rehearsed(program: StressProgram) -> Rehearsed | None:
    """None if it is not a program: steps were dropped that others need, or a collective is of what
    failed. Raises: what no program should get."""
    try:
        placement = placement_of(program)
    except Exception:
        return None
    assert not drain(), "a failure of an earlier program is raised"
    try:
        scopes = [step_by_step_on_loom(program, n) for n in range(program.lanes)]
        return Rehearsed(placement, lockstep(scopes, program))
    except RAISED_BY_FAILURES as error:
        if not is_failure(error):
            raise
        return None
    finally:
        settle()
        go_on([torch.loom.current_stream()])


def judged(program: StressProgram) -> tuple[str, Counter[str]]:
    """What is wrong, or nothing, and what was counted."""
    try:
        run = rehearsed(program)
    except Exception as error:
        return f"step by step: {type(error).__name__}: {error}", Counter()
    if run is None:
        return "", Counter()
    compare = Comparisons()
    found = step_by_step_differs(program, run.wanted, compare)
    if not found and program.processes:
        found = in_processes(program)
    elif not found:
        found = Run(program, run.placement, run.wanted).finding(compare)
        found = f"threads: {found}" if found else ""
    counts = events_of(program)
    counts.update({"programs": 1, "lanes": program.lanes, "comparisons": compare.made})
    counts["of two processes"] += program.processes
    counts["failed values"] = compare.failed
    return found, counts


def step_by_step_differs(
    program: StressProgram, wanted: Sequence[Ran], compare: Comparisons
) -> str:
    """What is wrong with what loom gives step by step, as cpu has it."""
    lanes = range(program.lanes)
    outcomes = [ran.outcomes for ran in wanted]
    one, two = (
        lockstep([on_cpu(program, n, spoilt) for n in lanes], program, outcomes)
        for spoilt in SPOILT
    )
    for n in lanes:
        wrong = as_on_cpu(program, wanted[n], one[n], two[n], compare)
        if wrong:
            return f"step by step, lane {n}: {wrong}"
    return ""


_pool: list[Any] = []


def start_processes(count: int) -> None:
    """Starts those that run programs, and live on. On a busy host that takes more than one try."""
    from rank_pool import RankPool

    threads = os.environ.get("LOOM_THREADS", "1")
    for last in (False, False, True):
        try:
            _pool.append(RankPool(count, timeout=SECONDS, LOOM_THREADS=threads))
        except AssertionError:
            if last:
                raise
        else:
            return


def in_processes(program: StressProgram) -> str:
    """What is wrong when two processes run the program, or nothing."""
    if not _pool:
        start_processes(program.lanes)
    try:
        found = _pool[0].run(finding_of_rank, program)
    except AssertionError as error:
        found = [str(error)]
    wrong = next(filter(None, found), "")
    if wrong:
        _pool.pop().close()
        return f"processes: {wrong}"
    return ""


def finding_of_rank(program: StressProgram) -> str:
    """Runs a lane of the program, in a process that is a rank."""
    faulthandler.dump_traceback_later(1.5 * SECONDS, exit=True)
    try:
        torch.loom.set_device(0)
        run = rehearsed(program)
        if run is None:
            return ""
        return RankRun(program, run.placement, run.wanted).finding(Comparisons())
    finally:
        faulthandler.cancel_dump_traceback_later()


def failure(program: StressProgram) -> str:
    return judged(program)[0]


def shortest(program: StressProgram, fails: Callable[[StressProgram], bool]) -> StressProgram:
    """With few lanes and few steps."""
    others = [replace(program, lanes=n, processes=False) for n in range(1, program.lanes)]
    if program.processes:
        others.append(replace(program, processes=False))
    program = next(filter(fails, others), program)
    found: StressProgram = shrink(program, fails)
    return found


def run_on_cpu(program: StressProgram) -> None:
    scopes = [on_cpu(program, n, SPOILT[0]) for n in range(program.lanes)]
    lockstep(scopes, program, [[DONE] * len(program.steps)] * program.lanes)
