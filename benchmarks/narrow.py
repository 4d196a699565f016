# SPDX-License-Identifier: BSD-3-Clause
"""Runs a program again as if the processor had AVX2 and nothing beyond it."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

# What makes loom, ATen, oneDNN and MKL behave so: docs/design/simd.md.
AVX2 = {
    "LOOM_SIMD": "avx2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
NARROWED = "LOOM_BENCHMARKS_NARROWED"
SOURCE = Path(__file__).with_name("narrow_cpuid.cpp")


def faults_cpuid() -> bool:
    """Whether Linux can answer CPUID instructions of this process in the processor's place."""
    if platform.machine() != "x86_64":
        return False
    # arch_prctl(2): CPUID is let through, as it is anyway. Processors, virtual machines and
    # sandboxes that cannot do otherwise refuse that, too.
    arch_prctl, set_cpuid, through = 158, 0x1012, 1
    return ctypes.CDLL(None).syscall(arch_prctl, set_cpuid, ctypes.c_long(through)) == 0


def library(folder: Path) -> Path:
    """narrow_cpuid.cpp, compiled."""
    compiler = shutil.which("c++")
    if compiler is None:
        raise SystemExit("--avx2 needs a C++ compiler (c++): engines ask the processor itself")
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / "narrow_cpuid.so"
    command = [compiler, "-O2", "-shared", "-fPIC", str(SOURCE), "-o", str(made)]
    subprocess.run(command, check=True)
    return made.resolve()


def to_avx2(folder: Path) -> None:
    """Returns in a process that is narrowed; before, this program is executed again."""
    if NARROWED in os.environ:
        return
    narrowed = {**os.environ, **AVX2, NARROWED: "avx2"}
    if faults_cpuid():
        preloaded = (str(library(folder)), os.environ.get("LD_PRELOAD", ""))
        narrowed["LD_PRELOAD"] = ":".join(each for each in preloaded if each)
    else:
        print("this processor does not fault CPUID: other engines use all that it has")
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *sys.argv], narrowed)
