# SPDX-License-Identifier: BSD-3-Clause
"""Runs the suite of workloads, then the programs of single questions, each in its own process."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import limits
import narrow
import report
import suite
import torch
from contenders import BEFORE, CONTENDERS, find_jemalloc
from measure import table
from workloads import GROUPS, SIZES, collect

# Programs of single questions, by the names that the command line has for them.
PARTS = {
    "launch": "launch.py",
    "copies": "copies.py",
    "allocation": "allocation.py",
    "host_neutrality": "host_neutrality.py",
    "cuda_names": "cuda_names.py",
    "products": "products.py",
    "shapes": "shapes.py",
    "pooling": "pooling.py",
    "collectives": "collectives.py",
    "ddp": "ddp_step.py",
    "recurrent": "recurrent.py",
    "small": "small_networks.py",
    "cross_entropy": "cross_entropy.py",
    "channels_last": "channels_last.py",
    "language": "language.py",
    "engines": "engines.py",
    "libraries": "libraries.py",
    "operators": "operators.py",
}
# These have pages of their own in docs/performance.
WRITTEN_BY_THEMSELVES = ("engines", "libraries", "operators")
INTERRUPTED = 130  # what shells say of a program that SIGINT has ended
FOLDER = Path(__file__).parent
QUICK_CONTENDERS = ("cpu", "cpu-jemalloc", "loom")

Json = dict[str, Any]


def comma_separated(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def sizes(text: str) -> list[int]:
    return [int(float(each)) for each in comma_separated(text)]


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__)
    result.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"groups of workloads ({', '.join(GROUPS)}) and programs ({', '.join(PARTS)}); "
        "all, if none is named",
    )
    result.add_argument(
        "--only", metavar="TEXT", help="workloads with this in their keys: group/name/size/dtype"
    )
    result.add_argument("--quick", action="store_true", help="few workloads, nothing compiled")
    result.add_argument("--sizes", type=sizes, help="elements of pointwise workloads: 1e5,1e6")
    result.add_argument("--repetitions", type=int, default=7)
    result.add_argument(
        "--contenders", type=comma_separated, help=f"of {','.join(CONTENDERS)}; all, if not given"
    )
    result.add_argument(
        "--before",
        type=Path,
        metavar="FOLDER",
        help="the python folder of another build, which takes turns as `loom-before`",
    )
    result.add_argument(
        "--beside-busy", action="store_true", help="measure beside a busy process, too"
    )
    result.add_argument(
        "--avx2", action="store_true", help="measure as if the processor had nothing beyond AVX2"
    )
    result.add_argument(
        "--output", type=Path, default=FOLDER / "results", help="where JSON and plot go"
    )
    result.add_argument("--write", action="store_true", help="write docs/performance.md")
    result.add_argument(
        "--from",
        dest="sources",
        type=Path,
        nargs="+",
        default=(),
        help="measure nothing: print these JSON files (the page is of all)",
    )
    return result


def choose_contenders(given: argparse.Namespace) -> tuple[list[str], dict[str, str]]:
    """The contenders in the order of the table, and why some are skipped."""
    chosen = given.contenders or (QUICK_CONTENDERS if given.quick else tuple(CONTENDERS))
    skipped: dict[str, str] = {}
    if BEFORE not in os.environ:
        chosen = [name for name in chosen if name != "loom-before"]
    if find_jemalloc() is None:
        for name, contender in CONTENDERS.items():
            if name in chosen and contender.process == "jemalloc":
                skipped[name] = "libjemalloc.so.2 is missing (Debian: libjemalloc2)"
    if "loom-compile" in chosen and (why := why_loom_does_not_compile()):
        skipped["loom-compile"] = why
    return [name for name in CONTENDERS if name in chosen and name not in skipped], skipped


def why_loom_does_not_compile() -> str:
    """Empty if torch.compile makes code for loom."""
    probe = (
        "import torch; x = torch.ones(100, device='loom'); "
        "y = torch.compile(lambda x: torch.relu(x * 2 + 1))(x); "
        "assert y.cpu().eq(3).all()"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    lines = [line for line in done.stderr.splitlines() if "Error" in line]
    return "" if done.returncode == 0 else (lines or ["torch.compile fails on loom"])[-1].strip()


def machine() -> Json:
    huge_pages = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    text = huge_pages.read_text() if huge_pages.exists() else "[unknown]"
    return {
        "processor": limits.processor(),
        "cores": limits.cores(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cache_bytes": limits.cache_bytes(),
        "memory_gb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9,
        "huge_pages": text[text.index("[") + 1 : text.index("]")],
        "load": os.getloadavg()[0],
    }


def versions() -> Json:
    found = {"torch": torch.__version__, "Python": platform.python_version()}
    try:
        found["torch-loom"] = importlib.metadata.version("torch-loom")
    except importlib.metadata.PackageNotFoundError:
        found["torch-loom"] = "not installed"
    return found | {"Linux": platform.release()}


def run_suite(groups: Sequence[str], given: argparse.Namespace) -> Json:
    names, skipped = choose_contenders(given)
    workloads = {
        key: workload
        for key, workload in collect(groups, given.sizes, given.quick).items()
        if given.only is None or given.only in key
    }
    if not workloads:
        raise SystemExit(f"no workload of {', '.join(groups)} has {given.only!r} in its key")
    started = time.perf_counter()
    run: Json = {
        "command": shlex.join(["python", "benchmarks/run.py", *sys.argv[1:]]),
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "settings": {
            "contenders": names,
            "skipped": skipped,
            "repetitions": given.repetitions,
            "beside_busy": given.beside_busy,
        },
    }

    def progress(text: str) -> None:
        print(f"[{time.perf_counter() - started:5.0f} s] {text}", file=sys.stderr, flush=True)

    run |= suite.run(
        workloads.values(),
        names,
        given.repetitions,
        given.beside_busy,
        given.sizes or SIZES,
        progress,
    )
    run["minutes"] = (time.perf_counter() - started) / 60
    return run


def show(run: Json) -> None:
    print()
    for line in report.headline(run):
        print(line)
    for each in report.tables(run):
        print(f"\n{each.title}")
        table(each.header, each.rows)
        if each.note:
            print(f"  {each.note}")


def save(run: Json, folder: Path) -> None:
    """Before anything else is made of it: measuring takes much longer."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"suite-{datetime.datetime.now():%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps(run, indent=1) + "\n")
    print(f"\n{path}")
    if importlib.util.find_spec("matplotlib") is None:
        print("no plot: it needs matplotlib (pip install 'torch-loom[bench]')")
        return
    from plot import draw

    draw(run, path.with_suffix(".svg"))


