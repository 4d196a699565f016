# SPDX-License-Identifier: BSD-3-Clause
"""What a process of the fuzzer does: make a case on loom and on cpu, and compare.

`python worker.py` answers each question on standard input, a family and a seed, with what was
found, on standard output. A family is one of calls (calls/families.py), or one of PROGRAMS, of
which a question may have a program in place of the seed, too.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import gc
import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("LOOM_DEVICES", "2")
os.environ.setdefault("LOOM_THREADS", "2")
# The oracle has to be right (tests_py/conftest.py).
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import graph_programs
import stream_programs
import stress_programs
import torch
from calls.call import Call
from calls.families import FAMILIES, random_call
from calls.known import reason_of
from calls.verdict import Judge, run, simplest
from graph_programs import GraphProgram
from random_graphs import random_graph
from random_programs import random_program
from random_streams import random_stream_graph, random_stream_program
from random_stress import random_stress_program

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
        counted: in place of `failure`, tells as well what is to be counted.
        shortest: of what fails, something short.
    """

    make: Callable[[int], Any]
    failure: Callable[[Any], str]
    on_cpu: Callable[[Any], Any]
    tries: int = 1
    counted: Callable[[Any], tuple[str, Mapping[str, int]]] | None = None
    shortest: Callable[[Any, Callable[[Any], bool]], Any] = shrink

    def judged(self, program: Any) -> tuple[str, Mapping[str, int]]:
        return self.counted(program) if self.counted else (self.failure(program), {})


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
    "stress": Programs(
        random_stress_program,
        stress_programs.failure,
        stress_programs.run_on_cpu,
        tries=4,
        counted=stress_programs.judged,
        shortest=stress_programs.shortest,
    ),
    "graphs": Programs(random_graph, graph_programs.failure, compiled_on_cpu),
    "stream graphs": Programs(
        random_stream_graph, graph_programs.failure, compiled_on_cpu, tries=2
    ),
}


def read_program(family: str, text: str) -> Any:
    """The program that is written as repr() does."""
    module = sys.modules[type(PROGRAMS[family].make(0)).__module__]
    return eval(text, {**vars(module), "torch": torch})


def answer(family: str, case: int | str, on_cpu_only: bool) -> dict[str, Any]:
    """`case`: a seed, or a program as text, which is not made shorter. `refused`: cpu raised an
    error, as loom did. `on_cpu_only`: whether cpu survives the case."""
    if family not in PROGRAMS:
        assert isinstance(case, int)
        return answer_of_call(random_call(family, case), on_cpu_only)
    programs = PROGRAMS[family]
    program = read_program(family, case) if isinstance(case, str) else programs.make(case)
    if on_cpu_only:
        programs.on_cpu(program)
        return {}
    text, counts = programs.judged(program)
    if not text:
        return {"counts": counts}
    script = script_of(program, programs) if isinstance(case, int) else program.script()
    return {"kind": "values", "text": text, "script": script, "counts": counts}


def script_of(program: Any, programs: Programs) -> str:
    """The script of the shortest program that is found to fail, and how that fails."""

    def failure(shorter: Any) -> str:
        return next(filter(None, (programs.failure(shorter) for _ in range(programs.tries))), "")

    shortest: RandomProgram = programs.shortest(program, lambda shorter: bool(failure(shorter)))
    return f"# {failure(shortest)}\n{shortest.script()}"


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
    stacks = Path(os.environ.get("LOOM_TEST_STACKS", os.devnull)).open("w")  # noqa: SIM115
    faulthandler.enable(stacks)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    sys.setswitchinterval(1e-4)  # threads of stream programs take turns within a step
    gc.freeze()  # PyTorch's modules are not looked through again for each case
    answers.write(json.dumps([*FAMILIES, *PROGRAMS]) + "\n")
    for line in sys.stdin:
        family, case, on_cpu_only, seconds = json.loads(line)
        stacks.seek(0)
        stacks.truncate()
        faulthandler.dump_traceback_later(seconds, file=stacks)
        answers.write(json.dumps(answer(family, case, on_cpu_only)) + "\n")
        faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    work()
