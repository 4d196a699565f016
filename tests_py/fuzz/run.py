# SPDX-License-Identifier: BSD-3-Clause
"""The fuzzer: makes random cases on loom and on cpu and compares what comes back.

A case is a call of an operator (a family of calls/families.py), a program of pointwise operators,
reductions, views and writes (`programs`), or a function that is compiled (`graphs`). A process of
its own makes it, so that a crash or a hang is a finding of the case that caused it. A run goes
through all modes: instruction sets that the host has, both kinds of memory, numbers of threads.
Findings are printed with their seed and as a script, without what does not matter to them.

    python run.py --minutes 60                           # everything
    python run.py --minutes 10 --first 1000 pool unary   # these families, from that seed
    python run.py --mode avx2,isolated,1 --mode scalar,unified,7
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime
import itertools
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.line_worker import LineWorker

SECONDS_PER_CASE = 120.0
SECONDS_PER_GRAPH = 600.0  # it is compiled up to eight times
# One case of a graph takes as long as so many calls.
CALLS_PER_GRAPH = 300
# Cases of one mode before the next mode has its turn.
CASES_OF_A_TURN = 400
THREADS = (1, 2, 7)
MEMORIES = ("unified", "isolated")
# What narrows loom and its oracle to an instruction set.
NARROWING = {
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "scalar": {},
}
SETS = ("scalar", "avx2", "avx512", "avx512_bf16", "amx")


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

    most = torch.loom.get_device_properties(0).simd.lower()
    sets = SETS[: SETS.index(most) + 1] if most in SETS else (most, "scalar")
    made = [Mode(*each) for each in itertools.product(sets, MEMORIES, THREADS)]
    # A step that has no common divisor with the number of modes meets all of them.
    step = next(n for n in itertools.count(5) if math.gcd(n, len(made)) == 1)
    return [made[i * step % len(made)] for i in range(len(made))]


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the case of a family and a seed did.

    Attributes:
        kind: how loom differs from cpu: crash, hang, error, form, strides, values or memory; or
            nothing.
        known: why it may.
        refused: whether cpu and loom raised the same error.
    """

    family: str
    seed: int
    kind: str = ""
    text: str = ""
    known: str = ""
    script: str = ""
    refused: bool = False
    way: str = ""

    def __str__(self) -> str:
        known = f" (known: {self.known})" if self.known else ""
        return f"{self.family} {self.seed}: {self.kind}{known}: {self.text}\n{self.script}"


class Caller:
    """Asks a worker, and another one after each crash."""

    def __init__(self, **environment: str) -> None:
        self._environment = environment
        self._worker = self._start()
        self.families: list[str] = self._worker.first

    def _start(self) -> LineWorker:
        script = Path(__file__).with_name("worker.py")
        return LineWorker(script, **self._environment)

    def _ask(self, family: str, seed: int, on_cpu_only: bool) -> Answer:
        patience = SECONDS_PER_GRAPH if family == "graphs" else SECONDS_PER_CASE
        fields = self._worker.exchange([family, seed, on_cpu_only], patience)
        if fields is not None:
            return Answer(family, seed, **fields)
        kind, text = self._worker.how_it_ended()
        self._worker.kill()
        self._worker.close()
        self._worker = self._start()
        return Answer(family, seed, kind, text)

    def ask(self, family: str, seed: int) -> Answer:
        found = self._ask(family, seed, False)
        if found.kind in ("crash", "hang") and self._ask(family, seed, True).kind:
            return dataclasses.replace(found, known="cpu ends the process, too")
        return found

    def close(self) -> None:
        self._worker.close()


def answers(caller: Caller, families: Sequence[str], seeds: Iterable[int]) -> Iterator[Answer]:
    """Of all families with the first seed, then with the next one; seeds may have no end."""
    for seed in seeds:
        for family in families:
            yield caller.ask(family, seed)


class Cases:
    """Families and seeds, one after the other: all families with the first seed, then the next."""

    def __init__(self, families: Sequence[str], first: int) -> None:
        self._families = families
        self._made = 0
        self._first = first

    def __next__(self) -> tuple[str, int]:
        while True:
            round_, index = divmod(self._made, len(self._families))
            self._made += 1
            family = self._families[index]
            calls = max(len(self._families) - 1, 1)
            alone = len(self._families) == 1
            if family != "graphs" or alone or round_ % (CALLS_PER_GRAPH // calls + 1) == 0:
                return family, self._first + round_


def run(
    families: Sequence[str], first: int, minutes: float, chosen: Sequence[Mode], known: bool
) -> int:
    """Prints findings as they come, and a row of counts for each mode; returns the number found."""
    end = time.monotonic() + 60 * minutes
    counts = {str(mode): collections.Counter[str]() for mode in chosen}
    cases: Cases | None = None
    for mode in itertools.cycle(chosen):
        if time.monotonic() > end:
            break
        count = counts[str(mode)]
        caller = Caller(**mode.environment())
        cases = cases or Cases(families or caller.families, first)
        for _ in range(CASES_OF_A_TURN):
            found = caller.ask(*next(cases))
            count["cases"] += 1
            count["refused by both"] += found.refused
            count["findings"] += bool(found.kind and not found.known)
            count["known differences"] += bool(found.known)
            if found.kind and (known or not found.known):
                print(f"[{mode}] {found}", flush=True)
            if time.monotonic() > end:
                break
        caller.close()
    for mode, count in counts.items():
        print(f"{mode}:", ", ".join(f"{n} {what}" for what, n in count.items()) or "no cases")
    total = sum(counts.values(), collections.Counter[str]())
    seeds = f"from seed {first} to {found.seed}"
    print(f"all modes, {seeds}:", ", ".join(f"{n} {what}" for what, n in total.items()))
    return total["findings"]


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
    parser.add_argument("families", nargs="*", help="only these families")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--first", type=int, help="the first seed; the day's if there is none")
    parser.add_argument("--mode", type=mode_of, action="append", help="only this mode; repeatable")
    parser.add_argument("--known", action="store_true", help="print known differences, too")
    given = parser.parse_args()
    caller = Caller()
    caller.close()
    unknown = set(given.families) - set(caller.families)
    if unknown:
        parser.error(f"no family {', '.join(unknown)}; there are {', '.join(caller.families)}")
    first = given.first
    if first is None:
        first = datetime.datetime.now(datetime.timezone.utc).date().toordinal() * 1000
    found = run(given.families, first, given.minutes, given.mode or modes(), given.known)
    return min(found, 1)


if __name__ == "__main__":
    # Threads of OpenMP, on which cpu computes what is expected, spin where they wait.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    sys.exit(main())
