# SPDX-License-Identifier: BSD-3-Clause
"""What cannot work without a device of NVIDIA says so at once, by name, with what to do."""

import importlib
import pkgutil
import sys
import types

import pytest
import torch

from torch_loom.cuda_names import refusals


@pytest.mark.parametrize("path", refusals.FUNCTIONS)
def test_functions_are_refused_by_name(path):
    module, _, name = path.rpartition(".")
    with pytest.raises(RuntimeError) as refusal:
        getattr(pkgutil.resolve_name(module), name)()
    assert path in str(refusal.value)
    assert "loom under the name of CUDA" in str(refusal.value)
    assert refusals.FUNCTIONS[path][1] in str(refusal.value)


def test_sources_in_cuda_are_refused(tmp_path):
    from torch.utils import cpp_extension

    with pytest.raises(RuntimeError, match=r"expected sources in C\+\+, got .*\.cu: loom runs no"):
        cpp_extension.load_inline(
            "loom_cuda_names",
            cpp_sources="",
            cuda_sources="__global__ void f() {}",
            build_directory=str(tmp_path),
        )
    with pytest.raises(RuntimeError, match=r"got kernel\.cu"):
        cpp_extension.load("loom_cuda_names", ["kernel.cu"], build_directory=str(tmp_path))
    with pytest.raises(RuntimeError, match="CUDAExtension"):
        cpp_extension.CUDAExtension("loom_cuda_names", ["kernel.cu"])


@pytest.mark.parametrize("name", refusals.MODULES)
def test_packages_are_refused_by_an_import_error(name, tmp_path, monkeypatch):
    package = tmp_path.joinpath(*name.split("."))
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    for known in [m for m in sys.modules if m.partition(".")[0] == name.partition(".")[0]]:
        monkeypatch.delitem(sys.modules, known)
    with pytest.raises(ImportError, match=f"{name}: expected a device of NVIDIA"):
        importlib.import_module(name)


def test_packages_that_are_not_there_are_missing_as_ever():
    if importlib.util.find_spec("pycuda") is None:
        with pytest.raises(ModuleNotFoundError, match="No module named 'pycuda'"):
            importlib.import_module("pycuda")


def test_triton_kernels_are_refused(tmp_path, monkeypatch):
    runtime = tmp_path / "triton" / "runtime"
    runtime.mkdir(parents=True)
    (tmp_path / "triton" / "__init__.py").write_text("")
    (runtime / "__init__.py").write_text("")
    (runtime / "jit.py").write_text(
        "class JITFunction:\n"
        "    __name__ = 'add_kernel'\n"
        "    def run(self, *args, grid, warmup, **named):\n"
        "        return 'ran'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for known in [m for m in sys.modules if m.partition(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, known)
    jit = importlib.import_module("triton.runtime.jit")
    with pytest.raises(RuntimeError, match=r"runs no Triton kernels \(add_kernel\)"):
        jit.JITFunction().run(grid=(1,), warmup=False)
    for known in [m for m in sys.modules if m.partition(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, known)


def test_there_is_no_array_interface_of_cuda():
    x = torch.ones(2, device="cuda")
    assert not hasattr(x, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="expected memory of a device of NVIDIA"):
        x.__cuda_array_interface__  # noqa: B018
    with pytest.raises(AttributeError, match="on non-CUDA tensor type"):
        torch.ones(1).__cuda_array_interface__  # noqa: B018


def test_triton_is_not_offered():
    from torch.utils._triton import has_triton

    assert isinstance(has_triton, types.FunctionType)
    assert not has_triton()


def test_a_class_of_nccl_s_cannot_be_made():
    with pytest.raises(RuntimeError, match="lccl answers"):
        torch.distributed.ProcessGroupNCCL(None, 0, 1)


def test_a_raw_graph_is_refused():
    with pytest.raises(RuntimeError, match="cudaGraph_t"):
        torch.cuda.CUDAGraph().raw_cuda_graph()
