# SPDX-License-Identifier: BSD-3-Clause
"""A process of the suite: measures one repetition of a workload at a time, when it is told to.

Between questions it is blocked on its standard input. Questions and answers are lines of JSON.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import limits
import peak_memory
import torch
from contenders import CONTENDERS, Contender
from torch import Tensor
from workloads import GROUPS, SIZES, collect
from workloads.workload import COUNTED, Call, Workload, total_bytes

# How far a result may be from eager cpu's, relative to its norm; steps of training amplify.
TOLERANCES = {torch.float32: 1e-3, torch.bfloat16: 3e-2, torch.complex64: 1e-4, torch.bool: 1e-5}
CHECKED_CALLS = 2
# After its pause a process finds its cores asleep and its data out of the caches.
WARM_SECONDS = 0.01
SECONDS_OF_TRIALS = 0.02
# The first may be cold; what takes so long is not called again and again.
SECONDS_OF_LEAST_TRIALS = 1.0
LEAST_TRIALS = 4
MOST_TRIALS = 20


def page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def finish(device: str) -> None:
    if device != "cpu":
        torch.accelerator.synchronize()


def make(workload: Workload, contender: Contender) -> Call:
    torch.manual_seed(0)
    if contender.compiled:
        # Code that many workloads share would be compiled for all sizes from the second one on, and
        # after a few times run eagerly.
        torch._dynamo.reset()

    def compiled(function: Any) -> Any:
        return torch.compile(function)

    def unchanged(function: Any) -> Any:
        return function

    call = workload.make(contender.device, compiled if contender.compiled else unchanged)
    return replayed(call) if contender.replayed else call


def replayed(call: Call) -> Call:
    """The call, captured in a graph: every replay writes the same results again."""
    for _ in range(CHECKED_CALLS):
        call()
    graph = torch.accelerator.Graph()
    with torch.loom.graph(graph):
        results = call()

    def replay(_kept: Call = call) -> Sequence[Tensor]:
        """A graph does not keep the tensors it reads: whoever replays it keeps model and inputs."""
        graph.replay()
        return results

    return replay


def checked_results(call: Call) -> list[Tensor]:
    """Host copies of what the last of some calls returns."""
    for _ in range(CHECKED_CALLS - 1):
        call()
    return [tensor.detach().cpu().clone() for tensor in call()]


def difference(results: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest distance of two tensors relative to the norm, or share of unequal elements."""
    worst = 0.0
    for ours, theirs in zip(results, expected, strict=True):
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            return float("inf")
        if not theirs.is_floating_point():
            distance = (ours != theirs).float().mean().item()
        else:
            norm = theirs.float().norm().item()
            distance = (ours.float() - theirs.float()).norm().item() / max(norm, 1e-30)
        if not distance <= worst:  # also what is not a number
            worst = distance
    return worst


def counted_flops(call: Call) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


class Bench:
    """The state of the process: the calls of the workload at hand, and what cpu makes of it."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._workloads = collect(GROUPS, sizes)
        self._calls: dict[str, Call] = {}
        self._expected: tuple[str, list[Tensor]] | None = None

    def prepare(self, workload: str, contender: str) -> dict[str, Any]:
        """Makes the call, compiles, compares with eager cpu, and says how long a call takes."""
        who, what = CONTENDERS[contender], self._workloads[workload]
        answer: dict[str, Any] = {}
        if who.streams:
            self._calls[contender] = limits.Update(what.bytes, what.passes)
            answer |= {"difference": 0.0, "agrees": True, "output_bytes": 0}
            return answer | {"seconds": self._shortest(contender)}
        call = make(what, who)
        start = time.perf_counter()
        results = checked_results(call)
        answer["first_seconds"] = time.perf_counter() - start
        if who.device == "cpu" and not who.compiled:
            self._expected = (workload, results)
            if what.flops == COUNTED:
                answer["flops"] = counted_flops(call)
        off = difference(results, self._eager_cpu(what))
        answer |= {"difference": off, "agrees": off <= TOLERANCES.get(what.dtype, 0.0)}
        self._calls[contender] = call
        answer["output_bytes"] = total_bytes(results)
        answer["seconds"] = self._shortest(contender)
        return answer

    def _shortest(self, contender: str) -> float:
        """Seconds of a call that is waited for, once caches and threads are warm."""
        times: list[float] = []
        while sum(times) < SECONDS_OF_TRIALS or len(times) < LEAST_TRIALS:
            enough = len(times) > 1 and sum(times) > SECONDS_OF_LEAST_TRIALS
            if len(times) >= MOST_TRIALS or enough:  # a single one may have been held up
                break
            times.append(self.measure(contender, 1, 1, warm=False)["seconds"])
        return min(times)

    def _eager_cpu(self, workload: Workload) -> list[Tensor]:
        if self._expected is None or self._expected[0] != workload.key:
            self._expected = (workload.key, checked_results(make(workload, CONTENDERS["cpu"])))
        return self._expected[1]

    def measure(
        self, contender: str, calls: int, rounds: int, warm: bool = True
    ) -> dict[str, float]:
        """Seconds and page faults of one call, of `rounds` times so many calls and a wait.

        Every result of a round is alive until the device has finished the round.
        """
        call, device = self._calls[contender], CONTENDERS[contender].device
        kept: list[Sequence[Tensor]] = []
        gc.disable()
        try:
            begin = time.perf_counter()
            while warm and time.perf_counter() - begin < WARM_SECONDS:
                kept.extend(call() for _ in range(calls))
                finish(device)
                kept.clear()
            faults = page_faults()
            start = time.perf_counter()
            for _ in range(rounds):
                for _ in range(calls):
                    kept.append(call())
                finish(device)
                kept.clear()
            seconds = time.perf_counter() - start
            faults = page_faults() - faults
        finally:
            gc.enable()
        count = calls * rounds
        return {"seconds": seconds / count, "faults": faults / count}

    def memory(self, workload: str, contender: str) -> dict[str, int]:
        """The most memory in tensors, from making the inputs to the end of some steps."""
        who, what = CONTENDERS[contender], self._workloads[workload]
        return {"peak": peak_memory.measure(lambda: make(what, who), who.device)}

    def release(self) -> dict[str, Any]:
        """Forgets the workload at hand."""
        self._calls.clear()
        self._expected = None
        if "torch._dynamo" in sys.modules:
            torch._dynamo.reset()
        gc.collect()
        gc.freeze()  # modules that were loaded meanwhile need not be looked through every time
        return {}

    def limits(self) -> dict[str, Any]:
        return limits.measure()


def describe(process: str) -> dict[str, Any]:
    maps = Path("/proc/self/maps").read_text()
    answer: dict[str, Any] = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "jemalloc": "libjemalloc" in maps,
    }
    if answer["jemalloc"] != (process == "jemalloc"):
        raise RuntimeError(f"expected malloc of {process}, got jemalloc={answer['jemalloc']}")
    if process in ("loom", "before"):
        properties = torch.loom.get_device_properties(0)
        answer |= {"cores": properties.core_count, "simd": properties.simd}
    return answer


def main() -> None:
    process, *sizes = sys.argv[1:]
    # What compilers and libraries print must not get among the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    bench = Bench([int(size) for size in sizes] or SIZES)
    bench.release()
    say(describe(process))  # all is quiet now: others are measured once every process has said so
    for line in sys.stdin:
        question = json.loads(line)
        try:
            say(getattr(bench, question.pop("do"))(**question))
        except Exception as error:  # a contender that fails is a cell of the table
            say({"error": f"{type(error).__name__}: {error}".strip().split("\n")[0]})


if __name__ == "__main__":
    main()
