# SPDX-License-Identifier: BSD-3-Clause
"""Who is measured: a device, eager or compiled, in processes that differ in malloc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Contender:
    """One column of the tables."""

    label: str
    process: str
    device: str
    compiled: bool = False
    replayed: bool = False  # captured in a graph once
    streams: bool = False  # moves as many bytes, and computes nothing
    groups: tuple[str, ...] = ()  # of workloads that it is measured with; all, if none is named

    def takes(self, group: str) -> bool:
        return not self.groups or group in self.groups


CONTENDERS: dict[str, Contender] = {
    "cpu": Contender("cpu", "stock", "cpu"),
    "cpu-jemalloc": Contender("cpu+jemalloc", "jemalloc", "cpu"),
    "compile": Contender("compiled", "stock", "cpu", compiled=True),
    "compile-jemalloc": Contender("compiled+jemalloc", "jemalloc", "cpu", compiled=True),
    "loom": Contender("loom", "loom", "loom"),
    "loom-graph": Contender("loom replayed", "loom", "loom", replayed=True, groups=("inference",)),
    "loom-compile": Contender("loom+compiled", "loom", "loom", compiled=True),
    "loom-before": Contender("loom before", "before", "loom"),
    "stream": Contender("stream", "stream", "cpu", streams=True, groups=("optimizer",)),
}

# The folder of another build's Python package: what `loom-before` measures. It is a variable of the
# environment because the processes are started far from the command line.
BEFORE = "LOOM_BENCHMARK_BEFORE"

# Freed memory is never given back, and huge pages hold it: with jemalloc's defaults calls fault it
# in again. The last setting lets a large free extent serve a small tensor: without it a program
# that frees many tensors at once takes new memory every time, and grows.
MALLOC_CONF = (
    "dirty_decay_ms:-1,muzzy_decay_ms:-1,thp:always,metadata_thp:auto,lg_extent_max_active_fit:40"
)

_FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/local/lib")


def find_jemalloc() -> Path | None:
    """libjemalloc.so.2, where Debian's libjemalloc2 and others put it."""
    for folder in map(Path, _FOLDERS):
        for pattern in ("libjemalloc.so.2", "*-linux-gnu/libjemalloc.so.2"):
            found = sorted(folder.glob(pattern))
            if found:
                return found[0]
    return None


def environment(process: str) -> dict[str, str]:
    """What is added to the environment of the process of this name."""
    # Compiles in the process itself: a pool of compilers would stay beside the measurements.
    result = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
    if process == "jemalloc":
        library = find_jemalloc()
        if library is None:
            raise FileNotFoundError("libjemalloc.so.2 (Debian: libjemalloc2)")
        result |= {"LD_PRELOAD": str(library), "MALLOC_CONF": MALLOC_CONF}
    if process == "before":
        result["PYTHONPATH"] = os.environ[BEFORE]
    return result
