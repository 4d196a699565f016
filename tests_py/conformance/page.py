# SPDX-License-Identifier: BSD-3-Clause
"""docs/conformance.md: what a whole conformance run found, by operator and check."""

from __future__ import annotations

import collections
from collections.abc import Iterable
from pathlib import Path

from run import Row, operators_with_fallback, reason_for

INTRODUCTION = """\
# Conformance: loom against cpu

PyTorch's own databases `op_db`, `module_db` and `optim_db` run on loom and on cpu: all samples
forward, into `out=`, in place, from non-contiguous and from empty inputs, with inputs that are
errors, under `vmap`, with first and second gradients and in forward mode, in float32, float64,
bfloat16, float16, int64, bool and complex64 where cpu supports the operator in that dtype. Compared
are values, dtypes, shapes, strides, devices, types of exceptions, and the arguments afterwards.
Written by `make conformance` (torch {torch}); {seconds:.0f} s in {workers} processes.

| | checks | samples | agree |
|---|---|---|---|
{summary}

Of the {operators} operators of `op_db`, {native} ({percent:.1f} %) run all their samples without
the synchronous fallback.
"""


def summary(rows: list[Row]) -> str:
    lines = []
    for database in ("op_db", "module_db", "optim_db", "all"):
        own = [row for row in rows if database in (row.key[0], "all")]
        if not own:
            continue
        good = sum(row.good for row in own)
        lines.append(
            f"| {database} | {len(own)} | {sum(row.samples for row in own)} "
            f"| {good} ({100 * good / len(own):.2f} %) |"
        )
    return "\n".join(lines)


def differences(rows: Iterable[Row]) -> str:
    bad = [row for row in rows if not row.good]
    if not bad:
        return "Nothing.\n"
    text = "| entry | check | dtype | what happens | reason |\n|---|---|---|---|---|\n"
    for row in bad:
        _, name, check, dtype = row.key
        detail = row.detail.replace("|", "\\|")
        reason = reason_for(row.key) or "not explained"
        text += f"| `{name}` | {check} | {dtype} | {row.status}: {detail} | {reason} |\n"
    return text


def fallbacks(rows: Iterable[Row]) -> str:
    text = "| operator | what falls back |\n|---|---|\n"
    for name, taken in sorted(operators_with_fallback(rows).items()):
        text += f"| `{name}` | {', '.join(f'`{each}`' for each in sorted(taken))} |\n"
    return text


def table(rows: list[Row]) -> str:
    """One line an entry: per check, how many dtypes agree."""
    checks = list(dict.fromkeys(row.key[2] for row in rows))
    cells: dict[str, dict[str, list[bool]]] = collections.defaultdict(
        lambda: collections.defaultdict(list)
    )
    for row in rows:
        cells[row.key[1]][row.key[2]].append(row.good)
    text = "| entry | " + " | ".join(checks) + " |\n" + "|---" * (len(checks) + 1) + "|\n"
    for name in sorted(cells):
        line = [
            f"{sum(cells[name][check])}/{len(cells[name][check])}" if cells[name][check] else ""
            for check in checks
        ]
        text += f"| `{name}` | " + " | ".join(line) + " |\n"
    return text


def write_page(rows: list[Row], path: Path, seconds: float, workers: int) -> None:
    """Write the page of a whole run."""
    import torch

    forward = {row.key[1] for row in rows if row.key[0] == "op_db" and row.key[2] == "forward"}
    native = len(forward) - len(operators_with_fallback(rows))
    text = INTRODUCTION.format(
        torch=torch.__version__,
        seconds=seconds,
        workers=workers,
        summary=summary(rows),
        operators=len(forward),
        native=native,
        percent=100 * native / max(1, len(forward)),
    )
    text += "\n## What does not agree\n\n" + differences(rows)
    text += "\n## What takes the fallback, and where\n\n" + fallbacks(rows)
    text += "\n## All checks\n\nDtypes that agree, of those checked.\n"
    for database in ("op_db", "module_db", "optim_db"):
        own = [row for row in rows if row.key[0] == database]
        if own:
            text += f"\n### {database}\n\n" + table(own)
    path.write_text(text)
