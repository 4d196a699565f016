# SPDX-License-Identifier: BSD-3-Clause
"""Random programs keep loom's promises while commands fail, memory runs out and the process forks.

A fixed batch runs by default. ``LOOM_TEST_STRESS=5000`` runs more, ``LOOM_TEST_STRESS=700:900``
those of these seeds. A failure prints the shortest program that was found to fail, as a script.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import stress_programs
import torch
from random_stress import random_stress_program
from run import Caller
from stress_programs import (
    HOST,
    Argument,
    Lane,
    Ranks,
    StreamStep,
    StressProgram,
    failure,
    judged,
    reduced,
    shortest,
)

QUICK, USUAL = range(16), range(16, 400)
BATCHES = 2


def seeds() -> range:
    chosen = os.environ.get("LOOM_TEST_STRESS", "")
    first, _, last = chosen.rpartition(":")
    return range(int(first or 0), int(last)) if chosen else USUAL


def check(seed: int, **changes: Any) -> None:
    program = replace(random_stress_program(seed), **changes)
    wrong = failure(program)
    if wrong:
        found = shortest(program, lambda shorter: any(failure(shorter) for _ in range(4)))
        pytest.fail(f"seed {seed}: {wrong}\n{found.script()}", pytrace=False)


def test_random_programs_keep_the_promises() -> None:
    for seed in QUICK:
        check(seed, processes=False)  # which take seconds to start


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_more_random_programs_keep_the_promises(batch: int) -> None:
    for seed in seeds()[batch::BATCHES]:
        check(seed)


def test_a_seed_always_makes_the_same_program() -> None:
    assert random_stress_program(7) == random_stress_program(7)
    assert random_stress_program(7) != random_stress_program(8)


def test_each_kind_of_event_is_met() -> None:
    met: Counter[str] = Counter()
    for seed in range(60):
        met.update(stress_programs.events_of(random_stress_program(seed)))
    assert [event for event, count in met.items() if not count] == []
    assert set(met) == {*stress_programs.stress_vocabulary.EVENTS, "copies between devices"}


def test_a_program_can_be_read_back() -> None:
    program = random_stress_program(3)
    assert eval(repr(program), {**vars(stress_programs), "torch": torch}) == program


# --- what is wrong is found --------------------------------------------------------------------


def a_program(*steps: StreamStep, lanes: int = 2) -> StressProgram:
    return StressProgram(
        0,
        steps,
        arguments=(Argument("a0", "make((4, 5), torch.float32, 1)"),),
        exact=frozenset({"a0", "v0", "v1", "d0"}),
        sizes=({},) * 3,
        lanes=lanes,
    )


def made(code: str, name: str = "v0", **more: Any) -> StreamStep:
    return StreamStep(f"{name} = {code}", name, ("a0",), **more)


def host(code: str, *uses: str) -> StreamStep:
    return StreamStep(code, "", uses, stream=HOST)


FAILING = made("spoil(a0.index_select(0, bad))")
LOOK = StreamStep("see(v0 * 2)", "", ("v0",), waits=True)


def test_a_failed_value_and_what_is_made_of_it_raise() -> None:
    wrong, counts = judged(a_program(FAILING, LOOK))
    assert wrong == ""
    assert counts["failed values"] == 2 * 2  # v0 and a sight of each lane


def test_a_difference_of_lanes_is_found() -> None:
    wrong = failure(a_program(made("a0 + ('e0_1' in globals() or s[0] != s[1])")))
    assert wrong.startswith("threads: lane 0: v0: 20 of 20 elements")


def test_a_difference_from_cpu_is_found() -> None:
    assert failure(a_program(made("a0 + (other != 'cpu')"))).startswith("step by step, lane 0: v0")


def test_a_value_that_should_have_failed_is_found() -> None:
    """`spoil()` says so of what is as it should be on loom."""
    wrong = failure(a_program(made("spoil(a0.clone())")))
    assert wrong == "step by step, lane 0: v0 was seen, which depends on what failed"
    look = failure(a_program(StreamStep("see(spoil(a0.clone()))", "", ("a0",), waits=True)))
    assert look.endswith("see(spoil(a0.clone())), was seen, which depends on what failed")


def test_a_failure_that_is_not_the_programs_is_found() -> None:
    """The command fails where there are streams only."""
    wrong = failure(a_program(made("a0.index_select(0, bad * int(s[0] != s[1]) % (1 << 41))")))
    assert wrong == "threads: lane 0: v0: failed instead of a value"


EVENTS = ["too_much()", "brim()", "torch.loom.empty_cache()", "note()", "end_group()"]


@pytest.mark.parametrize("event", EVENTS)
def test_events_change_no_value(event: str) -> None:
    assert failure(a_program(made("a0 * 3"), host(event), LOOK)) == ""


def test_an_allocation_that_is_not_refused_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stress_programs, "LIMIT", 1 << 20)
    monkeypatch.setattr(torch.loom, "set_per_process_memory_fraction", lambda *_: None)
    assert "bytes were allocated" in failure(a_program(host("too_much()")))


def test_a_child_computes_on_cpu_and_may_not_use_loom() -> None:
    assert failure(a_program(host("fork(lambda: a0 + 1)", "a0"))) == ""
    wrong = failure(a_program(host("fork(lambda: torch.ones(1))")))
    assert wrong.endswith("a forked child ended with 0: loom may be used")
    assert "ended with 3" in failure(a_program(host("fork(lambda: __import__('os')._exit(3))")))


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_lanes_are_the_ranks_of_a_group(lanes: int) -> None:
    operations = ["broadcast(a0, -1)", "all_gather(a0)", "exchange(a0)", "all_reduce(a0)"]
    steps = [made(code, f"v{n}") for n, code in enumerate([*operations, "reduce_scatter(a0)"])]
    assert failure(a_program(*steps, lanes=lanes)) == ""


def test_a_rank_that_gets_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ranks, "exchange", lambda self, x: x)
    assert failure(a_program(made("exchange(a0)"))).startswith("threads: lane 0: v0")


def test_half_types_are_added_in_float32() -> None:
    parts = [torch.tensor([256.0]).bfloat16(), *[torch.tensor([1.0]).bfloat16()] * 2]
    assert reduced(parts, "SUM").item() == 258  # and 256 if each sum is rounded


def test_a_copy_to_the_host_that_fails_is_told() -> None:
    code = "torch.empty(2, 5, pin_memory=True).copy_(v0, non_blocking=True)"
    copy = StreamStep(f"h1 = {code}", "h1", ("v0",), stream=1)
    assert failure(a_program(FAILING, copy)) == ""


def test_a_copy_to_the_host_of_whose_failure_nobody_is_told_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempt = Lane.attempt

    def silent(self: Lane, code: str) -> bool:
        told = self.told
        done = attempt(self, code)
        self.told = told
        return done

    monkeypatch.setattr(Lane, "attempt", silent)
    monkeypatch.setattr(stress_programs, "drain", quiet(stress_programs.drain))
    code = "torch.empty(2, 5, pin_memory=True).copy_(v0, non_blocking=True)"
    copy = StreamStep(f"h1 = {code}", "h1", ("v0",), stream=1)
    assert "nobody said that h1 =" in failure(a_program(FAILING, copy))


def quiet(drain: Callable[[], int]) -> Callable[[], int]:
    """In threads nobody is told."""
    import threading

    def call() -> int:
        raised = drain()
        return raised if threading.current_thread() is threading.main_thread() else 0

    return call


def test_the_shortest_program_has_few_lanes_and_steps() -> None:
    program = a_program(made("a0 + 1", "v1"), made("spoil(a0.clone())"), lanes=3)
    found = shortest(program, lambda shorter: bool(failure(shorter)))
    assert found == replace(a_program(program.steps[1]), lanes=1)
    assert "print(failure(program))" in found.script()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("code", "kind", "stack"),
    [
        ("__import__('os').abort()", "crash", "Fatal Python error: Aborted"),
        ("__import__('threading').Event().wait()", "hang", "Timeout"),
    ],
)
def test_how_a_process_ended_is_told_with_its_stacks(code: str, kind: str, stack: str) -> None:
    caller = Caller()
    program = a_program(made("a0 * 2"), host(f"s[0] == s[1] or {code}"), lanes=1)
    found = caller.ask_for("stress", repr(program), patience=10.0)
    caller.close()
    assert found.kind == kind
    assert stack in found.text
    assert "stress_programs.py" in found.text
