# SPDX-License-Identifier: BSD-3-Clause
"""The fuzzer: makes random cases on loom and on cpu and compares what comes back.

A case is a call of an operator (a family of calls/families.py), a program of pointwise operators,
reductions, views and writes (`programs`), a function that is compiled (`graphs`, and on several
streams `stream graphs`), a program that is run on several streams, in threads and as a captured
graph (`streams`), or one in which commands fail, memory runs out and the process forks as well
(`stress`). A process of its own makes it, so that a crash or a hang is a finding of the case
that caused it. A run goes through all modes: instruction sets that the host has, both kinds of
memory, numbers of threads. Findings are printed with their seed and as a script, without what does
not matter to them.

    python run.py --minutes 60                           # everything
    python run.py --minutes 10 --first 1000 pool unary   # these families, from that seed
    python run.py --mode avx2,isolated,1 --mode scalar,unified,7
    python run.py --minutes 60 --stress                  # stress, in the widest vectors only
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import dataclasses
import datetime
import itertools
import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.line_worker import LineWorker

SECONDS_PER_CASE = 120.0
# A graph is compiled up to eight times; a stress program may start two processes, and wait for all
# that they do on a host that is busy with others.
MORE_SECONDS = {"graphs": 600.0, "stream graphs": 600.0, "stress": 600.0}
STARTS = 4  # of a worker, on such a host
# Of a case that ends its process, or hangs: of a shorter one, and of all together.
SECONDS_PER_SHORTER, SECONDS_TO_SHORTEN = 40.0, 900.0
# The parts of the time that kinds of cases get.
SHARES = {
    "calls": 12,
    "programs": 3,
    "streams": 3,
    "stress": 3,
    "graphs": 1,
    "stream graphs": 1,
}
# What `--slice` makes: its findings refuse a change, so each has to be a mistake. Findings of other
# families are now and then none: an order of sums, an ill-conditioned value.
SLICE = ("streams",)
# How long a process makes cases of its mode, at least some times as long as it took to start.
LEAST_SECONDS_OF_A_TURN, MOST_SECONDS_OF_A_TURN = 15.0, 120.0
TIMES_ITS_START = 8.0
THREADS = (1, 2, 7)
MEMORIES = ("unified", "isolated")
# What narrows loom and its oracle to an instruction set.
NARROWING = {
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "scalar": {},
}
# Lets glibc keep the memory of cpu's tensors: fresh pages cost more than what most cases compute.
KEEPING = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(256 << 20)}
# What LOOM_SIMD calls the instruction sets that a device says it has, each with those before it.
SETS = {
    "scalar": "scalar",
    "AVX2": "avx2",
    "AVX-512": "avx512",
    "AVX-512 with BF16": "avx512_bf16",
    "AMX": "amx",
}
WIDTHS = ["scalar", "neon", "avx2", "avx512", "avx512_bf16", "amx"]


@dataclasses.dataclass(frozen=True)
class Mode:
    """How a process runs loom."""

    simd: str
    memory: str
    threads: int

    def environment(self) -> dict[str, str]:
        return {
            "LOOM_SIMD": self.simd,
            "LOOM_MEMORY": self.memory,
            "LOOM_THREADS": str(self.threads),
            **NARROWING.get(self.simd, {}),
        }

    def __str__(self) -> str:
        return f"{self.simd},{self.memory},{self.threads}"


def modes() -> list[Mode]:
    """All modes of this host, neighbours differing in all three."""
    import torch

    import torch_loom  # noqa: F401

    most = torch.loom.get_device_properties(0).simd
    names = list(SETS)
    sets = [SETS[name] for name in names[: names.index(most) + 1]] if most in SETS else [
        "scalar", most.lower()
    ]  # fmt: skip
    made = [Mode(*each) for each in itertools.product(sets, MEMORIES, THREADS)]
    # A step that has no common divisor with the number of modes meets all of them.
    step = next(n for n in itertools.count(5) if math.gcd(n, len(made)) == 1)
    return [made[i * step % len(made)] for i in range(len(made))]


def of_widest(chosen: Sequence[Mode]) -> list[Mode]:
    """The modes with the widest instruction set."""
    widest = max((mode.simd for mode in chosen), key=WIDTHS.index)
    return [mode for mode in chosen if mode.simd == widest]


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the case of a family and a seed did.

    Attributes:
        kind: how loom differs from cpu: crash, hang, error, form, strides, values or memory; or
            nothing.
        known: why it may.
        refused: whether cpu and loom raised the same error.
        counts: what else is counted.
    """

    family: str
    seed: int
    kind: str = ""
    text: str = ""
    known: str = ""
    script: str = ""
    refused: bool = False
    way: str = ""
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        known = f" (known: {self.known})" if self.known else ""
        return f"{self.family} {self.seed}: {self.kind}{known}: {self.text}\n{self.script}"


