# SPDX-License-Identifier: BSD-3-Clause
"""Random functions, compiled in each mode, do on loom what they do on cpu.

A fixed batch runs by default. ``LOOM_TEST_PROGRAMS=500`` runs more, ``LOOM_TEST_PROGRAMS=70:90``
those of these seeds. A failure prints the shortest function that was found to fail, as a script.
"""

import os
from collections.abc import Iterator

import pytest
import torch
from graph_programs import failure
from random_graphs import random_graph

from support.programs import shrink

pytestmark = [
    pytest.mark.thorough,
    # Compiling imports modules that are written with torch.jit.
    pytest.mark.filterwarnings(r"ignore:`torch.jit.\w+` is deprecated:DeprecationWarning"),
]

USUAL = range(24)


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def seeds() -> range:
    chosen = os.environ.get("LOOM_TEST_PROGRAMS", "")
    first, _, last = chosen.rpartition(":")
    return range(int(first or 0), int(last)) if chosen else USUAL


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", seeds())
def test_random_functions_are_compiled_as_they_are(seed):
    program = random_graph(seed)
    if failure(program):
        shortest = shrink(program, lambda shorter: bool(failure(shorter)))
        pytest.fail(f"seed {seed}: {failure(shortest)}\n{shortest.script()}", pytrace=False)


def test_a_seed_always_makes_the_same_function():
    assert random_graph(7) == random_graph(7)
    assert random_graph(7) != random_graph(8)
