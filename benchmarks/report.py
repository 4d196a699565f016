# SPDX-License-Identifier: BSD-3-Clause
"""Tables of a run: ratios, geometric means, the machine's limits, peak memory."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from contenders import CONTENDERS
from measure import duration

Json = dict[str, Any]


@dataclass
class Table:
    """A title, a line that explains, a header and rows of text."""

    title: str
    header: list[str]
    rows: list[list[str]] = field(default_factory=list)
    note: str = ""


def count(number: float) -> str:
    if number < 10:
        return f"{number:.1g}"
    return f"{number:.0f}" if number < 10_000 else f"{number / 1000:.0f}k"


def size_name(size: int) -> str:
    exponent = round(math.log10(size))
    return f"1e{exponent}" if size == 10**exponent else str(size)


def median(result: Json, name: str, host: str, what: str = "seconds") -> float | None:
    measured = result["contenders"].get(name, {}).get(host)
    return statistics.median(measured[what]) if measured and measured[what] else None


def ratio(result: Json, name: str, base: str, host: str) -> float | None:
    """How many times as long as `base` the contender takes."""
    theirs, ours = median(result, name, host), median(result, base, host)
    return None if theirs is None or ours is None else theirs / ours


def spread(result: Json, names: Iterable[str], host: str) -> float | None:
    """The third quartile over the first, of the contender whose repetitions differ most."""
    spreads = []
    for name in names:
        seconds = result["contenders"].get(name, {}).get(host, {}).get("seconds", [])
        if len(seconds) > 2:
            first, _, third = statistics.quantiles(seconds, n=4, method="inclusive")
            spreads.append(third / first)
    return max(spreads, default=None)


def geometric_mean(values: Iterable[float]) -> float:
    return statistics.geometric_mean(values)


def hosts(run: Json) -> list[str]:
    return ["quiet", "busy"] if run["settings"]["beside_busy"] else ["quiet"]


def base_of(run: Json) -> str:
    """What all others are compared with."""
    names = run["settings"]["contenders"]
    return "loom" if "loom" in names else names[0]


def others(run: Json) -> list[str]:
    """The contenders that the base is compared with and that measured anything."""
    return [
        name
        for name in run["settings"]["contenders"]
        if name != base_of(run)
        and any(median(result, name, "quiet") is not None for result in run["results"])
    ]


def best_limits(run: Json) -> tuple[dict[str, float], dict[str, float]]:
    """The best of each kind of all that were measured in the run."""
    good = [limits for limits in run["limits"] if "error" not in limits]

    def best(kind: str) -> dict[str, float]:
        names = dict.fromkeys(name for limits in good for name in limits[kind])
        return {name: max(limits[kind].get(name, 0.0) for limits in good) for name in names}

    return best("bytes_per_second"), best("flops")


def limit_seconds(result: Json, run: Json) -> float | None:
    """The least time: of the memory traffic, unless caches may hold it, or of the products."""
    bandwidths, rates = best_limits(run)
    if not bandwidths:
        return None
    times = []
    if result["bytes"] > run["machine"]["cache_bytes"]:
        times.append(result["bytes"] / max(bandwidths.values()))
    if result["flops"]:
        times.append(result["flops"] / rates.get(result["dtype"], rates["float32"]))
    return max(times, default=None)


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def limits_table(run: Json) -> Table:
    table = Table("The machine's limits, measured in this run", ["limit", "best", "all"])
    for kind, unit in (("bytes_per_second", "GB/s"), ("flops", "GFLOP/s")):
        best = best_limits(run)[0 if kind == "bytes_per_second" else 1]
        for name, value in best.items():
            every = [each[kind].get(name, 0.0) for each in run["limits"] if "error" not in each]
            table.rows.append(
                [
                    f"{name}, {unit}",
                    f"{value / 1e9:.1f}",
                    " ".join(f"{each / 1e9:.1f}" for each in every),
                ]
            )
    table.note = (
        "Bytes read and bytes written both count. `memcpy` is libc's; `copy`, `add`, `read` and "
        "`update` (three arrays in place, one read) are plain loops, the first two with stores "
        "past the caches; all with a thread on every core. The other rows are products of "
        "2048x2048 on stock cpu."
    )
    return table


def group_table(run: Json, group: str, host: str) -> Table:
    base, names = base_of(run), others(run)
    eager = [n for n in (*names, base) if not CONTENDERS[n].compiled and not CONTENDERS[n].streams]
    label = CONTENDERS[base].label
    table = Table(
        f"{group}, {host} host: time of each contender / time of {label}",
        [
            "workload",
            "dtype",
            label,
            *(CONTENDERS[name].label for name in names),
            "spread",
            "limit",
            f"faults: {', '.join(CONTENDERS[name].label for name in eager)}",
        ],
    )
    for result in run["results"]:
        if result["group"] != group:
            continue
        ours = median(result, base, host)
        limit = limit_seconds(result, run)
        title = result["workload"] + (f", {size_name(result['size'])}" if result["size"] else "")
        faults = [median(result, name, host, "faults") for name in eager]
        table.rows.append(
            [
                title,
                result["dtype"],
                "failed" if ours is None else duration(ours),
                *(number(ratio(result, name, base, host)) for name in names),
                number(spread(result, (*names, base), host)),
                "-" if ours is None or limit is None else f"{100 * limit / ours:.0f} %",
                ", ".join("-" if each is None else count(each) for each in faults),
            ]
        )
    table.note = (
        f"More than 1 is good for {label}. `spread` is the third quartile of the repetitions over "
        "the first, of the contender where it is largest: far above 1, something else ran. "
        f"`limit` is the share of the machine's limit that {label} reaches; faults are page faults "
        "of one call."
    )
    return table


def part_of(result: Json) -> str:
    """What results are summed up by: the size, or else the dtype."""
    return size_name(result["size"]) if result["size"] else result["dtype"]


def means_table(run: Json, host: str) -> Table:
    base, names = base_of(run), others(run)
    label = CONTENDERS[base].label
    table = Table(
        f"Geometric means (least), {host} host: time of each contender / time of {label}",
        ["group", "part", "workloads", *(CONTENDERS[name].label for name in names)],
    )
    parts: dict[tuple[str, str], list[Json]] = {}
    for result in run["results"]:
        parts.setdefault((result["group"], part_of(result)), []).append(result)
    for (group, part), results in parts.items():
        cells = []
        for name in names:
            ratios = [r for each in results if (r := ratio(each, name, base, host)) is not None]
            cells.append(f"{geometric_mean(ratios):.2f} ({min(ratios):.2f})" if ratios else "-")
        table.rows.append([group, part, str(len(results)), *cells])
    return table


def memory_table(run: Json) -> Table:
    table = Table("Peak memory of training, MB", ["workload", "dtype", "cpu", "loom", "loom / cpu"])
    for each in run["memory"]:
        peaks = [each.get(name, {}).get("peak") for name in ("cpu", "loom")]
        cells = ["-" if peak is None else f"{peak / 1e6:.1f}" for peak in peaks]
        both = None not in peaks and peaks[0]
        last = f"{peaks[1] / peaks[0]:.3f}" if both else "-"
        table.rows.append([each["workload"], each["dtype"], *cells, last])
    table.note = (
        "The most bytes in tensors from making the model to the end of three steps: of cpu the "
        "profiler's record of its allocator, of loom `max_memory_allocated`."
    )
    return table


def problems_table(run: Json) -> Table:
    """What failed, and what is not what eager cpu computes; one row for each reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for result in run["results"]:
        for name, contender in result["contenders"].items():
            title = f"{result['group']}/{result['workload']}/{part_of(result)}"
            if "error" in contender:
                reasons.setdefault((name, contender["error"][:120]), []).append(title)
            elif not contender["agrees"]:
                why = f"differs from eager cpu by {contender['difference']:.1e}"
                reasons.setdefault((name, why), []).append(title)
    for name, why in run["settings"]["skipped"].items():
        reasons[(name, why[:120])] = ["all"]
    table = Table("Not measured, or not the same result", ["contender", "workloads", "why"])
    for (name, why), titles in reasons.items():
        more = f" and {len(titles) - 1} more" if len(titles) > 1 else ""
        table.rows.append([CONTENDERS[name].label, titles[0] + more, why])
    return table


