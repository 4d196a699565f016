# SPDX-License-Identifier: BSD-3-Clause
"""Tables of times and ratios with what they say in the mean, on the terminal and as a page."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from pathlib import Path

import limits
import torch
from measure import table

import torch_loom  # noqa: F401

PAGES = Path(__file__).parents[1] / "docs" / "performance"


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


class Comparison:
    """Rows of a table, and ratios of them by what they compare."""

    def __init__(self, header: Sequence[str]) -> None:
        self._header = list(header)
        self._rows: list[list[str]] = []
        self._ratios: dict[str, list[tuple[float, str]]] = {}
        self._notes: list[str] = []

    def ratio(self, what: str, value: float, name: str) -> str:
        """The cell of a ratio, which counts in the mean of `what`."""
        self._ratios.setdefault(what, []).append((value, name))
        return f"{value:.2f}"

    def add(self, cells: Sequence[str]) -> None:
        self._rows.append(list(cells))

    def note(self, text: str) -> None:
        self._notes.append(text)

    def summary(self) -> list[str]:
        lines = []
        for what, ratios in self._ratios.items():
            least, name = min(ratios)
            mean = geometric_mean([ratio for ratio, _ in ratios])
            lines.append(f"{what}: geometric mean {mean:.2f}, least {least:.2f} ({name})")
        return lines + self._notes

    def show(self) -> None:
        table(self._header, self._rows)
        print()
        for line in self.summary():
            print(f"  {line}")

    def write(self, kind: str, title: str, command: str) -> None:
        """Writes a page in docs/performance."""
        simd = torch.loom.get_device_properties(0).simd
        words = "".join(c if c.isalnum() else " " for c in f"{limits.processor()} {simd}").lower()
        rows = [self._header, ["---"] * len(self._header), *self._rows]
        path = PAGES / f"{kind}-{'-'.join(words.split())}.md"
        path.write_text(
            f"# {title} on {limits.processor()}\n\n"
            f"{torch.loom.get_num_threads()} cores, {simd}. Written by `{command}`, "
            f"{datetime.date.today().isoformat()}, torch {torch.__version__}; ratios of more "
            "than 1 are loom's advantage.\n\n"
            + "".join(f"| {' | '.join(row)} |\n" for row in rows)
            + "\n"
            + "".join(f"* {line}\n" for line in self.summary())
        )
        print(path)
