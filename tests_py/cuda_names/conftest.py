# SPDX-License-Identifier: BSD-3-Clause
"""Tests of this folder run while loom has the name of CUDA, unless they ask for ``loom_names``."""

from collections.abc import Iterator

import pytest
import torch

import torch_loom


@pytest.fixture
def loom_names() -> None:
    """The names are off when the test begins."""


@pytest.fixture(autouse=True)
def cuda_names(request: pytest.FixtureRequest) -> Iterator[None]:
    if "loom_names" in request.fixturenames:
        yield
        return
    with torch_loom.as_cuda():
        yield
        torch.set_default_device(None)
        torch.cuda.synchronize()
