# SPDX-License-Identifier: BSD-3-Clause
"""``python -m torch_loom doctor``: what breaks loom or slows it down here, and what to do about it.

Each check is a function from a :class:`Situation` to findings. None needs the library: it looks at
what the process and the system say, so that it works where loom cannot be loaded.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from ._machine import Machine

__all__ = ["BUSY_SHARE", "Finding", "Severity", "Situation", "examine", "report"]

BUSY_SHARE = 0.25
"""The share of the processors from which on the load of other programs is worth a word."""
_MIB = 1 << 20


class Severity(Enum):
    """How bad a finding is; the value is what the report calls it."""

    BREAKS = "BREAKS"
    SLOW = "slow"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """Something that the user should know.

    Attributes:
        severity (Severity): how bad it is.
        what (str): what was found.
        remedy (str): what to do.
    """

    severity: Severity
    what: str
    remedy: str


@dataclass(frozen=True)
class Situation:
    """What the checks look at.

    Attributes:
        machine (Machine): the system.
        environment (Mapping): the environment variables.
        torch_version (str): of the torch that Python imports.
        torch_folder (Path, optional): its package.
        load_problem (str): why loom could not be loaded, or "".
        start_problem (str): why its devices could not be listed, or "".
        backends (Sequence): the entry points of ``torch.backends``, loom's own included.
        options (Sequence): the names of loom's options; empty if the library is not loaded.
        device_count (int): how many devices there are.
        core_count (int): how many cores all devices have together.
        instruction_set (str): the vectors that kernels use.
        compiles_programs (bool): whether fused programs run as machine code.
    """

    machine: Machine
    environment: Mapping[str, str]
    torch_version: str = ""
    torch_folder: Path | None = None
    load_problem: str = ""
    start_problem: str = ""
    backends: Sequence[str] = ("torch_loom",)
    options: Sequence[str] = field(default=())
    device_count: int = 1
    core_count: int = 1
    instruction_set: str = ""
    compiles_programs: bool = True


def _loading(s: Situation) -> Iterator[Finding]:
    if s.load_problem:
        yield Finding(
            Severity.BREAKS,
            f"loom cannot be loaded with torch {s.torch_version or '(which is missing)'}: "
            f"{s.load_problem}",
            "install a torch-loom for this torch, or a torch that this torch-loom is for",
        )
    if s.start_problem:
        yield Finding(
            Severity.BREAKS, s.start_problem, "change or unset the variable that the message names"
        )


def _other_backends(s: Situation) -> Iterator[Finding]:
    others = sorted(set(s.backends) - {"torch_loom"})
    if others:
        yield Finding(
            Severity.BREAKS if s.load_problem else Severity.NOTE,
            f"another backend starts with torch: {', '.join(others)}. If it is a PrivateUse1 "
            "backend, as loom is, a process can have only one of both",
            "uninstall one of them, or start Python with TORCH_DEVICE_BACKEND_AUTOLOAD=0 and "
            "import the one that you want",
        )


def _huge_pages(s: Situation) -> Iterator[Finding]:
    if s.machine.huge_pages() == "never":
        yield Finding(
            Severity.SLOW,
            "transparent huge pages are off: large tensors cost more page faults and TLB misses",
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        )


def _processor_time(s: Situation) -> Iterator[Finding]:
    limit = s.machine.cpu_limit()
    if limit is None:
        return
    if s.core_count > math.ceil(limit):
        yield Finding(
            Severity.SLOW,
            f"the control group grants the time of {limit:g} processors, and loom uses "
            f"{s.core_count} cores: the system stops them in every period",
            f"set LOOM_THREADS={max(1, math.floor(limit) // s.device_count)}, or give the "
            "container more processors",
        )
    elif limit < s.core_count:
        yield Finding(
            Severity.SLOW,
            f"the control group grants the time of {limit:g} processors: the last of loom's "
            f"{s.core_count} cores is stopped in every period",
            "give the container a whole number of processors",
        )
    elif limit < len(s.machine.online_cpus()):
        yield Finding(
            Severity.NOTE,
            f"the control group grants the time of {limit:g} of "
            f"{len(s.machine.online_cpus())} processors, and loom keeps to it",
            "give the container more processors for more speed",
        )


def _affinity(s: Situation) -> Iterator[Finding]:
    online, allowed = s.machine.online_cpus(), s.machine.allowed_cpus()
    if 0 < len(allowed) < len(online):
        yield Finding(
            Severity.NOTE,
            f"the affinity mask allows {len(allowed)} of {len(online)} processors, and loom uses "
            "no others",
            "start the process without taskset, or ask the scheduler for more processors",
        )


def _hardware_threads(s: Situation) -> Iterator[Finding]:
    allowed = s.machine.allowed_cpus()
    cores = s.machine.core_count(allowed)
    if s.core_count > len(allowed) > 0:
        yield Finding(
            Severity.SLOW,
            f"loom uses {s.core_count} cores, and there are {len(allowed)} processors: its threads "
            "take turns",
            f"unset LOOM_THREADS, or set it to {max(1, cores // s.device_count)}",
        )
    elif s.core_count > cores > 0:
        yield Finding(
            Severity.SLOW,
            f"loom uses {s.core_count} hardware threads of {cores} cores: two threads of a core "
            "share its arithmetic units and caches",
            f"unset LOOM_THREADS, or set it to {max(1, cores // s.device_count)}",
        )
    elif cores < len(allowed):
        yield Finding(
            Severity.NOTE,
            f"{len(allowed)} hardware threads are on {cores} cores (SMT): loom runs one thread a "
            "core",
            "nothing; other programs on the second threads slow loom down",
        )


def _neighbours(s: Situation) -> Iterator[Finding]:
    processors = len(s.machine.online_cpus()) or 1
    load = s.machine.load()
    if load > BUSY_SHARE * processors:
        yield Finding(
            Severity.SLOW,
            f"other programs kept {load:.1f} of {processors} processors busy in the last minute",
            "end them before you measure, or leave them cores: set LOOM_THREADS to what is free",
        )


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+)([KMGT]?)", text)
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[found[2]] if found else 0


def _memory(s: Situation) -> Iterator[Finding]:
    limit = s.machine.memory_limit()
    total = s.machine.memory_bytes()
    usable = min(limit or total, total)
    asked = _bytes(s.environment.get("LOOM_MEMORY_LIMIT", "")) * s.device_count
    if usable and asked > usable:
        yield Finding(
            Severity.BREAKS,
            f"LOOM_MEMORY_LIMIT lets the devices take {asked // _MIB} MiB, and the process may "
            f"have {usable // _MIB} MiB: the system kills it where loom would raise "
            "OutOfMemoryError",
            f"set LOOM_MEMORY_LIMIT to at most {usable // 4 * 3 // s.device_count // _MIB}M",
        )
    elif limit is not None and limit < total:
        yield Finding(
            Severity.NOTE,
            f"the control group grants {limit // _MIB} of {total // _MIB} MiB of memory, and loom "
            "takes at most three quarters of it",
            "give the container more memory if tensors do not fit",
        )


def _openmp_version(library: Path) -> tuple[int, ...]:
    """The newest version of its interface that a libgomp names, such as (5, 0, 1)."""
    try:
        data = library.read_bytes()
    except OSError:
        return ()
    names = re.findall(rb"\0GOMP_(\d+(?:\.\d+)+)(?=\0)", data)
    return max((tuple(map(int, name.split(b"."))) for name in names), default=())


def _openmp(s: Situation) -> Iterator[Finding]:
    loaded = [
        path
        for path in s.machine.loaded_libraries()
        if re.match(r"lib(gomp|iomp5|omp)\b", path.name)
    ]
    if len(loaded) > 1:
        yield Finding(
            Severity.SLOW,
            f"more than one OpenMP runtime is loaded ({', '.join(map(str, loaded))}): their "
            "threads take each other's cores",
            "unset LD_PRELOAD, or import torch before the package that brings the other one",
        )
    own = sorted((s.torch_folder / "lib").glob("libgomp*")) if s.torch_folder else []
    for path in loaded:
        if not own or path in own or not path.name.startswith("libgomp"):
            continue
        if _openmp_version(path) < _openmp_version(own[0]):
            yield Finding(
                Severity.SLOW,
                f"{path} is loaded, an older libgomp than torch's own {own[0]}",
                "unset LD_PRELOAD and LD_LIBRARY_PATH, or import torch first",
            )


# What a value of an option costs, and for what it is meant.
_COSTS = {
    ("LOOM_LAUNCH_BLOCKING", "1"): "every launch waits for its kernel (for debugging)",
    ("LOOM_ERROR_STACKS", "1"): "every launch records where it was called (for debugging)",
    ("LOOM_MEMORY", "isolated"): "the host and the devices share no memory (for tests)",
    ("LOOM_FUSION_JIT", "0"): "fused programs are interpreted (for debugging)",
    ("LOOM_PLACEMENT", "0"): "threads do not make room for each other",
    ("LOOM_FALLBACK", "error"): "operators without a kernel of their own raise (for tests)",
}
_NOT_OPTIONS = re.compile(
    r"LOOM_(BUILD_.*|TEST_.*|CHECKS|CORE_ONLY|LOCK_CHECKS|SANITIZER|STRESS_SECONDS)"
)


def _options(s: Situation) -> Iterator[Finding]:
    given = {name: s.environment[name] for name in sorted(s.environment) if name[:5] == "LOOM_"}
    for name, value in given.items():
        if s.options and name not in s.options and not _NOT_OPTIONS.fullmatch(name):
            yield Finding(
                Severity.NOTE,
                f"{name} is set, and loom has no such option",
                "`python -m torch_loom env` lists the options",
            )
        if (name, value) in _COSTS:
            yield Finding(
                Severity.SLOW, f"{name}={value}: {_COSTS[name, value]}", f"unset {name} otherwise"
            )
    if s.environment.get("LOOM_SIMD"):
        yield Finding(
            Severity.SLOW,
            f"LOOM_SIMD={s.environment['LOOM_SIMD']} narrows the kernels to {s.instruction_set}",
            "unset LOOM_SIMD unless you compare instruction sets",
        )
    blocking = s.environment.get("LOOM_LAUNCH_BLOCKING") == "1"
    if blocking and s.environment.get("LOOM_ERROR_STACKS") == "1":
        yield Finding(
            Severity.NOTE,
            "LOOM_ERROR_STACKS=1 adds nothing to LOOM_LAUNCH_BLOCKING=1: errors are raised where "
            "the operator is called",
            "set one of the two",
        )
    if s.environment.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        yield Finding(
            Severity.NOTE,
            "TORCH_DEVICE_BACKEND_AUTOLOAD=0: `import torch` does not load loom",
            "import torch_loom in the program, or unset the variable",
        )


def _machine_code(s: Situation) -> Iterator[Finding]:
    if not s.compiles_programs and s.environment.get("LOOM_FUSION_JIT") != "0":
        yield Finding(
            Severity.SLOW,
            "fused programs are interpreted: the library was built without its assembler, or the "
            "processor has no AVX2",
            "build with LOOM_JIT=ON (pip install -C cmake.define.LOOM_JIT=ON .)",
        )


_CHECKS: tuple[Callable[[Situation], Iterator[Finding]], ...] = (
    _loading,
    _other_backends,
    _huge_pages,
    _processor_time,
    _affinity,
    _hardware_threads,
    _memory,
    _neighbours,
    _openmp,
    _options,
    _machine_code,
)


def examine(situation: Situation) -> list[Finding]:
    """Return all findings, the worst first."""
    order = list(Severity)
    found = [finding for check in _CHECKS for finding in check(situation)]
    return sorted(found, key=lambda finding: order.index(finding.severity))


def report(findings: Sequence[Finding]) -> str:
    """Return the findings as text."""
    width = max(len(severity.value) for severity in Severity)
    lines = []
    for finding in findings:
        lines.append(f"{finding.severity.value:<{width}}  {finding.what}")
        lines.append(f"{'':<{width}}  -> {finding.remedy}")
    counts = dict.fromkeys(Severity, 0)
    for finding in findings:
        counts[finding.severity] += 1
    if counts[Severity.BREAKS]:
        lines.append(f"{counts[Severity.BREAKS]} of these break loom.")
    elif counts[Severity.SLOW]:
        lines.append(f"Loom works; {counts[Severity.SLOW]} of these cost speed.")
    else:
        lines.append("Loom works, and nothing here slows it down.")
    return "\n".join(lines)
