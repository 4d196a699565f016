# SPDX-License-Identifier: BSD-3-Clause
"""Every operator and module of PyTorch's databases, loom against stock cpu: small calls and large
ones.

Small: the caller's time of the database's first sample, loom's not waited for. Large: the sample
scaled to about a million elements, waited for, its results held; views are left out, since only the
call counts there. Each forward and, where there is a gradient, forward and backward together.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import limits
import torch
from measure import table
from narrow import AVX2
from op_samples import database
from operator_reasons import reason

KINDS = ("small", "small, gradient", "large", "large, gradient")
SECONDS = 120.0
SLOW, VERY_SLOW = 0.95, 0.8  # cpu / loom
COSTLY, MICROSECONDS = 3.0, 30.0  # loom / cpu, and above it

Row = dict[str, Any]


class Worker:
    """A process that measures one operator at a time, and is replaced when it dies or hangs."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()

    def _start(self) -> subprocess.Popen[str]:
        program = Path(__file__).with_name("operators_worker.py")
        process = subprocess.Popen(
            [sys.executable, str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answers = answers = queue.SimpleQueue()

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                answers.put(line)
            answers.put("")

        threading.Thread(target=read, daemon=True).start()
        return process

    def ask(self, question: Sequence[Any]) -> Row:
        if self._process is None:
            self._process = self._start()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            line = self._answers.get(timeout=SECONDS)
        except (queue.Empty, BrokenPipeError):
            line = ""
        if line:
            return json.loads(line)
        self.stop()
        return {"problem": "it died or took too long"}

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def measure(
    wanted: Sequence[str], kinds: Sequence[str], dtype: str | None, autocast: str | None
) -> list[Row]:
    worker, rows = Worker(), []
    infos = database()
    for index, info in enumerate(infos):
        name = info.formatted_name
        if wanted and not any(each in name for each in wanted):
            continue
        if dtype and getattr(torch, dtype) not in info.dtypes:
            continue
        for kind in kinds:
            if "gradient" in kind and not info.supports_autograd:
                continue
            row = {"name": name, "kind": kind} | worker.ask([index, kind, dtype, autocast])
            rows.append(row)
            print(f"[{index}/{len(infos)}] {json.dumps(row)}", file=sys.stderr, flush=True)
    worker.stop()
    return rows


# --- what the rows say -------------------------------------------------------------------------


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def costs(row: Row) -> bool:
    ratio, extra = row["loom"] / row["cpu"], (row["loom"] - row["cpu"]) * 1e6
    return bool(extra > MICROSECONDS or ratio > COSTLY)


def headline(rows: Sequence[Row]) -> list[list[str]]:
    lines = []
    for kind in KINDS:
        good = [row for row in rows if row["kind"] == kind and "cpu" in row]
        if not good:
            continue
        ratios = [row["cpu"] / row["loom"] for row in good]
        if kind.startswith("small"):
            inverse = [1 / ratio for ratio in ratios]
            what = (
                f"{sum(ratio > COSTLY for ratio in inverse)} above {COSTLY:g}, "
                f"{sum((row['loom'] - row['cpu']) * 1e6 > MICROSECONDS for row in good)} cost "
                f"over {MICROSECONDS:g} us more"
            )
            mean, worst = geometric_mean(inverse), max(inverse)
            lines.append(
                [f"{kind}: loom / cpu", str(len(good)), f"{mean:.2f}", f"{worst:.1f}", what]
            )
        else:
            below = sum(ratio < SLOW for ratio in ratios) / len(ratios)
            what = (
                f"{below:.1%} below {SLOW}, {sum(r < VERY_SLOW for r in ratios)} below {VERY_SLOW}"
            )
            mean, worst = geometric_mean(ratios), min(ratios)
            lines.append(
                [f"{kind}: cpu / loom", str(len(good)), f"{mean:.2f}", f"{worst:.2f}", what]
            )
    return lines


def behind(rows: Sequence[Row]) -> list[list[str]]:
    """The calls that cost too much, the worst first."""
    found = []
    for row in rows:
        if "cpu" not in row:
            continue
        ratio = row["cpu"] / row["loom"]
        if costs(row) if row["kind"].startswith("small") else ratio < SLOW:
            found.append((KINDS.index(row["kind"]), ratio, row))
    return [
        [
            row["name"],
            row["kind"],
            str(row["elements"]),
            f"{row['cpu'] * 1e6:.1f}",
            f"{row['loom'] * 1e6:.1f}",
            f"{ratio:.2f}",
            reason(row["name"], row["kind"]),
        ]
        for _, ratio, row in sorted(found, key=lambda each: each[:2])
    ]


HEADLINE = ["what", "operators", "mean", "worst", "how many"]
BEHIND = ["operator", "what", "elements", "cpu, us", "loom, us", "cpu / loom", "why"]


def page(run: dict[str, Any]) -> str:
    def markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
        cells = [header, ["---"] * len(header), *lines]
        return "".join(f"| {' | '.join(line)} |\n" for line in cells)

    return (
        f"# Operators on {run['processor']}\n\n"
        f"Every operator of `op_db` (its first sample, then scaled to {run['elements']:g} "
        f"elements), loom against stock `cpu` in one process, {run['cores']} cores, "
        f"{run['instructions']}. "
        f'Means are geometric. Written by `make bench ARGS="operators --write"`, {run["date"]}, '
        f"torch {run['torch']}.\n\n{markdown(HEADLINE, headline(run['rows']))}\n"
        f"## Behind\n\n{markdown(BEHIND, behind(run['rows']))}"
    )


def file_name(processor: str, instructions: str) -> str:
    words = "".join(c if c.isalnum() else " " for c in f"{processor} {instructions}").lower()
    return "operators-" + "-".join(words.split()) + ".md"


def main() -> None:
    from operators_worker import ELEMENTS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of operators' names; all, if none is given")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--dtype", help="that all operands have, instead of float32 and others")
    parser.add_argument("--autocast", help="the dtype under which all calls run")
    parser.add_argument("--write", action="store_true", help="write a page in docs/performance")
    parser.add_argument("--output", type=Path, help="where the rows go, as JSON")
    given = parser.parse_args()
    properties = torch.loom.get_device_properties(0)
    narrowed = "".join(f", {name}={os.environ[name]}" for name in AVX2 if name in os.environ)
    run = {
        "processor": limits.processor(),
        "cores": properties.core_count,
        "instructions": f"{properties.simd} (cpu {torch.backends.cpu.get_cpu_capability()})"
        + narrowed
        + (f", {given.dtype}" if given.dtype else "")
        + (f", under autocast to {given.autocast}" if given.autocast else ""),
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
        "elements": ELEMENTS,
        "rows": measure(given.names, given.kinds, given.dtype, given.autocast),
    }
    print(f"\n{run['processor']}, {run['cores']} cores, {run['instructions']}")
    table(HEADLINE, headline(run["rows"]))
    table(BEHIND, behind(run["rows"]))
    for row in run["rows"]:
        if "problem" in row:
            print(f"  not measured: {row['name']}, {row['kind']}: {row['problem']}")
    if given.output:
        given.output.write_text(json.dumps(run, indent=1) + "\n")
    if given.write:
        folder = Path(__file__).parents[1] / "docs" / "performance"
        folder.mkdir(exist_ok=True)
        path = folder / file_name(run["processor"], properties.simd)
        path.write_text(page(run))
        print(path)


if __name__ == "__main__":
    main()
