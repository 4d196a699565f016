# SPDX-License-Identifier: BSD-3-Clause
"""What differs between versions of torch is known, and goes when no version lacks it."""

import re
from pathlib import Path

import pytest

from torch_loom import _torch_features as features

ROOT = Path(__file__).parents[2]


def numbers(minor):
    return tuple(map(int, minor.split(".")))


@pytest.mark.parametrize("name", features.FEATURES)
def test_a_feature_is_there_since_the_version_that_it_names(name):
    feature = features.FEATURES[name]
    assert feature.is_there() == (numbers(features.MINOR) >= numbers(feature.since))


@pytest.mark.parametrize("name", features.FEATURES)
def test_no_feature_is_one_of_all_supported_versions(name):
    feature = features.FEATURES[name]
    assert numbers(feature.since) > numbers(features.OLDEST), f"remove {name}, and the code without"


def test_no_feature_of_c_is_one_of_all_supported_versions():
    header = (ROOT / "cpp" / "loom" / "backend" / "torch_features.h").read_text()
    found = re.findall(r"define (LOOM_TORCH_HAS_\w+) LOOM_TORCH_SINCE\((\d+), (\d+)\)", header)
    assert len(found) == header.count("define LOOM_TORCH_HAS_")
    for name, major, minor in found:
        since = (int(major), int(minor))
        assert since > numbers(features.OLDEST), f"remove {name}, and the code without"


def test_python_cmake_and_the_table_of_operators_know_the_same_versions():
    package = (ROOT / "cmake" / "LoomTorchPackage.cmake").read_text()
    assert f"set(LOOM_OLDEST_TORCH {features.OLDEST})" in package
    table = (ROOT / "cpp" / "loom" / "ops" / "aten" / "structured.yaml").read_text()
    since, until = re.search(r'torch: \{since: "([\d.]+)", until: "([\d.]+)"\}', table).groups()
    assert since == features.OLDEST
    major, minor = numbers(features.NEWEST)
    assert until == f"{major}.{minor + 1}"
    project = (ROOT / "pyproject.toml").read_text()
    assert f'oldest-torch = "{features.OLDEST}"\nnewest-torch = "{features.NEWEST}"' in project


@pytest.mark.parametrize(
    ("version", "known"),
    [("2.12.9", False), ("2.13.0+cpu", True), ("2.15.1", True), ("2.16.0.dev1", False)],
)
def test_versions_between_the_oldest_and_the_newest_are_known(version, known):
    assert features.is_known(version) == known


def test_no_other_file_compares_versions_of_torch():
    compares = re.compile(r"torch\.__version__|TORCH_VERSION_M|torch\.version\.__version__")
    allowed = {"torch_features.h", "_torch_features.py"}
    for folder in ("cpp/loom", "python"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".h", ".cpp", ".py") and path.name not in allowed:
                found = [line for line in path.read_text().splitlines() if compares.search(line)]
                # Python's loader, reports and caches name the version; they compare no features.
                assert not any("<" in line or ">" in line for line in found), (path, found)
