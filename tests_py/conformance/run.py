# SPDX-License-Identifier: BSD-3-Clause
"""Runs PyTorch's op_db, module_db and optim_db on loom against cpu.

Worker processes take one check at a time, so that a crash or a hang is that check's row and the run
goes on. `make conformance` runs all and writes docs/conformance.md.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import fnmatch
import itertools
import queue
import sys
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from known import KNOWN, KNOWN_COMPILED

from support.line_worker import LineWorker

SECONDS_PER_CHECK = 120.0
SECONDS_PER_COMPILED_CHECK = 900.0  # a C++ compiler takes a second or two for each loop nest

Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class Row:
    """What came of one check: an entry of a database, the check, the dtype."""

    key: Key
    status: str  # agrees | differs | broken (the check itself) | crash | hang
    detail: str = ""
    samples: int = 0
    fallbacks: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return self.status == "agrees"


def reason_for(key: Key, known: dict[Key, str] = KNOWN) -> str | None:
    """The listed reason why a check does not agree."""
    for pattern, reason in known.items():
        if all(p in ("*", k) for p, k in zip(pattern, key, strict=True)):
            return reason
    return None


def start_worker(device: str, compiled: bool) -> LineWorker:
    options = ["compiled"] if compiled else []
    # The oracle's own threads would only take cores from the device.
    return LineWorker(Path(__file__).with_name("worker.py"), device, *options, OMP_NUM_THREADS="1")


def serve(
    device: str,
    compiled: bool,
    numbers: queue.SimpleQueue[int],
    wanted: Callable[[Key], bool],
    report: Callable[[Row], None],
) -> list[Row]:
    rows: list[Row] = []
    worker = start_worker(device, compiled)
    try:
        while True:
            try:
                number = numbers.get_nowait()
            except queue.Empty:
                return rows
            if number >= len(worker.first):
                return rows
            key = tuple(worker.first[number])
            if not wanted(key):
                continue
            limit = SECONDS_PER_COMPILED_CHECK if compiled else SECONDS_PER_CHECK
            answer = worker.exchange(number, limit)
            if answer is None:
                row = Row(key, *worker.how_it_ended())
                worker.kill()
                worker.close()
                worker = start_worker(device, compiled)
            else:
                row = Row(key, **{**answer, "fallbacks": tuple(answer["fallbacks"])})
            rows.append(row)
            report(row)
    finally:
        worker.close()


def run(
    wanted: Callable[[Key], bool],
    device: str = "loom",
    workers: int = 2,
    compiled: bool = False,
    report: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """All rows that are wanted, in the order of their keys; `report` sees each as it comes, from
    the thread of its worker.
    """
    numbers: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(100_000):  # more than there are: workers know where the list ends
        numbers.put(number)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        running = [
            pool.submit(serve, device, compiled, numbers, wanted, report) for _ in range(workers)
        ]
        return sorted((row for each in running for row in each.result()), key=lambda row: row.key)


def unexplained(rows: Iterable[Row], known: dict[Key, str] = KNOWN) -> list[Row]:
    return [row for row in rows if not row.good and reason_for(row.key, known) is None]


def stale(rows: list[Row], known: dict[Key, str] = KNOWN) -> list[Key]:
    """Entries of a list of known differences under which everything agrees."""
    bad = [row.key for row in rows if not row.good]
    seen = [row.key for row in rows]
    return [
        pattern
        for pattern in known
        if any(reason_for(key, {pattern: ""}) is not None for key in seen)
        and not any(reason_for(key, {pattern: ""}) is not None for key in bad)
    ]


def operators_with_fallback(rows: Iterable[Row]) -> dict[str, set[str]]:
    """The operators of op_db that took the synchronous fallback in the forward check, and where."""
    result: dict[str, set[str]] = collections.defaultdict(set)
    for row in rows:
        if row.key[0] == "op_db" and row.key[2] == "forward" and row.fallbacks:
            result[row.key[1]].update(row.fallbacks)
    return dict(result)


def part(text: str) -> tuple[int, int]:
    """Two numbers of a text such as 3/40."""
    which, of = (int(number) for number in text.split("/"))
    if not 1 <= which <= of:
        raise argparse.ArgumentTypeError(f"expected a part such as 3/40, got {text}")
    return which, of


def is_in(given: tuple[int, int], key: Key) -> bool:
    """Parts stay what they are while other checks come and go."""
    which, of = given
    return zlib.crc32(" ".join(key).encode()) % of == which - 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these entries; * and ? as in file names")
    parser.add_argument("--check", action="append", help="only this check")
    parser.add_argument("--dtype", action="append", help="only this dtype")
    parser.add_argument(
        "--part", type=part, help="only a part of all checks: 3/40 is the third of 40"
    )
    parser.add_argument("--device", default="loom")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--compiled", action="store_true", help="torch.compile on the device")
    parser.add_argument("--write", action="store_true", help="write docs/conformance.md")
    given = parser.parse_args()
    if given.write and (given.compiled or given.part):
        parser.error("docs/conformance.md is about all of eager code: no --compiled, no --part")

    def wanted(key: Key) -> bool:
        return (
            (not given.names or any(fnmatch.fnmatch(key[1], name) for name in given.names))
            and (not given.check or key[2] in given.check)
            and (not given.dtype or key[3] in given.dtype)
            and (not given.part or is_in(given.part, key))
            # PyTorch's compiled code has no second derivatives, on any device.
            and not (given.compiled and key[2] == "second_gradient")
        )

    known = KNOWN | KNOWN_COMPILED if given.compiled else KNOWN
    start = time.perf_counter()
    reported = itertools.count(1)

    def report(row: Row) -> None:
        count = next(reported)
        if count % 100 == 0:
            seconds = time.perf_counter() - start
            print(f"{count} checks in {seconds:.0f} s", file=sys.stderr, flush=True)
        if not row.good:
            listed = "" if reason_for(row.key, known) is None else " [known]"
            print(f"{' '.join(row.key)}: {row.status}{listed}: {row.detail}", flush=True)

    rows = run(wanted, given.device, given.workers, given.compiled, report)
    seconds = time.perf_counter() - start
    # Compiled code may agree where eager code does not.
    no_longer = stale(rows, KNOWN_COMPILED if given.compiled else KNOWN)
    if given.part:
        no_longer = []  # what does not agree may be in another part
    for pattern in no_longer:
        print(f"{' '.join(pattern)}: agrees, remove it from known.py")
    good = sum(row.good for row in rows)
    samples = sum(row.samples for row in rows)
    print(
        f"{len(rows)} checks of {samples} samples, {good} agree ({100 * good / len(rows):.2f} %), "
        f"{len(unexplained(rows, known))} unexplained, {seconds:.0f} s"
    )
    if given.write:
        from page import write_page

        page = Path(__file__).parents[2] / "docs" / "conformance.md"
        write_page(rows, page, seconds, given.workers)
    return bool(unexplained(rows, known) or no_longer)


if __name__ == "__main__":
    sys.exit(main())
