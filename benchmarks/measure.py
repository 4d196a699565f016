# SPDX-License-Identifier: BSD-3-Clause
"""How the benchmarks measure: everything interleaved in one run, medians, ratios, no verdicts."""

from __future__ import annotations

import contextlib
import functools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import torch
from pace import Pace

import torch_loom  # noqa: F401

# OpenMP's threads spin for a while after a region: they must not do so beside the next measurement.
SETTLE_SECONDS = 0.01


def cores() -> int:
    return torch.loom.get_device_properties(0).core_count


def describe(title: str) -> None:
    """Prints what the numbers below it depend on."""
    properties = torch.loom.get_device_properties(0)
    load = os.getloadavg()[0]
    print(f"\n{title}")
    print(
        f"  torch {torch.__version__}, cpu with {torch.get_num_threads()} threads, loom with "
        f"{properties.core_count} cores ({properties.simd}); load before: {load:.1f}"
    )


def seconds_per_call(
    call: Callable[[], object],
    finish: Callable[[], object],
    batch: int,
    seconds: float,
    keep: bool = False,
) -> float:
    """Runs `batch` calls and one `finish` until the time is up; the median seconds of one call.

    A batch is not cut short: one is measured even if it takes longer. With `keep` its results are
    alive until it is finished: fusion may leave out what nobody can see.
    """
    call()
    finish()
    times = []
    kept: list[object] = []
    deadline = time.perf_counter() + seconds
    while not times or time.perf_counter() < deadline:
        start = time.perf_counter()
        for _ in range(batch):
            result = call()
            if keep:
                kept.append(result)
            del result
        finish()
        times.append((time.perf_counter() - start) / batch)
        kept.clear()
    return statistics.median(times)


# One for all tables of a program: it learns the pace at first, for two seconds.
the_pace = functools.cache(Pace)


def interleaved(
    variants: dict[str, Callable[[], float]], rounds: int = 5, quiet: bool = True
) -> dict[str, float]:
    """The median over rounds in each of which every variant measures once.

    On a quiet host a measurement beside which the processors were held back is repeated.
    """
    results: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, measure in variants.items():
            time.sleep(SETTLE_SECONDS)
            results[name].append(the_pace().measure(measure) if quiet else measure())
    return {name: statistics.median(values) for name, values in results.items()}


@contextlib.contextmanager
def busy_process() -> Iterator[None]:
    """One foreign process that keeps a core busy."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.2)
        yield
    finally:
        process.kill()
        process.wait()


def duration(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    for row in (header, ["-" * width for width in widths], *rows):
        cells = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  " + "  ".join(cells), flush=True)