class Caller:
    """Asks a worker, and another one after each crash."""

    def __init__(self, **environment: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._stacks = Path(self._folder.name) / "stacks"
        self._environment = {**KEEPING, **environment, "LOOM_TEST_STACKS": str(self._stacks)}
        self._worker: LineWorker | None = None  # it is started when it is asked
        self.families: list[str] = self._running().first

    def _running(self) -> LineWorker:
        script = Path(__file__).with_name("worker.py")
        for start in itertools.count(1):
            if self._worker is not None:
                break
            try:
                self._worker = LineWorker(script, **self._environment)
            except RuntimeError:
                if start == STARTS:
                    raise
        return self._worker

    def ask_for(
        self,
        family: str,
        case: int | str,
        on_cpu_only: bool = False,
        patience: float = SECONDS_PER_CASE,
    ) -> Answer:
        """`case`: a seed, or a program as text."""
        question = [family, case, on_cpu_only, 0.8 * patience]
        worker = self._running()
        fields = worker.exchange(question, patience)
        seed = case if isinstance(case, int) else 0
        if fields is not None:
            return Answer(family, seed, **fields)
        kind, text = worker.how_it_ended()
        worker.kill()
        worker.close()
        self._worker = None
        text = f"{text}\n{self._stacks.read_text(errors='replace')}"
        return Answer(family, seed, kind, text)

    def ask(self, family: str, seed: int) -> Answer:
        patience = MORE_SECONDS.get(family, SECONDS_PER_CASE)
        found = self.ask_for(family, seed, False, patience)
        if found.kind not in ("crash", "hang"):
            return found
        if self.ask_for(family, seed, True, patience).kind:
            return dataclasses.replace(found, known="cpu ends the process, too")
        if family in ("streams", "stress"):
            print(f"{found}: a shorter one is looked for", flush=True)
            found = dataclasses.replace(found, script=self._script_of(found))
        return found

    def _script_of(self, found: Answer) -> str:
        """The script of the shortest program that is found to end as this one."""
        from worker import PROGRAMS

        programs = PROGRAMS[found.family]
        end = time.monotonic() + SECONDS_TO_SHORTEN

        def fails(shorter: Any) -> bool:
            tries = range(programs.tries) if time.monotonic() < end else ()
            asked = (self.ask_for(found.family, repr(shorter), False, SECONDS_PER_SHORTER)
                     for _ in tries)  # fmt: skip
            return any(answer.kind in ("crash", "hang") for answer in asked)

        script: str = programs.shortest(programs.make(found.seed), fails).script()
        return script

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._folder.cleanup()


def answers(caller: Caller, families: Sequence[str], seeds: Iterable[int]) -> Iterator[Answer]:
    """Of all families with the first seed, then with the next one; seeds may have no end."""
    for seed in seeds:
        for family in families:
            yield caller.ask(family, seed)


def kind_of(family: str) -> str:
    return family if family in SHARES else "calls"


class Cases:
    """Families and seeds: of the kind of cases that has had the least of its part of the time."""

    def __init__(self, families: Sequence[str], first: int) -> None:
        self._kinds: dict[str, list[str]] = {}
        for family in families:
            self._kinds.setdefault(kind_of(family), []).append(family)
        self._made = dict.fromkeys(self._kinds, 0)
        self._seconds = dict.fromkeys(self._kinds, 0.0)
        self._first = first
        self._lock = threading.Lock()  # of all members

    def next(self) -> tuple[str, int]:
        with self._lock:
            kind = min(self._kinds, key=lambda kind: self._seconds[kind] / SHARES[kind])
            round_, index = divmod(self._made[kind], len(self._kinds[kind]))
            self._made[kind] += 1
            # Until it is known: so that processes beside each other do not take the same kind.
            self._seconds[kind] += 1e-3
            return self._kinds[kind][index], self._first + round_

    def __str__(self) -> str:
        lasts = {kind: self._made[kind] // len(self._kinds[kind]) for kind in self._kinds}
        return ", ".join(f"{kind} to {self._first + last}" for kind, last in lasts.items())

    def took(self, family: str, seconds: float) -> None:
        with self._lock:
            self._seconds[kind_of(family)] += seconds


class Counts:
    """Of the cases of each mode, and of each kind, with the time that they took."""

    def __init__(self, rows: Iterable[str]) -> None:
        self._rows = {row: collections.Counter[str]() for row in (*rows, "all modes")}
        self._seconds = collections.Counter[str]()
        self._lock = threading.Lock()  # of all members

    def add(self, mode: str, found: Answer, seconds: float) -> None:
        kind = kind_of(found.family)
        with self._lock:
            self._seconds[kind] += seconds
            for row in (mode, kind, "all modes"):
                count = self._rows.setdefault(row, collections.Counter[str]())
                count["cases"] += 1
                count["refused by both"] += found.refused
                count["findings"] += bool(found.kind and not found.known)
                count["known differences"] += bool(found.known)
                count.update(found.counts)

    def __getitem__(self, row: str) -> collections.Counter[str]:
        return self._rows[row]

    def __str__(self) -> str:
        lines = []
        for row, count in self._rows.items():
            told = ", ".join(f"{n} {what}" for what, n in count.items()) or "no cases"
            rate = (
                f", {count['cases'] / self._seconds[row]:.1f} a second of a process"
                if row in SHARES
                else ""
            )
            lines.append(f"{row}: {told}{rate}")
        return "\n".join(lines)


class Run:
    """Processes beside each other, each of one mode after the other, until the time is up."""

    def __init__(self, minutes: float, chosen: Sequence[Mode], cases: Cases, known: bool) -> None:
        self._end = time.monotonic() + 60 * minutes
        self._turn = min(
            max(60 * minutes / len(chosen), LEAST_SECONDS_OF_A_TURN), MOST_SECONDS_OF_A_TURN
        )
        self._modes = itertools.cycle(chosen)
        self._cases = cases
        self._known = known
        self._lock = threading.Lock()  # of the modes, and of standard output
        self.counts = Counts(map(str, chosen))

    def make(self, processes: int) -> None:
        with concurrent.futures.ThreadPoolExecutor(processes) as pool:
            for done in [pool.submit(self._work) for _ in range(processes)]:
                done.result()

    def _work(self) -> None:
        while time.monotonic() < self._end:
            with self._lock:
                mode = next(self._modes)
            start = time.monotonic()
            caller = Caller(**mode.environment())
            ready = time.monotonic()
            turn = ready + max(self._turn, TIMES_ITS_START * (ready - start))
            while time.monotonic() < min(turn, self._end):
                self._case(caller, mode)
            caller.close()

    def _case(self, caller: Caller, mode: Mode) -> None:
        start = time.monotonic()
        family, seed = self._cases.next()
        found = caller.ask(family, seed)
        seconds = time.monotonic() - start
        self._cases.took(family, seconds)
        self.counts.add(str(mode), found, seconds)
        if found.kind and (self._known or not found.known):
            with self._lock:
                print(f"[{mode}] {found}", flush=True)


def mode_of(text: str) -> Mode:
    """Of a text such as avx2,isolated,1."""
    try:
        simd, memory, threads = text.split(",")
        return Mode(simd, memory, int(threads))
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"expected a mode such as avx2,isolated,1: {text}"
        ) from error


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("families", nargs="*", help="only these families, or calls")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--first", type=int, help="the first seed; the day's if there is none")
    parser.add_argument("--mode", type=mode_of, action="append", help="only this mode; repeatable")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="at a time")
    parser.add_argument("--slice", action="store_true", help="only SLICE")
    parser.add_argument(
        "--stress", action="store_true", help="only stress, in the modes of the widest vectors"
    )
    parser.add_argument("--known", action="store_true", help="print known differences, too")
    given = parser.parse_args()
    caller = Caller()
    caller.close()
    calls = [family for family in caller.families if kind_of(family) == "calls"]
    families = [one for each in given.families for one in (calls if each == "calls" else [each])]
    if given.slice:
        families = list(SLICE)
    chosen = given.mode or modes()
    if given.stress:
        families = ["stress"]
        chosen = given.mode or of_widest(chosen)
    unknown = set(families) - set(caller.families)
    if unknown:
        parser.error(f"no family {', '.join(unknown)}; there are {', '.join(caller.families)}")
    first = given.first
    if first is None:
        first = datetime.datetime.now(datetime.timezone.utc).date().toordinal() * 1000
    cases = Cases(families or caller.families, first)
    run = Run(given.minutes, chosen, cases, given.known)
    try:
        run.make(given.processes)
    finally:
        print(f"from seed {first} on ({cases}):\n{run.counts}")
    total = run.counts["all modes"]
    return int(total["findings"] > 0 or total["cases"] == 0)


if __name__ == "__main__":
    # Threads of OpenMP, on which cpu computes what is expected, spin where they wait.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    sys.exit(main())
