# SPDX-License-Identifier: BSD-3-Clause
"""The picture of a run: by size for what has sizes, by workload for the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import report
from contenders import CONTENDERS

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import ScalarFormatter

Json = dict[str, Any]

COLOURS = {
    "cpu": "tab:blue",
    "cpu-jemalloc": "tab:cyan",
    "compile": "tab:red",
    "compile-jemalloc": "tab:orange",
    "loom-compile": "tab:green",
    "loom-graph": "tab:olive",
    "stream": "black",
}


def by_size(axes: Axes, results: list[Json], names: list[str], base: str) -> None:
    """Geometric means over the elements, and the range of all workloads."""
    for name in names:
        ratios: dict[int, list[float]] = {}
        for result in results:
            value = report.ratio(result, name, base, "quiet")
            if value is not None:
                ratios.setdefault(result["size"], []).append(value)
        if ratios:
            sizes = sorted(ratios)
            means = [report.geometric_mean(ratios[size]) for size in sizes]
            colour = COLOURS.get(name)
            axes.plot(sizes, means, "o-", color=colour, label=CONTENDERS[name].label)
            low, high = ([of(ratios[size]) for size in sizes] for of in (min, max))
            axes.fill_between(sizes, low, high, color=colour, alpha=0.12, linewidth=0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xlabel("elements (lines: geometric means; bands: all workloads)")
    axes.yaxis.set_major_formatter(ScalarFormatter())


def by_workload(axes: Axes, results: list[Json], names: list[str], base: str) -> None:
    short = {"float32": "fp32", "bfloat16": "bf16"}
    labels = [f"{each['workload']}, {short.get(each['dtype'], each['dtype'])}" for each in results]
    for name in names:
        points = [
            (value, row)
            for row, each in enumerate(results)
            if (value := report.ratio(each, name, base, "quiet")) is not None
        ]
        if points:
            values, places = zip(*points, strict=True)
            colour = COLOURS.get(name)
            axes.scatter(values, places, s=18, color=colour, label=CONTENDERS[name].label)
    axes.set_yticks(range(len(labels)), labels, fontsize=7)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.xaxis.set_major_formatter(ScalarFormatter())


def draw(run: Json, path: Path) -> None:
    """Writes the plot as SVG."""
    mpl.rcParams["svg.hashsalt"] = "loom"  # the same run gives the same file
    base, names = report.base_of(run), report.others(run)
    groups: dict[str, list[Json]] = {}
    for result in run["results"]:
        groups.setdefault(result["group"], []).append(result)
    heights = [
        3.5 if members[0]["size"] else 0.9 + 0.16 * len(members) for members in groups.values()
    ]
    figure, axes = plt.subplots(
        len(groups),
        figsize=(9, sum(heights) + 0.5 * len(groups)),
        height_ratios=heights,
        layout="constrained",
        squeeze=False,
    )
    for (group, members), each in zip(groups.items(), axes[:, 0], strict=True):
        (by_size if members[0]["size"] else by_workload)(each, members, names, base)
        label = CONTENDERS[base].label
        each.set_title(f"{group}: time / time of {label} (more than 1: {label} is faster)", size=9)
        each.grid(alpha=0.3)
        if each.get_legend_handles_labels()[0]:
            each.legend(fontsize=7)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
