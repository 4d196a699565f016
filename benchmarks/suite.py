# SPDX-License-Identifier: BSD-3-Clause
"""Measures workloads: all contenders take turns, a repetition each, in processes that wait."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from contenders import CONTENDERS, environment
from measure import busy_process
from pace import Pace
from workloads.workload import COUNTED, Workload

sys.path.insert(0, str(Path(__file__).parents[1] / "tests_py"))

from support.line_worker import LineWorker

# OpenMP's threads and loom's spin for a while after work: not beside the next measurement.
SETTLE_SECONDS = 0.015
# Processes that have just begun or ended may be busy for a while.
SETTLE_SECONDS_OF_PROCESSES = 1.0
# A repetition takes at least so long on cpu, and its unread results hold at most so much memory.
REPETITION_SECONDS = 0.006
KEPT_BYTES = 16 << 20
MOST_CALLS = 500
# A call that takes longer needs no warming before each repetition.
SECONDS_WORTH_WARMING = 0.02
SECONDS_TO_PREPARE = 900.0
SECONDS_TO_MEASURE = 300.0

Json = dict[str, Any]


class Workers:
    """The processes of the contenders, each started when it is first asked."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = [str(size) for size in sizes]
        self._workers: dict[str, LineWorker] = {}

    def get(self, process: str) -> LineWorker:
        if process not in self._workers:
            script = Path(__file__).with_name("worker.py")
            self._workers[process] = LineWorker(
                script, process, *self._sizes, **environment(process)
            )
        return self._workers[process]

    def ask(self, process: str, seconds: float, **question: Any) -> Json:
        """The answer, with the key `error` if there is none."""
        worker = self.get(process)
        answer = worker.exchange(question, seconds)
        if answer is not None:
            return answer
        kind, detail = worker.how_it_ended()
        worker.kill()
        self._workers.pop(process).close()
        return {"error": f"{kind}: {detail}"}

    def ask_all(self, **question: Any) -> None:
        for process in list(self._workers):
            self.ask(process, SECONDS_TO_MEASURE, **question)

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()


