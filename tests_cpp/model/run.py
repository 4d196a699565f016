# SPDX-License-Identifier: BSD-3-Clause
"""Check the models in this folder with spin, each as it is and with each of its mutations.

A model says in its head how it is checked, a line for each way:

    run: -DNAME=VALUE...                  spin must find no error in any state
    mutation: -DNAME [-DNAME=VALUE...]: TEXT    spin must find an error that says TEXT

A mutation takes away one thing that the code relies on, so that a model which would accept
anything is not taken for a proof.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Of all states of one model; and how deep a path may be, which is part of that.
MEMORY_MB = 3000
DEPTH = 2_000_000


@dataclass(frozen=True)
class Check:
    """One line of a model's head."""

    model: Path
    defines: tuple[str, ...]
    error: str | None  # what spin must find; None: nothing


@dataclass(frozen=True)
class Outcome:
    """What spin says of it."""

    found: str | None  # None: no error in any state
    states: int
    depth: int
    complete: bool
    trail: str


def checks_of(model: Path) -> list[Check]:
    """All of a model's checks; it must have some of both kinds."""
    checks = []
    for kind, text in re.findall(r"^ \* (run|mutation): (.*)$", model.read_text(), re.MULTILINE):
        defines, _, error = text.partition(":")
        if (kind == "mutation") != bool(error):
            raise ValueError(f"{model.name}: a mutation, and no run, says what is found: {text}")
        checks.append(Check(model, tuple(defines.split()), error.strip() or None))
    if {check.error is None for check in checks} != {True, False}:
        raise ValueError(f"{model.name}: expected lines with 'run:' and with 'mutation:'")
    return checks


def call(*command: str, folder: Path) -> str:
    """Run a command that must succeed, and return what it prints."""
    done = subprocess.run(
        command,
        cwd=folder,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}")
    return done.stdout


def outcome_of(check: Check, folder: Path) -> Outcome:
    """Look at all states of the model, up to the first error."""
    model = shutil.copy(check.model, folder)
    call("spin", "-a", *check.defines, model, folder=folder)
    # SAFETY: no cycles are looked for. COLLAPSE: states are kept in parts, which saves memory.
    options = ["-O2", "-w", "-DSAFETY", "-DCOLLAPSE", f"-DMEMLIM={MEMORY_MB}"]
    call("cc", *options, "-o", "pan", "pan.c", folder=folder)
    text = call("./pan", f"-m{DEPTH}", folder=folder)
    error = re.search(r"^pan:\d+: (.*?) \(at depth", text, re.MULTILINE)
    states = re.search(r"^\s*(\d+) states, stored", text, re.MULTILINE)
    depth = re.search(r"depth reached (\d+)", text)
    if states is None or depth is None or "max search depth too small" in text:
        raise RuntimeError(f"{check.model.name}: spin has not looked at all states:\n{text}")
    incomplete = "Search not completed" in text and error is None
    trail = ""
    if error is not None:
        trail = call("spin", "-t", "-p", *check.defines, model, folder=folder)
    return Outcome(
        error[1] if error else None, int(states[1]), int(depth[1]), not incomplete, trail
    )


def as_expected(check: Check, outcome: Outcome) -> bool:
    """Whether a run found nothing, and a mutation the error that it names."""
    if check.error is None:
        return outcome.found is None and outcome.complete
    return outcome.found is not None and check.error in outcome.found


def main() -> int:
    """Check all models, or those named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="file names; all without")
    parser.add_argument("--trail", action="store_true", help="print the steps to each error")
    arguments = parser.parse_args()
    models = [HERE / name for name in arguments.models] or sorted(HERE.glob("*.pml"))
    failed = 0
    for check in [each for model in models for each in checks_of(model)]:
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            outcome = outcome_of(check, Path(folder))
        good = as_expected(check, outcome)
        failed += not good
        print(
            f"{'ok  ' if good else 'FAIL'} {check.model.name:20} {' '.join(check.defines):60} "
            f"{outcome.states:>9} states, depth {outcome.depth:>6}, "
            f"{time.monotonic() - start:4.1f} s: {outcome.found or 'no error'}",
            flush=True,
        )
        if arguments.trail or (not good and check.error is None):
            print(outcome.trail)
    print(
        f"{failed} of the checks came out otherwise than expected" if failed else "all as expected"
    )
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
