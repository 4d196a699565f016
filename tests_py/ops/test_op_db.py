# SPDX-License-Identifier: BSD-3-Clause
"""Every operator of PyTorch's op_db does on loom what it does on cpu (docs/op_db.md)."""

import pytest
from op_db_differences import DIFFERENCES, NOT_COMPARED
from op_db_sweep import Worker, agreement, by_name, sweep
from op_db_worker import Row

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return sweep("loom", workers=2)


def test_no_operator_crashes_or_hangs(rows: list[Row]) -> None:
    assert [row for row in rows if row.status in ("crash", "hang")] == []


def test_operators_agree_unless_the_table_says_why_not(rows: list[Row]) -> None:
    assert [row for row in rows if not row.good and row.name not in DIFFERENCES] == []


def test_the_table_lists_nothing_that_agrees(rows: list[Row]) -> None:
    names = by_name(rows)
    assert [name for name in DIFFERENCES if name not in names or names[name].good] == []
    assert [name for name in NOT_COMPARED if name not in names] == []


def test_97_percent_of_the_names_agree(rows: list[Row]) -> None:
    assert len(by_name(rows)) > 600
    assert agreement(rows) >= 97.0


def test_a_crash_is_the_row_of_its_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Worker.ask

    def ask_and_crash(self: Worker, index: int) -> Row | None:
        if self.entries[index][0] == "sin":
            self.kill()
        return ask(self, index)

    monkeypatch.setattr(Worker, "ask", ask_and_crash)
    rows = sweep("cpu", workers=1, only=["cos", "sin", "tan"])
    assert [(row.name, row.status) for row in rows] == [
        ("cos", "agrees"),
        ("sin", "crash"),
        ("tan", "agrees"),
    ]