def publish(runs: Sequence[Json], write: bool) -> None:
    """Prints the tables, and makes the page of them."""
    for run in runs:
        show(run)
    if write:
        from plot import draw

        docs = FOLDER.parent / "docs"
        draw(runs[0], docs / "performance.svg")
        (docs / "performance.md").write_text(report.page(runs, "performance.svg"))
        print(f"{docs / 'performance.md'} and .svg")


def main() -> int:
    arguments = parser()
    given = arguments.parse_args()
    known = (*GROUPS, *PARTS)
    for what, names, of in (
        ("names", given.names, known),
        ("contenders", given.contenders or (), tuple(CONTENDERS)),
        ("sizes", map(str, given.sizes or ()), tuple(map(str, SIZES))),
    ):
        unknown = [name for name in names if name not in of]
        if unknown:
            arguments.error(f"expected {what} of {', '.join(of)}, got {', '.join(unknown)}")
    if given.write and importlib.util.find_spec("matplotlib") is None:
        arguments.error("--write needs matplotlib: pip install 'torch-loom[bench]'")
    if given.avx2:
        narrow.to_avx2(given.output)
    if given.before:
        os.environ[BEFORE] = str(given.before.resolve(strict=True))
    groups = [name for name in GROUPS if name in given.names or not given.names]
    parts = [name for name in PARTS if name in given.names]
    if not given.names and not given.quick and given.only is None:
        parts = list(PARTS)
    if given.sources:
        publish([json.loads(source.read_text()) for source in given.sources], given.write)
        return 0
    if groups:
        run = run_suite(groups, given)
        save(run, given.output)
        publish([run], given.write and not run["interrupted"])
        if run["interrupted"]:
            return INTERRUPTED
    codes = []
    for each in parts:
        options = ["--write"] if given.write and each in WRITTEN_BY_THEMSELVES else []
        codes.append(subprocess.call([sys.executable, FOLDER / PARTS[each], *options]))
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main())
