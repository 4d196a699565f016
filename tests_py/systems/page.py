# SPDX-License-Identifier: BSD-3-Clause
"""Run the tests of all systems, the slow ones too, and write docs/systems.md from their results.

A row is a test file: its title is the first line of the file's docstring, its state what its tests
gave. A test marked `limit` shows what a user gets where something does not work; its text is why.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent
PAGE = FOLDER.parents[1] / "docs" / "systems.md"

INTRODUCTION = """\
# What of PyTorch works on loom

Each row is a file in `tests_py/systems/`, which does what a user of that system does and compares
with cpu. Written by `make test-systems` from what the tests gave; "works" means that all of them
passed. A library of C++ operators with every dispatch key, from autograd to the tracer, is
[examples/cpp/custom_ops](../examples/cpp/custom_ops), which has its tests beside it.

| System | State | Shown by |
|---|---|---|
"""

LIMITS = """
## What does not work, and why

In each of these a user gets a clear error, which a test checks.

| System | What does not work |
|---|---|
"""


@dataclass
class System:
    """One test file and what came of its tests."""

    path: Path
    passed: int = 0
    deselected: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        docstring = ast.get_docstring(ast.parse(self.path.read_text())) or self.path.stem
        return docstring.splitlines()[0].rstrip(".")

    @property
    def name(self) -> str:
        return self.title.partition(":")[0]

    @property
    def state(self) -> str:
        if self.failed:
            return "fails"
        if not self.passed and not self.deselected:  # its packages are missing
            return "not run"
        return "works, with limits" if self.limits else "works"


class Results:
    """Pytest plugin that gathers the results by file."""

    def __init__(self) -> None:
        self.systems = {path: System(path) for path in sorted(FOLDER.glob("test_*.py"))}

    def of(self, nodeid: str) -> System:
        return self.systems[FOLDER / Path(nodeid.partition("::")[0]).name]

    @pytest.hookimpl(tryfirst=True)  # before some are deselected
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for marker in item.iter_markers("limit"):
                limits = self.of(item.nodeid).limits
                if marker.args[0] not in limits:
                    limits.append(marker.args[0])

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        for item in items:
            self.of(item.nodeid).deselected += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.nodeid.endswith(".py"):
            self.note(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.note(report)

    def note(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        system = self.of(report.nodeid)
        if report.failed:
            system.failed.append(report.nodeid)
        elif report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
            system.skipped.append(f"{report.nodeid}: {reason}")
        elif getattr(report, "when", None) == "call":
            system.passed += 1


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def page(systems: list[System]) -> str:
    systems = sorted(systems, key=lambda system: system.title.lower())
    text = INTRODUCTION
    for system in systems:
        link = f"[{system.path.name}](../tests_py/systems/{system.path.name})"
        text += f"| {cell(system.title)} | {system.state} | {link} |\n"
    limits = [(system.name, limit) for system in systems for limit in system.limits]
    if limits:
        text += LIMITS + "".join(f"| {cell(name)} | {cell(why)} |\n" for name, why in limits)
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the page is out of date")
    options, rest = parser.parse_known_args()
    os.chdir(FOLDER.parents[1])
    results = Results()
    status = pytest.main(["-q", "-p", "no:cacheprovider", str(FOLDER), *rest], [results])
    systems = list(results.systems.values())
    for system in systems:
        for line in (*system.failed, *system.skipped):
            print(f"{system.state}: {line}")
    if any(system.state in ("fails", "not run") for system in systems):
        return max(int(status), 1)
    text = page(systems)
    if options.check and PAGE.read_text() != text:
        print(f"{PAGE} is out of date: run `make test-systems` and commit it")
        return 1
    PAGE.write_text(text)
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
