# SPDX-License-Identifier: BSD-3-Clause
"""Whenever a rank is killed, the others are told at once and had right numbers until then."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("killed_ranks.py")


def kill(count: int, seed: int, *options: str) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(count), "--seed", str(seed), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(600)
def test_ranks_that_are_killed() -> None:
    kill(6, seed=0)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_hundred_ranks_that_are_killed() -> None:
    kill(200, seed=1000)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_forty_ranks_that_are_killed_on_two_hosts() -> None:
    kill(40, 0, "--hosts")
