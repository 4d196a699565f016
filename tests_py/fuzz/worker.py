# SPDX-License-Identifier: BSD-3-Clause
"""What a process of the fuzzer does: make a case on loom and on cpu, and compare.

`python worker.py` answers each question on standard input, a family and a seed, with what was
found, on standard output. A family is one of calls (calls/families.py), or programs or graphs.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("LOOM_THREADS", "2")
# The oracle has to be right (tests_py/conftest.py).
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import graph_programs
import torch
from calls.call import Call
from calls.families import FAMILIES, random_call
from calls.known import reason_of
from calls.verdict import Judge, run, simplest
from random_graphs import random_graph
from random_programs import random_program

import torch_loom  # noqa: F401
from support import program_checks
from support.programs import RandomProgram, run_source, shrink


def answer(family: str, seed: int, on_cpu_only: bool) -> dict[str, Any]:
    """`refused`: cpu raised an error, as loom did. `on_cpu_only`: whether cpu survives the case."""
    if family == "programs":
        program = random_program(seed)
        if on_cpu_only:
            run_source(program.source(), "cpu")
            return {}
        return answer_of_program(program, program_checks.failure)
    if family == "graphs":
        torch._dynamo.reset()
        graph = random_graph(seed)
        if on_cpu_only:
            graph_programs.run(graph, "cpu", compiled=True)
            return {}
        return answer_of_program(graph, graph_programs.failure)
    return answer_of_call(random_call(family, seed), on_cpu_only)


def answer_of_program(program: Any, failure: Callable[[Any], str]) -> dict[str, Any]:
    text = failure(program)
    if not text:
        return {}
    shortest: RandomProgram = shrink(program, lambda shorter: bool(failure(shorter)))
    return {"kind": "values", "text": failure(shortest) or text, "script": shortest.script()}


def answer_of_call(call: Call, on_cpu_only: bool) -> dict[str, Any]:
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
    answers.write(json.dumps([*FAMILIES, "programs", "graphs"]) + "\n")
    for line in sys.stdin:
        answers.write(json.dumps(answer(*json.loads(line))) + "\n")


if __name__ == "__main__":
    work()
