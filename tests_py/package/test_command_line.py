# SPDX-License-Identifier: BSD-3-Clause
"""``python -m torch_loom``: what it says, and that it says it where loom cannot be loaded."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torch_loom
from torch_loom import __main__, _self_test

ROOT = Path(torch_loom.__file__).parents[1]


def rows(text):
    return dict(line.split("  ", 1) for line in text.splitlines() if "  " in line)


def command(*arguments, path=str(ROOT)):
    """Run the command in a process of its own, with `path` on the way to modules."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "torch_loom", *arguments]
        if sys.version_info >= (3, 11)
        else [sys.executable, "-m", "torch_loom", *arguments],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": path, "GOMP_SPINCOUNT": "1000"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_without_arguments_it_says_what_is_there_and_tests_it():
    done = command()
    assert done.returncode == 0, done.stdout + done.stderr
    found = {name: text.strip() for name, text in rows(done.stdout).items()}
    assert found["torch"].startswith(f"{torch.__version__} in ")
    assert found["Python"].startswith(platform.python_version())
    assert Path(found["library"]).name.startswith("libtorch_loom")
    assert Path(found["library"]).exists()
    device = torch.loom.get_device_properties(0)
    assert found["processor"] == device.name
    assert device.simd in found["loom:0"]
    assert found["jit"].startswith(("yes", "no: "))
    assert found["options"].startswith("none is set")
    assert found["self-test"].startswith("7 of 7 as on cpu")


def test_options_in_force_are_listed(check):
    out = check(
        "from torch_loom.__main__ import main; raise SystemExit(main([]))",
        LOOM_THREADS="1",
        LOOM_DEVICES="2",
    ).out
    assert rows(out)["options"].strip().startswith("LOOM_DEVICES=2 LOOM_THREADS=1")
    assert "loom:1" in rows(out)


def test_a_wrong_number_fails_the_self_test(monkeypatch, capsys):
    right = _self_test._CASES["product"]
    wrong = {"product": lambda device: right(device) + (device.type == "loom")}
    monkeypatch.setattr(_self_test, "_CASES", {**_self_test._CASES, **wrong})
    assert __main__.main([]) == 1
    assert "6 of 7 as on cpu; product FAILED: " in capsys.readouterr().out


def test_each_case_of_the_self_test_looks_at_numbers():
    for name, case in _self_test._CASES.items():
        result = case(torch.device("cpu"))
        assert result.std() > 0.01, name


@pytest.fixture
def broken(tmp_path):
    """A path on which loom's own package cannot be loaded: its library's module raises."""
    package = tmp_path / "torch_loom"
    package.mkdir()
    for file in Path(torch_loom.__file__).parent.glob("*.py"):
        (package / file.name).write_text(file.read_text())
    (package / "_loader.py").write_text(
        "def on_import():\n    raise ImportError('expected torch 2.13, got torch 2.1')\n"
        "def autoload():\n    pass\n"
    )
    return str(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ((), 1, "DOES NOT WORK: expected torch 2.13, got torch 2.1"),
        (("doctor",), 1, "expected torch 2.13, got torch 2.1"),
        (("env",), 2, "expected torch 2.13, got torch 2.1"),
    ],
)
def test_it_says_why_loom_cannot_be_loaded(broken, arguments, code, text):
    done = command(*arguments, path=broken)
    assert done.returncode == code, done.stdout + done.stderr
    assert text in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_gets_the_error_itself(run, broken):
    done = run("import torch_loom", PYTHONPATH=broken)
    assert done.code == 1
    assert done.err.strip().endswith("ImportError: expected torch 2.13, got torch 2.1")
