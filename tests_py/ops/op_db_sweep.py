# SPDX-License-Identifier: BSD-3-Clause
"""Runs every operator of PyTorch's op_db on loom and on cpu and compares what comes back.

Worker processes take one operator at a time, so that a crash or a hang is the row of the operator
that caused it and the sweep goes on. `python op_db_sweep.py --write` writes docs/op_db.md.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import queue
import sys
import textwrap
import time
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from op_db_differences import DIFFERENCES, NOT_COMPARED
from op_db_worker import SAMPLES, Row

from support.line_worker import LineWorker

# An operator takes milliseconds, compiled some seconds; the first one of a worker also imports
# torch's test suite.
SECONDS_PER_OPERATOR = 120.0


class Worker(LineWorker):
    """A process that answers an operator's index with its row."""

    def __init__(self, device: str, *options: str) -> None:
        super().__init__(Path(__file__).with_name("op_db_worker.py"), device, *options)
        self.entries: list[tuple[str, str]] = [tuple(entry) for entry in self.first]

    def ask(self, index: int) -> Row | None:
        fields = self.exchange(index, SECONDS_PER_OPERATOR)
        return Row(**{**fields, "fallbacks": tuple(fields["fallbacks"])}) if fields else None


def serve(
    device: str, options: Iterable[str], indices: queue.SimpleQueue[int], only: set[str]
) -> list[Row]:
    """Runs operators until `indices` is empty, starting another process after each crash."""
    rows: list[Row] = []
    worker = Worker(device, *options)
    try:
        while True:
            try:
                index = indices.get_nowait()
            except queue.Empty:
                return rows
            if index >= len(worker.entries):
                continue
            name, variant = worker.entries[index]
            if only and name not in only:
                continue
            row = worker.ask(index)
            if row is None:
                row = Row(name, variant, *worker.how_it_ended())
                worker.kill()
                worker.close()
                worker = Worker(device, *options)
            rows.append(row)
    finally:
        worker.close()


def sweep(
    device: str = "loom", workers: int = 2, only: Iterable[str] = (), compiled: bool = False
) -> list[Row]:
    """All rows, in the order of their names."""
    options = ["compiled"] if compiled else []
    indices: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in range(5000):  # more than op_db has: workers know where it ends
        indices.put(index)
    chosen = set(only)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        running = [pool.submit(serve, device, options, indices, chosen) for _ in range(workers)]
        rows = [row for each in running for row in each.result()]
    return sorted(rows, key=lambda row: (row.name, row.variant))


def by_name(rows: Iterable[Row]) -> dict[str, Row]:
    """One row a name: that of its first variant that is not good, else of the first."""
    result: dict[str, Row] = {}
    for row in rows:
        if row.name not in result or (result[row.name].good and not row.good):
            result[row.name] = row
    return result


def agreement(rows: Iterable[Row]) -> float:
    """The share of op_db's names that agree, in percent."""
    names = by_name(rows)
    return 100.0 * sum(row.good for row in names.values()) / len(names)


def without_fallback(rows: list[Row]) -> set[str]:
    """The names that agree, none of whose variants took the fallback."""
    good = {name for name, row in by_name(rows).items() if row.good}
    return good - {row.name for row in rows if row.fallbacks}


# --- the table in docs/op_db.md --------------------------------------------------------------

_INTRODUCTION = """\
# op_db: loom against cpu

Every name of `torch.testing._internal.common_methods_invocations.op_db` runs with its first
{samples} sample inputs on loom and on cpu, in float32 (an operator without float32: in the first of
int64, bool and complex64 that it takes). Compared are results (values within op_db's own
tolerances, dtypes, shapes, strides, device, which arguments they share memory with), errors, and
the arguments after the call. `tests_py/ops/test_op_db.py` does this on every test run and fails
when a row here is no longer true. This page is written by
`python tests_py/ops/op_db_sweep.py --write`.

| names | agree | of these, the same error on both | native only, no fallback |
|---|---|---|---|
| {names} | {agree} ({percent:.1f} %) | {errors} | {native} |
"""


def report(rows: list[Row], differences: dict[str, str], not_compared: dict[str, str]) -> str:
    names = by_name(rows)
    good = [row for row in names.values() if row.good]
    native = without_fallback(rows)
    errors = [row for row in good if row.compared == "error"]
    text = _INTRODUCTION.format(
        samples=SAMPLES,
        names=len(names),
        agree=len(good),
        percent=agreement(rows),
        errors=len(errors),
        native=len(native),
    )
    text += "\n## What does not agree\n\n"
    text += table_of([row for row in names.values() if not row.good], differences)
    text += "\n## Whose values are not compared\n"
    for reason in dict.fromkeys(not_compared.values()):
        same = sorted(name for name, why in not_compared.items() if why == reason)
        text += f"\n{reason[0].upper()}{reason[1:]}:\n{quoted(same)}.\n"
    text += "\n## What raises the same error on both\n\n"
    return text + f"{quoted(row.name for row in errors)}.\n"


def table_of(rows: list[Row], differences: dict[str, str]) -> str:
    if not rows:
        return "Nothing.\n"
    text = "| name | what happens | reason |\n|---|---|---|\n"
    for row in rows:
        detail = row.detail.replace("|", "\\|")
        text += f"| `{row.name}` | {row.status}: {detail} | {differences.get(row.name, '')} |\n"
    return text


def quoted(names: Iterable[str]) -> str:
    return textwrap.fill(", ".join(f"`{name}`" for name in names), 100, break_on_hyphens=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these names of op_db")
    parser.add_argument("--device", default="loom")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--compiled", action="store_true", help="call operators by torch.compile")
    parser.add_argument("--write", action="store_true", help="write docs/op_db.md")
    arguments = parser.parse_args()
    if arguments.write and arguments.compiled:
        parser.error("docs/op_db.md is about eager operators: --write or --compiled, not both")
    start = time.perf_counter()
    rows = sweep(arguments.device, arguments.workers, arguments.names, arguments.compiled)
    for row in rows:
        if not row.good or arguments.names:
            print(f"{row.name} {row.variant} [{row.compared}] {row.status}: {row.detail}")
    seconds = time.perf_counter() - start
    for row in rows:
        if row.fallbacks:
            print(f"{row.name} {row.variant} falls back: {', '.join(row.fallbacks)}")
    count, native = len(by_name(rows)), len(without_fallback(rows))
    print(f"{count} names, {agreement(rows):.2f} % agree, {seconds:.0f} s")
    print(f"{native} of them ({100 * native / count:.1f} %) without a fallback")
    if arguments.write:
        page = Path(__file__).parents[2] / "docs" / "op_db.md"
        page.write_text(report(rows, DIFFERENCES, NOT_COMPARED))


if __name__ == "__main__":
    main()
