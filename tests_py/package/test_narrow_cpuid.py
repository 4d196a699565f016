# SPDX-License-Identifier: BSD-3-Clause
"""benchmarks/narrow.py hides from a process what the processor has beyond AVX2."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import narrow

pytestmark = [
    pytest.mark.skipif(not narrow.faults_cpuid(), reason="the processor does not fault CPUID"),
    pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="another library is preloaded"),
    pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler"),
]


def run(tmp_path: Path, program: str) -> subprocess.CompletedProcess[str]:
    unset = ("ATEN_CPU_CAPABILITY", "LOOM_SIMD")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment["LD_PRELOAD"] = str(narrow.library(tmp_path))
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_programs_see_no_more_than_avx2(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "import torch, torch_loom; "
        "print(torch.backends.cpu.get_cpu_capability(), torch.ones(2, device='loom').sum().item())",
    )
    assert (done.returncode, done.stdout) == (0, "AVX2 2.0\n"), done.stderr


def test_other_faults_end_the_process(tmp_path: Path) -> None:
    assert run(tmp_path, "import ctypes; ctypes.string_at(0)").returncode == -11
