# SPDX-License-Identifier: BSD-3-Clause
"""What systems of several ranks share, with tests_py/distributed, too."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "distributed"))

from rank_pool import RankPool


def pool_of(count: int) -> Iterator[RankPool]:
    pool = RankPool(count)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def two() -> Iterator[RankPool]:
    yield from pool_of(2)


@pytest.fixture(scope="module")
def four() -> Iterator[RankPool]:
    yield from pool_of(4)
