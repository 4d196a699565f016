# SPDX-License-Identifier: BSD-3-Clause
"""The package is typed, strictly, and the stub of the compiled module says what is there."""

import ast
import os
import pathlib
import subprocess
import sys

import pytest

import torch_loom
from torch_loom import _C

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.thorough
def test_mypy_strict_finds_nothing():
    pytest.importorskip("mypy")
    # Runs in both memory modes may go on at once, and a cache has one writer.
    cache = ROOT / "build" / f"mypy-{os.environ.get('LOOM_MEMORY', 'unified')}"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(cache)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_package_says_that_it_is_typed():
    folder = pathlib.Path(torch_loom.__file__).parent
    assert (folder / "py.typed").exists()
    assert (folder / "_C.pyi").exists()


def test_the_stub_lists_what_the_compiled_module_has():
    _C._bind_distributed()  # classes that derive from torch's, made when they are first needed
    stub = ast.parse((ROOT / "python" / "torch_loom" / "_C.pyi").read_text())
    listed = {node.name for node in stub.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert listed == {name for name in dir(_C) if not name.startswith("__")}
    for node in stub.body:
        if not isinstance(node, ast.ClassDef):
            continue
        fields = {each.target.id for each in node.body if isinstance(each, ast.AnnAssign)}
        methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
        there = {name for name in vars(getattr(_C, node.name)) if not name.startswith("_")}
        assert {name for name in fields | methods if not name.startswith("_")} == there
