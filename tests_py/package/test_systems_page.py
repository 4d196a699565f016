# SPDX-License-Identifier: BSD-3-Clause
"""docs/systems.md has a row for each file of tests_py/systems."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "systems"))
import page


def test_every_file_has_a_row_with_its_title() -> None:
    rows = [line.split(" | ") for line in page.PAGE.read_text().splitlines() if "[test_" in line]
    systems = page.Results().systems.values()
    expected = {(f"| {page.cell(system.title)}", system.path.name) for system in systems}
    assert {(row[0], row[-1][1:].partition("]")[0]) for row in rows} == expected
