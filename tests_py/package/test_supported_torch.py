# SPDX-License-Identifier: BSD-3-Clause
"""The parts that know which versions of torch are supported agree."""

import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("scikit_build_core")

from torch_loom import _torch_features

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools"))
from build_backend import torch_location  # noqa: E402


def test_all_parts_support_the_same_versions():
    supported = torch_location.Supported.read(ROOT / "pyproject.toml")
    assert supported.oldest == _torch_features.OLDEST
    assert supported.newest == _torch_features.NEWEST
    versions = yaml.safe_load((ROOT / "cpp/loom/ops/aten/structured.yaml").read_text())["torch"]
    assert versions["since"] == supported.oldest
    assert supported.requirement() == f"torch>={supported.oldest},<{versions['until']}"
