# SPDX-License-Identifier: BSD-3-Clause
"""Groups of ranks that the tests of a session share."""

from collections.abc import Iterator

import pytest
from rank_pool import RankPool


@pytest.fixture(scope="session", params=[2, 3], ids=["2_ranks", "3_ranks"])
def ranks(request: pytest.FixtureRequest) -> Iterator[RankPool]:
    """Two ranks, and three."""
    pool = RankPool(request.param)
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def pair() -> Iterator[RankPool]:
    """Two ranks."""
    pool = RankPool(2)
    yield pool
    pool.close()