def rounds_of(seconds: float, output_bytes: int) -> tuple[int, int]:
    """How many calls before each wait, and how often so many, for a call that takes so long."""
    wanted = max(1, math.ceil(REPETITION_SECONDS / max(seconds, 1e-9)))
    calls = max(1, min(wanted, MOST_CALLS, KEPT_BYTES // max(output_bytes, 1)))
    return calls, max(1, math.ceil(wanted / calls))


def measure_workload(
    workers: Workers,
    workload: Workload,
    names: Iterable[str],
    repetitions: int,
    beside_busy: bool,
    pace: Pace,
) -> Json:
    """All contenders' repetitions of one workload, interleaved."""
    result: Json = {
        "group": workload.group,
        "workload": workload.name,
        "size": workload.size,
        "dtype": workload.dtype_name,
        "bytes": workload.bytes,
        "flops": max(workload.flops, 0),
        "contenders": {},
    }
    contenders: Json = result["contenders"]
    names = [name for name in names if CONTENDERS[name].takes(workload.group)]
    for name in names:
        contenders[name] = workers.ask(
            CONTENDERS[name].process,
            SECONDS_TO_PREPARE,
            do="prepare",
            workload=workload.key,
            contender=name,
        )
        if workload.flops == COUNTED:
            result["flops"] = contenders[name].pop("flops", result["flops"])
    ready = [name for name in names if "error" not in contenders[name]]
    if not ready:
        return result

    # The first is eager cpu, unless it was not asked for: all make as many calls.
    first = contenders[ready[0]]
    calls, rounds = rounds_of(first["seconds"], first["output_bytes"])
    result |= {"calls": calls, "rounds": rounds}
    warm = first["seconds"] < SECONDS_WORTH_WARMING

    def turn(name: str) -> Json:
        return workers.ask(
            CONTENDERS[name].process,
            SECONDS_TO_MEASURE,
            do="measure",
            contender=name,
            calls=calls,
            rounds=rounds,
            warm=warm,
        )

    def repeat(host: str) -> None:
        for repetition in range(repetitions):
            for name in rotated(ready, repetition):
                if "error" in contenders[name]:
                    continue
                time.sleep(SETTLE_SECONDS)
                # Beside a busy process all processors are held back.
                answer = pace.measure(partial(turn, name)) if host == "quiet" else turn(name)
                if "error" in answer:
                    contenders[name]["error"] = answer["error"]
                    continue
                into = contenders[name].setdefault(host, {"seconds": [], "faults": []})
                for key, values in into.items():
                    values.append(answer[key])

    repeat("quiet")
    if beside_busy:
        with busy_process():
            repeat("busy")
    for name in names:
        for key in ("seconds", "output_bytes"):
            contenders[name].pop(key, None)
    return result


def rotated(names: list[str], by: int) -> list[str]:
    """Every repetition starts with another contender."""
    start = by % len(names)
    return names[start:] + names[:start]


def peak_memory(workers: Workers, workload: Workload, names: Iterable[str]) -> Json:
    """Peak memory of the eager contenders; malloc makes no difference to cpu's."""
    result: Json = {"workload": workload.name, "dtype": workload.dtype_name}
    for name in ("cpu", "loom"):
        if name in names:
            result[name] = workers.ask(
                CONTENDERS[name].process,
                SECONDS_TO_MEASURE,
                do="memory",
                workload=workload.key,
                contender=name,
            )
    return result


def run(
    workloads: Iterable[Workload],
    names: Sequence[str],
    repetitions: int,
    beside_busy: bool,
    sizes: Sequence[int],
    progress: Callable[[str], None],
) -> Json:
    """Measures everything, with fresh processes for every group and size: how fast stock malloc is
    depends on what the process had before. SIGINT ends it early, with what was measured so far.

    Returns:
        The keys `processes` (what each says of itself), `limits` (a list: before each group and
        size, and at the end), `interrupted` (whether workloads are missing), `pace` (how many turns
        were repeated), `results` and `memory`.
    """
    pace = Pace()
    answer: Json = {"processes": {}, "limits": [], "results": [], "memory": []}
    answer["interrupted"] = False
    parts: dict[tuple[str, int], list[Workload]] = {}
    for workload in workloads:
        parts.setdefault((workload.group, workload.size), []).append(workload)
    try:
        for members in parts.values():
            progress("the machine's limits")
            answer["limits"].append(measure_limits(sizes))
            workers = Workers(sizes)
            try:
                group = members[0].group
                asked = [CONTENDERS[name] for name in names if CONTENDERS[name].takes(group)]
                for process in dict.fromkeys(contender.process for contender in asked):
                    answer["processes"][process] = workers.get(process).first
                time.sleep(SETTLE_SECONDS_OF_PROCESSES)
                for number, workload in enumerate(members, 1):
                    progress(f"{workload.key} ({number} of {len(members)})")
                    answer["results"].append(
                        measure_workload(workers, workload, names, repetitions, beside_busy, pace)
                    )
                    workers.ask_all(do="release")
                    if workload.peak_memory:
                        answer["memory"].append(peak_memory(workers, workload, names))
                        workers.ask_all(do="release")
            finally:
                workers.close()
        answer["limits"].append(measure_limits(sizes))
    except KeyboardInterrupt:
        if not answer["results"]:
            raise
        answer["interrupted"] = True
        progress("interrupted: what was measured before is kept")
    answer["pace"] = pace.counts()
    return answer


def measure_limits(sizes: Sequence[int]) -> Json:
    """In a process of their own: their arrays would be part of the history of stock malloc."""
    workers = Workers(sizes)
    try:
        return workers.ask("stock", SECONDS_TO_MEASURE, do="limits")
    finally:
        workers.close()
