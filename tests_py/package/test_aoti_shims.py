# SPDX-License-Identifier: BSD-3-Clause
"""Entry points of operators for graphs that are compiled to C++: which there are, what they do."""

import ctypes
import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch

from torch_loom import _C

pytest.importorskip("yaml", reason="the generator needs pyyaml")
ROOT = Path(__file__).parents[2]
GENERATED = "torch/csrc/inductor/aoti_torch/generated"


@pytest.fixture(scope="module")
def shims():
    path = ROOT / "cmake" / "codegen" / "aoti_shims.py"
    spec = importlib.util.spec_from_file_location("aoti_shims", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["aoti_shims"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["aoti_shims"]


def names(text, device):
    return set(re.findall(rf"aoti_torch_{device}_(\w+)\(", text))


@pytest.fixture(scope="module")
def on_cpu():
    header = Path(torch.__file__).parent / "include" / GENERATED / "c_shim_cpu.h"
    return names(header.read_text(), "cpu")


def test_there_are_those_of_the_cpu(shims, on_cpu, tmp_path):
    (header, *sources) = [content for _, content in shims.files(tmp_path)]
    assert names(header, "loom") == on_cpu
    assert set().union(*(names(source, "loom") for source in sources)) == on_cpu


def test_they_call_the_dispatcher(shims, tmp_path):
    for path, content in shims.files(tmp_path):
        called = set(re.findall(r"at::(\w+)::\w+", content))
        assert called <= {"_ops", "symint"}, path


def test_the_library_has_them(on_cpu):
    _C._make_symbols_global()
    everything = ctypes.CDLL(None)
    missing = [name for name in on_cpu if not hasattr(everything, f"aoti_torch_loom_{name}")]
    assert missing == []


def test_generated_code_finds_the_header(on_cpu):
    header = Path(_C.__file__).parent / "include" / GENERATED / "c_shim_loom.h"
    assert names(header.read_text(), "loom") == on_cpu
