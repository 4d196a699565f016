# SPDX-License-Identifier: BSD-3-Clause
"""Includes go down the levels of the house, and the check of it finds made-up violations."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def check_layers(root):
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / "check_layers.py"), str(root)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_project_keeps_its_levels():
    done = check_layers(ROOT)
    assert done.stdout == ""
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("folder", "include", "wrong"),
    [
        ("device", '"loom/memory/block.h"', True),
        ("memory", '"loom/fusion/program.h"', True),
        ("backend", '"loom/ops/launch/launch.h"', True),
        ("device", "<c10/core/Device.h>", True),
        ("memory", "<torch/headeronly/util/Half.h>", False),
        ("ops", "<ATen/ATen.h>", True),
        ("ops", "<pybind11/pybind11.h>", True),
        ("ops", '"loom/backend/stream.h"', False),
        ("ops", '"loom/ops/launch/launch.h"', False),
        ("backend", "<ATen/core/Tensor.h>", False),
        ("newcomer", "<vector>", True),
        ("ops/launch", '"loom/ops/aten/structured.h"', True),
        ("ops/cuts", '"loom/ops/custom_kernel.h"', True),
        ("ops/aten", '"loom/ops/launch/launch.h"', False),
        ("ops/newcomer", "<vector>", True),
    ],
)
def test_the_check_finds_violations(tmp_path, folder, include, wrong):
    file = tmp_path / "cpp" / "loom" / folder / "made_up.h"
    file.parent.mkdir(parents=True)
    file.write_text(f"#pragma once\n\n#include {include}\n")
    done = check_layers(tmp_path)
    assert done.returncode == int(wrong)
    assert ("made_up.h" in done.stdout) == wrong
