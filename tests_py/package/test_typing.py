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


PROGRAM = pathlib.Path(__file__).with_name("typed_program.py")


def mypy(*arguments, **variables):
    """Run mypy with a cache that a run in the other memory mode does not write."""
    pytest.importorskip("mypy")
    cache = ROOT / "build" / f"mypy-{os.environ.get('LOOM_MEMORY', 'unified')}"
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(cache), *arguments],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.thorough
def test_mypy_strict_finds_nothing():
    done = mypy()
    assert done.returncode == 0, done.stdout


@pytest.mark.thorough
def test_mypy_strict_finds_nothing_in_a_users_program(tmp_path):
    # As in a user's project: its configuration knows nothing of loom, and installed packages are
    # not checked themselves.
    strict = ("--strict", "--config-file=", "--no-error-summary", "--follow-imports=silent")
    path = {"MYPYPATH": str(ROOT / "python")}
    done = mypy(*strict, str(PROGRAM), **path)
    assert (done.returncode, done.stdout) == (0, "")
    wrong = tmp_path / "wrong_program.py"
    wrong.write_text(
        "from torch_loom import loom\n"
        "loom.sinchronize()\n"
        "loom.manual_seed('seven')\n"
        "loom.Stream().record_event(3)\n"
    )
    lines = mypy(*strict, str(wrong), **path).stdout.splitlines()
    assert [line.split(": ")[0].rpartition(":")[2] for line in lines if "error" in line] == list(
        "234"
    )


def test_the_users_program_runs(check):
    assert "memory" in check(PROGRAM.read_text()).out


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
