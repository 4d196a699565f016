# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's own suite of torch.distributed passes with lccl, but for what is listed."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("wheel_suite.py")


def run_suite(*tests: str) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *tests], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.timeout(600)
def test_a_part() -> None:
    run_suite("test_all_reduce_sum*", "test_batch_isend_irecv*", "test_reduce_scatter*")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_of_it() -> None:
    run_suite()
