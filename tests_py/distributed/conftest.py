# SPDX-License-Identifier: BSD-3-Clause
"""Groups of ranks that the tests of a session share."""

import os
from collections.abc import Iterator

import pytest
from rank_pool import RankPool

SLOW_HOSTS = ("aaaa", "aabb", "aaab", "abc")

BLOCKING = os.environ.get("LOOM_LAUNCH_BLOCKING") == "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not BLOCKING:
        return
    # Blocking launches raise in the call, and keep the thread there meanwhile.
    skip = pytest.mark.skip(reason="it is about queued operations")
    for item in items:
        if item.get_closest_marker("queued"):
            item.add_marker(skip)


@pytest.fixture(
    scope="session",
    params=["aa", "aaa", "ab", *(pytest.param(h, marks=pytest.mark.slow) for h in SLOW_HOSTS)],
    ids=lambda hosts: f"ranks_on_{hosts}",
)
def ranks(request: pytest.FixtureRequest) -> Iterator[RankPool]:
    """Groups on hosts: a letter for each rank says which."""
    pool = RankPool(len(request.param), hosts=request.param)
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def hosts() -> Iterator[RankPool]:
    """Four ranks, two on each of two hosts."""
    pool = RankPool(4, hosts="aabb")
    yield pool
    pool.close()


@pytest.fixture(
    scope="session",
    params=["aa", pytest.param("ab", marks=pytest.mark.slow)],
    ids=lambda hosts: f"pair_on_{hosts}",
)
def pair(request: pytest.FixtureRequest) -> Iterator[RankPool]:
    """Two ranks."""
    pool = RankPool(2, hosts=request.param)
    yield pool
    pool.close()
