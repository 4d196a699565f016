# SPDX-License-Identifier: BSD-3-Clause
"""What a process of the sweep of random calls does: make a call on loom and on cpu, and compare.

`python random_calls_worker.py` answers each question on standard input, a family and a seed, with
what was found, on standard output.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("LOOM_THREADS", "2")
# The oracle has to be right (tests_py/conftest.py).
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import torch
from calls.families import FAMILIES, random_call
from calls.known import reason_of
from calls.verdict import Judge, run, simplest

import torch_loom  # noqa: F401


def answer(family: str, seed: int, on_cpu_only: bool) -> dict[str, Any]:
    """`refused`: cpu raised an error, as loom did. `on_cpu_only`: whether cpu survives the call."""
    call = random_call(family, seed)
    if on_cpu_only:
        run(call, "cpu")
        return {}
    judge = Judge(call)
    finding = judge.finding()
    if finding is None:
        return {"refused": judge.on_cpu.error is not None, "way": call.way}
    reason = reason_of(call, finding)
    if not reason:
        call = simplest(call, finding)
        # A shorter call may show what is known.
        again = Judge(call).finding()
        reason = reason_of(call, again) if again else ""
    return {"kind": finding.kind, "text": finding.text, "known": reason, "script": call.script()}


def work() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    answers.write(json.dumps(list(FAMILIES)) + "\n")
    for line in sys.stdin:
        answers.write(json.dumps(answer(*json.loads(line))) + "\n")


if __name__ == "__main__":
    work()
