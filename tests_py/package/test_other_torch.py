# SPDX-License-Identifier: BSD-3-Clause
"""The library in a process with another minor version of torch than it was built for.

That torch is this one, with another answer to the question for its version: a library that is
loaded first has the function that the library asks.
"""

import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest
from test_library import loaded_library

from torch_loom import _torch_features

VERSION = 0x0263_0700_0000_0000  # 2.99.7
LINE = (
    f"torch-loom: expected torch {_torch_features.MINOR}.*, which it was built for, got torch "
    f"2.99.7; nothing is registered. Install that torch (pip install "
    f"'torch=={_torch_features.MINOR}.*'), or a torch-loom that was built for torch 2.99"
)
# What loom registers everywhere in the library: kernels, a fallback, hooks, a graph.
IS_REGISTERED = """
    import torch
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    names = ("aten::empty.memory_format", "aten::add.Tensor", "aten::_fft_c2c", "aten::mm")
    registered = [name for name in names if has(name, "PrivateUse1")]
    registered += ["fallback"] * torch._C._dispatch_has_backend_fallback("PrivateUse1")
    accelerator = torch.accelerator.current_accelerator()
    registered += ["accelerator"] * (str(accelerator) == torch._C._get_privateuse1_backend_name())
    registered += ["loom::cross_entropy"] * bool(torch._C._jit_get_schemas_for_operator(
        "loom::_cross_entropy"))
    print(registered)
"""


@pytest.fixture(scope="module")
def other_version(tmp_path_factory):
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("needs a compiler")
    folder = tmp_path_factory.mktemp("other_version")
    source, library = folder / "version.cpp", folder / "libversion.so"
    source.write_text(
        f'extern "C" unsigned long aoti_torch_abi_version() {{ return {VERSION:#x}; }}\n'
    )
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library], check=True)
    return {"LD_PRELOAD": str(library), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def test_names_of_torch_may_be_missing():
    script = Path(__file__).parents[2] / "cmake" / "weak_torch_symbols.py"
    names = runpy.run_path(str(script))
    of_torch = re.compile(rb"_Z(N|NK|TV|TI|TS|TSN|TVN|TIN)*(2at|3c10|4c10d|5torch)")
    bindings = {
        name: info >> 4
        for _, name, info, is_defined in names["symbols"](loaded_library().read_bytes())
        if not is_defined and of_torch.match(name)
    }
    assert len(bindings) > 1000
    assert set(bindings.values()) == {names["_WEAK"]}


def loading(path):
    return f"""
    import ctypes, torch
    ctypes.CDLL({str(path)!r})
    """


def test_it_registers_in_its_own_torch(check):
    done = check(loading(loaded_library()) + IS_REGISTERED, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert "aten::add.Tensor" in done.out
    assert "fallback" in done.out
    assert done.err == ""


def test_it_registers_nothing_and_says_why_in_one_line(check, other_version):
    done = check(loading(loaded_library()) + IS_REGISTERED, **other_version)
    assert done.out == "[]\n"
    assert done.err == LINE + "\n"


def test_importing_the_package_is_an_import_error(run, other_version):
    done = run("import torch_loom", **other_version)
    assert done.code == 1
    assert f"ImportError: {LINE}" in done.err


def test_torch_itself_still_imports(check, other_version):
    environment = {**other_version, "TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}
    done = check("import torch\nprint(torch.ones(2).sum().item())", **environment)
    assert done.out == "2.0\n"
    assert f"torch-loom is installed but was not loaded: {LINE}" in done.err
