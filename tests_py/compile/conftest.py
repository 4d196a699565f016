# SPDX-License-Identifier: BSD-3-Clause
"""What tests of torch.compile share: each begins with nothing compiled."""

from collections.abc import Iterator

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # Compiling imports modules that are written with torch.jit.
        item.add_marker(
            pytest.mark.filterwarnings(
                r"ignore:`torch.jit.\w+` is deprecated:DeprecationWarning",
            )
        )


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
