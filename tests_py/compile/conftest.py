# SPDX-License-Identifier: BSD-3-Clause
"""What tests of torch.compile share: each begins with nothing compiled."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from torch_loom.inductor import replay


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


@pytest.fixture
def compiled_nests(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All nests are C++, those too that would be programs."""
    from torch_loom.inductor import programs

    monkeypatch.setattr(programs, "nest_of", lambda nodes: None)
    with (
        torch._inductor.config.patch(fx_graph_cache=False),
        torch._functorch.config.patch(enable_autograd_cache=False),
    ):
        yield


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[replay._Capture]:
    """The captures that are replayed, once for each replay."""
    done: list[replay._Capture] = []
    for name in ("again", "replay"):
        monkeypatch.setattr(replay._Capture, name, _noting(getattr(replay._Capture, name), done))
    return done


def _noting(original: Any, done: list[replay._Capture]) -> Any:
    def note(self: replay._Capture, inputs: list[Any]) -> list[Any] | None:
        results = original(self, inputs)
        if results is not None:
            done.append(self)
        return results

    return note
