# SPDX-License-Identifier: BSD-3-Clause
"""A fixed part of the conformance run (make conformance does all of it)."""

import pytest
from run import Key, Row, run, stale, unexplained

pytestmark = pytest.mark.timeout(1500)

# Every operator in float32 in every way; modules and optimisers.
PART = ("float32",)


def in_part(key: Key) -> bool:
    return key[3] in PART


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return run(in_part)


def test_nothing_crashes_or_hangs(rows: list[Row]) -> None:
    assert [row for row in rows if row.status in ("crash", "hang")] == []


def test_everything_agrees_unless_the_list_says_why_not(rows: list[Row]) -> None:
    assert len(rows) > 4000
    assert unexplained(rows) == []


def test_the_list_has_nothing_that_agrees(rows: list[Row]) -> None:
    assert stale(rows) == []


def test_a_difference_is_found() -> None:
    """cpu against itself agrees; loom's random numbers, were they compared, would not."""
    rows = run(lambda key: key[1:] == ("sin", "forward", "float32"), device="cpu", workers=1)
    assert [row.status for row in rows] == ["agrees"]
    assert rows[0].samples > 0
