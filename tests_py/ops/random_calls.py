# SPDX-License-Identifier: BSD-3-Clause
"""Makes random calls of operators on loom and on cpu and compares what comes back.

Each call is made by a worker process, so that a crash or a hang is a finding of the call that
caused it. `python random_calls.py --seconds 600 --first 1000 pool unary` calls for ten minutes.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import itertools
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.line_worker import LineWorker

SECONDS_PER_CALL = 120.0


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the call of a family and a seed did.

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
        script = Path(__file__).with_name("random_calls_worker.py")
        return LineWorker(script, **self._environment)

    def _ask(self, family: str, seed: int, on_cpu_only: bool) -> Answer:
        fields = self._worker.exchange([family, seed, on_cpu_only], SECONDS_PER_CALL)
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", help="only these families of calls")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--known", action="store_true", help="print known differences, too")
    arguments = parser.parse_args()
    caller = Caller()
    unknown = set(arguments.families) - set(caller.families)
    if unknown:
        parser.error(f"no family {', '.join(unknown)}; there are {', '.join(caller.families)}")
    counts: collections.Counter[str] = collections.Counter()
    end = time.monotonic() + arguments.seconds
    families = arguments.families or caller.families
    found: Answer | None = None
    for found in answers(caller, families, itertools.count(arguments.first)):
        counts["calls"] += 1
        counts["refused by both"] += found.refused
        counts["findings"] += bool(found.kind and not found.known)
        counts["known differences"] += bool(found.known)
        if found.kind and (arguments.known or not found.known):
            print(found, flush=True)
        if time.monotonic() > end:
            break
    caller.close()
    print(f"up to seed {found.seed}:", ", ".join(f"{n} {what}" for what, n in counts.items()))
    return min(counts["findings"], 1)


if __name__ == "__main__":
    sys.exit(main())
