# SPDX-License-Identifier: BSD-3-Clause
"""Judges what cpu refuses of PyTorch's op_db (refusals.py), in worker processes.

`python refusal_sweep.py [KIND...]` prints what loom refuses late, not at all or in other words.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import dataclasses
import queue
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from refusal_worker import KINDS
from refusals import Finding

from support.line_worker import LineWorker

SECONDS_PER_OPERATOR = 240.0


@dataclasses.dataclass(frozen=True)
class Report:
    """What was seen of an operator."""

    name: str
    kind: str
    refused: int
    findings: tuple[Finding, ...]
    problems: tuple[str, ...]
    crashed: bool = False


class Worker(LineWorker):
    def __init__(self) -> None:
        super().__init__(Path(__file__).with_name("refusal_worker.py"))
        self.names = [".".join(filter(None, entry)) for entry in self.first]

    def ask(self, index: int, kind: str) -> Report | None:
        answer = self.exchange([index, kind], SECONDS_PER_OPERATOR)
        if answer is None:
            return None
        findings = tuple(Finding(*fields) for fields in answer["findings"])
        return Report(
            self.names[index], kind, answer["refused"], findings, tuple(answer["problems"])
        )


def serve(questions: queue.SimpleQueue[tuple[int, str]], only: set[str]) -> list[Report]:
    """Asks until there are no questions, starting another process after each crash."""
    reports: list[Report] = []
    worker = Worker()
    try:
        while True:
            try:
                index, kind = questions.get_nowait()
            except queue.Empty:
                return reports
            if index >= len(worker.names):
                continue
            name = worker.names[index]
            if only and name not in only:
                continue
            report = worker.ask(index, kind)
            if report is None:
                ended = " ".join(worker.how_it_ended())
                report = Report(name, kind, 0, (), (ended,), crashed=True)
                worker.kill()
                worker.close()
                worker = Worker()
            reports.append(report)
    finally:
        worker.close()


def sweep(kinds: Iterable[str], only: Iterable[str] = (), workers: int = 2) -> list[Report]:
    questions: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
    for kind in kinds:
        for index in range(1000):  # more than op_db has: workers know where it ends
            questions.put((index, kind))
    chosen = set(only)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        running = [pool.submit(serve, questions, chosen) for _ in range(workers)]
        reports = [report for each in running for report in each.result()]
    return sorted(reports, key=lambda report: (report.kind, report.name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", help=", ".join(KINDS))
    parser.add_argument("--only", action="append", default=[], help="a name of op_db")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    reports = sweep(arguments.kinds or KINDS, arguments.only, arguments.workers)
    how: collections.Counter[str] = collections.Counter()
    for report in reports:
        for problem in report.problems:
            print(f"{report.name} [{report.kind}] problem: {problem}")
        for finding in report.findings:
            how[finding.how] += 1
            print(f"{report.name} [{report.kind}] {finding.name} | {finding.how}")
            print(f"    loom {finding.found}\n    cpu  {finding.expected}")
    refused = sum(report.refused for report in reports)
    print(f"{refused} refusals of cpu; on loom {dict(how)}")


if __name__ == "__main__":
    main()
