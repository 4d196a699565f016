# SPDX-License-Identifier: BSD-3-Clause
"""Random programs give the same bits fused and unfused, and step by step what cpu gives.

A fixed batch runs by default. ``LOOM_TEST_PROGRAMS=5000`` runs more, ``LOOM_TEST_PROGRAMS=700:900``
those of these seeds. A failure prints the shortest program that was found to fail, as a script.
"""

import os

import pytest
from random_programs import random_program

from support.program_checks import failure
from support.programs import shrink

pytestmark = pytest.mark.thorough

USUAL = range(400)
BATCHES = 8


def seeds() -> range:
    chosen = os.environ.get("LOOM_TEST_PROGRAMS", "")
    first, _, last = chosen.rpartition(":")
    return range(int(first or 0), int(last)) if chosen else USUAL


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_programs_do_not_depend_on_fusion_and_agree_with_cpu(batch):
    for seed in seeds()[batch::BATCHES]:
        program = random_program(seed)
        if failure(program):
            shortest = shrink(program, lambda shorter: bool(failure(shorter)))
            pytest.fail(f"seed {seed}: {failure(shortest)}\n{shortest.script()}", pytrace=False)


def test_a_seed_always_makes_the_same_program():
    assert random_program(7) == random_program(7)
    assert random_program(7) != random_program(8)


def test_shrinking_keeps_what_fails():
    program = random_program(3)
    shortest = shrink(program, lambda shorter: "keep_busy" in shorter.source())
    assert [step.code for step in shortest.steps] == ["keep_busy()"]
