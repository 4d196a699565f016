# SPDX-License-Identifier: BSD-3-Clause
"""Host memory that runs out: whichever allocation of loom's fails is raised, and nothing is lost

Each attempt lets one allocation of loom's own code fail, or all from one on, while a scenario of
support/failing_new.py runs. The scenario succeeds or raises that memory lacks; then it gives the
right numbers once more, and no device memory is left over. A process that ends, or hangs, fails.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support import failing_new

COUNTS = {"one": 1, "all that follow": failing_new.ALL}


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return failing_new.library(tmp_path_factory.mktemp("failing_new"))


def check(preloaded: Path, scenario: str, kind: str, numbers: range, count: int) -> None:
    results = list(failing_new.attempts(preloaded, scenario, kind, numbers, count))
    wrong = [f"{result['number']}: {why}" for result in results for why in result["wrong"]]
    assert not wrong, "\n".join(wrong)
    assert any(result["raised"] for result in results), "no attempt has raised anything"


@pytest.mark.parametrize("count", COUNTS.values(), ids=COUNTS)
def test_a_part_of_the_allocations_of_a_training_step(preloaded: Path, count: int) -> None:
    check(preloaded, "training", "later", range(1, 10_000, 41), count)


@pytest.mark.thorough
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize("scenario", failing_new.SCENARIOS)
def test_each_allocation(preloaded: Path, scenario: str, count: int) -> None:
    check(preloaded, scenario, "later", range(1, 100_000), count)


# Some thousand, each in a process of its own.
@pytest.mark.thorough
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize("scenario", failing_new.SCENARIOS)
def test_a_part_of_the_allocations_of_a_first_use(
    preloaded: Path, scenario: str, count: int
) -> None:
    check(preloaded, scenario, "first", range(1, 100_000, 13), count)
