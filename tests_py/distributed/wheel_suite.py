# SPDX-License-Identifier: BSD-3-Clause
"""Run PyTorch's own test suite of torch.distributed with lccl, on loom.

A test that does not pass has to be listed in wheel_known.py, and one that is listed must not pass.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import io
import logging
import re
import sys
import time
import unittest
from dataclasses import dataclass

from wheel_known import KNOWN
from wheel_source import WheelSuite


@dataclass(frozen=True)
class Row:
    """What came of a test."""

    name: str
    status: str  # pass | fail | skip
    detail: str = ""
    seconds: float = 0.0

    @property
    def error(self) -> str:
        """The first error of a rank, in a line, that is more than that another rank has gone."""
        if self.status != "fail":
            return self.detail
        lines = [line.strip() for line in self.detail.splitlines()]
        errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
        own = [line for line in errors if "exited with error" not in line]
        causes = [line for line in own if "has left the group" not in line]
        return next(iter([*causes, *own]), lines[-1])


def names() -> list[str]:
    return unittest.defaultTestLoader.getTestCaseNames(WheelSuite)


def run_one(name: str) -> Row:
    """Run a test, and keep to ourselves what it prints."""
    before = sys.stdout
    sys.stdout = io.StringIO()
    start = time.perf_counter()
    result = unittest.TestResult()
    try:
        WheelSuite(name).run(result)
    finally:
        sys.stdout = before
    seconds = time.perf_counter() - start
    for _, text in (*result.errors, *result.failures):
        return Row(name, "fail", text, seconds)
    for _, text in result.skipped:
        return Row(name, "skip", text, seconds)
    return Row(name, "pass", "", seconds)


def unexplained(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.status != "pass" and row.name not in KNOWN]


def stale(rows: list[Row]) -> list[str]:
    """Listed tests that pass, and names that are no test's."""
    passed = [row.name for row in rows if row.status == "pass" and row.name in KNOWN]
    return passed + sorted(set(KNOWN) - set(names()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", help="only these; * and ? as in file names")
    parser.add_argument("--verbose", action="store_true", help="all that a failure says")
    given = parser.parse_args()
    logging.getLogger("torch.testing").propagate = False  # it says what the rows say
    rows = []
    for name in names():
        if given.tests and not any(fnmatch.fnmatch(name, each) for each in given.tests):
            continue
        row = run_one(name)
        rows.append(row)
        said = row.detail if given.verbose else row.error
        listed = f"  [{KNOWN[name]}]" if name in KNOWN else ""
        print(f"{row.status} {name} ({row.seconds:.1f} s){listed} {said}".rstrip(), flush=True)
    counts = collections.Counter(row.status for row in rows)
    surprises = unexplained(rows)
    no_longer = stale(rows)
    for row in surprises:
        print(f"not listed: {row.name} ({row.status})")
    for name in no_longer:
        print(f"listed, and passes or is no test: {name}")
    print(", ".join(f"{counts[status]} {status}" for status in ("pass", "fail", "skip")))
    return int(bool(surprises or no_longer))


if __name__ == "__main__":
    sys.exit(main())
