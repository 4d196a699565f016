# SPDX-License-Identifier: BSD-3-Clause
"""What a process of the fuzzer does: make a case on loom and on cpu, and compare.

`python worker.py` answers each question on standard input, a family and a seed, with what was
found, on standard output. A family is one of calls (calls/families.py), or one of PROGRAMS.
"""

from __future__ import annotations

import dataclasses
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
import stream_programs
import torch
from calls.call import Call
from calls.families import FAMILIES, random_call
from calls.known import reason_of
from calls.verdict import Judge, run, simplest
from graph_programs import GraphProgram
from random_graphs import random_graph
from random_programs import random_program
from random_streams import random_stream_graph, random_stream_program

import torch_loom  # noqa: F401
from support import program_checks
from support.programs import RandomProgram, run_source, shrink


@dataclasses.dataclass(frozen=True)
class Programs:
    """A family of programs.

    Attributes:
        make: the program of a seed.
        failure: what is wrong with one, or nothing.
        on_cpu: runs one where there is no loom.
        tries: how often a shorter program has to succeed, where timing decides.
    """

    make: Callable[[int], Any]
    failure: Callable[[Any], str]
    on_cpu: Callable[[Any], Any]
    tries: int = 1


def compiled_on_cpu(program: GraphProgram) -> Any:
    return graph_programs.run(program, "cpu", compiled=True)


PROGRAMS = {
    "programs": Programs(
        random_program, program_checks.failure, lambda program: run_source(program.source(), "cpu")
    ),
    "streams": Programs(
        random_stream_program,
        stream_programs.failure,
        lambda program: stream_programs.step_by_step(program, "cpu", 0),
        tries=3,
    ),
    "graphs": Programs(random_graph, graph_programs.failure, compiled_on_cpu),
    "stream graphs": Programs(
        random_stream_graph, graph_programs.failure, compiled_on_cpu, tries=2
    ),
}


def answer(family: str, seed: int, on_cpu_only: bool) -> dict[str, Any]:
    """`refused`: cpu raised an error, as loom did. `on_cpu_only`: whether cpu survives the case."""
    if family not in PROGRAMS:
        return answer_of_call(random_call(family, seed), on_cpu_only)
    programs = PROGRAMS[family]
    program = programs.make(seed)
    if on_cpu_only:
        programs.on_cpu(program)
        return {}
    return answer_of_program(program, programs)


def answer_of_program(program: Any, programs: Programs) -> dict[str, Any]:
    def failure(shorter: Any) -> str:
        return next(filter(None, (programs.failure(shorter) for _ in range(programs.tries))), "")

    text = programs.failure(program)
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
    sys.setswitchinterval(1e-4)  # threads of stream programs take turns within a step
    answers.write(json.dumps([*FAMILIES, *PROGRAMS]) + "\n")
    for line in sys.stdin:
        answers.write(json.dumps(answer(*json.loads(line))) + "\n")


if __name__ == "__main__":
    work()