def tables(run: Json) -> list[Table]:
    groups = list(dict.fromkeys(result["group"] for result in run["results"]))
    result = [limits_table(run)]
    result += [group_table(run, group, host) for host in hosts(run) for group in groups]
    if run["memory"]:
        result.append(memory_table(run))
    result += [means_table(run, host) for host in hosts(run)]
    problems = problems_table(run)
    return [*result, problems] if problems.rows else result


def headline(run: Json) -> list[str]:
    """What the numbers depend on, line by line."""
    machine, versions, settings = run["machine"], run["versions"], run["settings"]
    return [
        f"`{run['command']}`, {run['date']}, {run['minutes']:.0f} minutes"
        + (", interrupted" if run.get("interrupted") else ""),
        f"{machine['cores']} cores of {machine['processor']} ({machine['capability']}), "
        f"{machine['memory_gb']:.0f} GB, last cache {machine['cache_bytes'] >> 20} MB, "
        f"huge pages {machine['huge_pages']}; load before: {machine['load']:.1f}",
        ", ".join(f"{name} {version}" for name, version in versions.items()),
        f"medians of {settings['repetitions']} repetitions in which all contenders take turns",
        *pace_lines(run),
    ]


def pace_lines(run: Json) -> list[str]:
    if "pace" not in run:
        return []
    pace = run["pace"]
    return [
        f"{pace['turns']} turns on a quiet host and {pace['repeated']} repeats of such turns, "
        "because a loop in registers showed before or after one that the processors were held "
        f"back; {pace['slow']} of these turns stand all the same"
    ]


def markdown(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = ["---"] + ["---:"] * (len(table.header) - 1)
    lines = [line(table.header), line(rule), *(line(row) for row in table.rows)]
    note = f"\n{table.note}\n" if table.note else ""
    return f"## {table.title}\n{note}\n" + "\n".join(lines) + "\n"


def page(runs: Sequence[Json], plot: str) -> str:
    """docs/performance.md: what the commands printed, and nothing else. The plot is the first's."""
    lines = [
        "# Performance",
        "",
        "[Benchmarks](../benchmarks/README.md) says what is measured and how. Timings are of this",
        "machine and these runs.",
        "",
        f"![Time of each contender over time of loom]({plot})",
    ]
    for run in runs:
        command, *rest = headline(run)
        lines += ["", f"Printed by {command}:", "", *(f"* {line}" for line in rest), ""]
        lines += [markdown(table) for table in tables(run)]
    return "\n".join(lines)
