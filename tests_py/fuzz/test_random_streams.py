# SPDX-License-Identifier: BSD-3-Clause
"""Random programs give the same bits queued on streams, in threads and in graphs as step by step.

A fixed batch runs by default. ``LOOM_TEST_STREAMS=5000`` runs more, ``LOOM_TEST_STREAMS=700:900``
those of these seeds. A failure prints the shortest program that was found to fail, as a script.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import stream_programs
from graph_programs import Argument
from random_streams import Generator, random_stream_program
from stream_programs import (
    HOST,
    STREAMS,
    Placement,
    StreamProgram,
    StreamStep,
    capturable,
    failure,
    failures,
    placed,
)

from support.programs import shrink
from torch_loom import _C

QUICK, USUAL = range(40), range(40, 600)
BATCHES = 4


def seeds() -> range:
    chosen = os.environ.get("LOOM_TEST_STREAMS", "")
    first, _, last = chosen.rpartition(":")
    return range(int(first or 0), int(last)) if chosen else USUAL


def check(seed: int) -> None:
    program = random_stream_program(seed)
    if failure(program):
        shortest = shrink(program, lambda shorter: any(failure(shorter) for _ in range(3)))
        pytest.fail(f"seed {seed}: {failure(shortest)}\n{shortest.script()}", pytrace=False)


def test_random_programs_do_not_depend_on_how_they_are_queued() -> None:
    for seed in QUICK:
        check(seed)


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_more_random_programs_do_not_depend_on_how_they_are_queued(batch: int) -> None:
    for seed in seeds()[batch::BATCHES]:
        check(seed)


def test_a_seed_always_makes_the_same_program() -> None:
    assert random_stream_program(7) == random_stream_program(7)
    assert random_stream_program(7) != random_stream_program(8)


def test_no_step_writes_into_an_empty_tensor_that_it_may_resize() -> None:
    """Views of it share the storage, as a graph that was captured before does."""
    generator = Generator(3)
    generator.add_tensor(Argument("a0", "make((0, 3), torch.float32, 1)"))
    assert not generator.add_of("writes", "torch.add({y}, {z}, out={x})")
    assert not generator.add_of("out", "torch.neg({y}, out={x})")
    assert generator.add_of("writes", "{x}.add_({y})")


def test_most_programs_run_in_every_way() -> None:
    """What a graph refuses, and programs of nothing but the host, test little."""
    ran = Counter()
    for seed in QUICK:
        ran.update(way for way, wrong in failures(random_stream_program(seed)).items() if not wrong)
    assert len(ran) == 6
    assert all(count > 0.6 * len(QUICK) for count in ran.values()), ran


def a_program(*steps: StreamStep) -> StreamProgram:
    return StreamProgram(
        0, steps, arguments=(Argument("a0", "make((4, 5), torch.float32, 1)"),), sizes=({},) * 3
    )


READ = StreamStep("v1 = a0 * 2", "v1", ("a0",), stream=1)
WRITE = StreamStep("a0.add_(1)", "a0", ("a0",), writes=("a0",), stream=0)


@pytest.mark.parametrize(
    ("step", "wait"),
    [
        (READ, "s[1].wait_stream(s[0])"),
        (replace(READ, by_event=True), "s[1].wait_event(e0_2)"),
        (replace(READ, stream=0), ""),
    ],
)
def test_a_step_waits_for_what_wrote_its_memory_elsewhere(step: StreamStep, wait: str) -> None:
    lines = placed(a_program(WRITE, step), STREAMS)
    assert [line for line in lines if ".wait_" in line] == ([wait] if wait else [])


def test_a_write_waits_for_what_reads_the_memory_elsewhere() -> None:
    read = StreamStep("v1 = a0 * 2", "v1", ("a0",), stream=2, announces=True)
    lines = placed(a_program(read, WRITE), STREAMS)
    assert lines.index("s[0].wait_stream(s[2])") > lines.index(read.code)


def test_memory_is_kept_until_another_stream_has_used_it() -> None:
    read = StreamStep("v1 = a0 * 2", "v1", ("a0",), stream=2)
    drop = StreamStep("del a0", "", ("a0",), frees=("a0",), stream=HOST)
    waiting = placed(a_program(read, drop), STREAMS)
    assert waiting.index("s[0].wait_stream(s[2])") == waiting.index("del a0") - 1
    told = placed(a_program(replace(read, announces=True), drop), STREAMS)
    assert "a0.record_stream(s[2])" in told
    assert "s[0].wait_stream(s[2])" not in told


def test_the_host_waits_for_a_copy_before_it_looks() -> None:
    code = "h1 = a0.to('cpu', non_blocking=True, copy=True)"
    copy = StreamStep(code, "h1", ("a0",), stream=1)
    use = StreamStep("h1.add_(1)", "h1", ("h1",), writes=("h1",), stream=HOST)
    lines = placed(a_program(copy, use), STREAMS)
    assert lines[-2:] == ["s[1].synchronize()", "h1.add_(1)"]


def test_a_graph_has_no_steps_of_the_host_nor_what_needs_them() -> None:
    look = StreamStep("see(a0)", "", ("a0",), waits=True)
    copy = StreamStep("h1 = a0.cpu()", "h1", ("a0",), waits=True)
    back = StreamStep("v2 = h1.to(device)", "v2", ("h1",))
    assert capturable(a_program(WRITE, look, copy, back)).steps == (WRITE,)


def test_a_difference_is_seen_in_every_way() -> None:
    """The step adds 1 where there are streams, as in all ways but step by step."""
    step = StreamStep("v1 = a0 + ('s' in globals())", "v1", ("a0",))
    found = failures(a_program(step))
    assert {way for way, wrong in found.items() if wrong} == set(found) - {"step by step"}


def test_a_missing_wait_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stream 0 is held back until stream 1 has read what it is to write."""
    monkeypatch.setattr(Placement, "_order", lambda *_: None)
    lines = placed(a_program(WRITE, READ), STREAMS)
    begin = ["torch.accelerator.synchronize()", "hold = hold()"]  # a0 is there
    held = [*begin, *lines, "s[1].synchronize()", "hold.release()"]
    monkeypatch.setattr(stream_programs, "scope_of", holding(stream_programs.scope_of))
    program = a_program(WRITE, READ)
    wanted = stream_programs.step_by_step(program, "loom", 0)
    got = stream_programs.queued(program, held, STREAMS)
    assert stream_programs.different(got, wanted).startswith("v1: 20 of 20 elements")


def holding(scope_of: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    return lambda *arguments: {**scope_of(*arguments), "hold": lambda: _C._Hold(0, 20)}
