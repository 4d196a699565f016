# SPDX-License-Identifier: BSD-3-Clause
"""What is made for NVIDIA's devices alone, and says so at once, by name, with what to do."""

import importlib.abc
import importlib.machinery
import pkgutil
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
import torch.cuda.gds
import torch.cuda.green_contexts
import torch.cuda.jiterator
import torch.cuda.nccl
import torch.cuda.tunable

from .._utils import is_loom
from .changes import Changes

__all__ = ["FUNCTIONS", "MODULES", "apply"]

_HANDLES = "handles of NVIDIA's libraries"
_NVML = "NVIDIA's management library"
_ALLOCATORS = "allocators of cudaMalloc"

FUNCTIONS: dict[str, tuple[str, str]] = {
    "torch.autograd.profiler.emit_nvtx": ("NVIDIA's profilers", "use torch.profiler"),
    "torch.cuda.CUDAPluggableAllocator": (_ALLOCATORS, "use torch.cuda's own allocator"),
    "torch.cuda.ExternalStream": ("a cudaStream_t", "use torch.cuda.Stream()"),
    "torch.cuda.GreenContext": ("green contexts", "set LOOM_DEVICES to split the cores"),
    "torch.cuda._compile_kernel": ("kernels in CUDA C++", "write the kernel with PyTorch"),
    "torch.cuda.caching_allocator_alloc": ("raw pointers of a device", "use torch.empty()"),
    "torch.cuda.caching_allocator_delete": ("raw pointers of a device", "use torch.empty()"),
    "torch.cuda.change_current_allocator": (_ALLOCATORS, "use torch.cuda's own allocator"),
    "torch.cuda.clock_rate": (_NVML, "use `python -m torch_loom info`"),
    "torch.cuda.current_blas_handle": (_HANDLES, "call torch.mm and its like"),
    "torch.cuda.current_solver_handle": (_HANDLES, "call torch.linalg"),
    "torch.cuda.gds.GdsFile": ("GPUDirect Storage", "use torch.load() with mmap=True"),
    "torch.cuda.get_stream_from_external": ("a cudaStream_t", "use torch.cuda.Stream()"),
    # Not where a function is made: PyTorch's tables of operators make some and call none.
    "torch.cuda.jiterator._JittedFunction.__call__": ("kernels in CUDA C++", "use torch.compile"),
    "torch.cuda.nccl.all_gather": ("handles of NCCL", "use torch.distributed"),
    "torch.cuda.nccl.all_reduce": ("handles of NCCL", "use torch.distributed"),
    "torch.cuda.nccl.broadcast": ("handles of NCCL", "use torch.distributed"),
    "torch.cuda.nccl.init_rank": ("handles of NCCL", "use torch.distributed"),
    "torch.cuda.nccl.reduce": ("handles of NCCL", "use torch.distributed"),
    "torch.cuda.nccl.reduce_scatter": ("handles of NCCL", "use torch.distributed"),
    "torch.cuda.nccl.unique_id": ("handles of NCCL", "use torch.distributed"),
    "torch.cuda.power_draw": (_NVML, "use the system's tools"),
    "torch.cuda.temperature": (_NVML, "use the system's tools"),
    "torch.cuda.tunable.enable": ("tuning of hipBLAS and cuBLAS", "leave it out"),
    "torch.cuda.tunable.tuning_enable": ("tuning of hipBLAS and cuBLAS", "leave it out"),
}
"""Functions, what they are made for, and what to do instead."""

MODULES: dict[str, str] = {
    "cupy": "use PyTorch's operators, or NumPy on tensors of the cpu",
    "numba.cuda": "use PyTorch's operators, or numba.njit on tensors of the cpu",
    "pycuda": "use PyTorch's operators",
}
"""Packages that compute on NVIDIA's devices, and what to do instead. Their import fails with an
ImportError, so that a program for which they are optional goes on without them."""


def apply(changes: Changes) -> None:
    """Put refusals where CUDA itself would be called."""
    for path, (what, instead) in FUNCTIONS.items():
        module, _, name = path.rpartition(".")
        owner = pkgutil.resolve_name(module)
        if hasattr(owner, name):
            refusal = _refusal(path, what, instead)
            changes.set(owner, name, refusal)
            if vars(torch.cuda).get(name) is not refusal and module == "torch.cuda":
                changes.set(torch.cuda, name, refusal)
    _refuse_array_interface(changes)
    finder = _Refuser()
    sys.meta_path.insert(0, finder)
    changes.on_undo(lambda: sys.meta_path.remove(finder))
    changes.when_imported("torch.utils.cpp_extension", lambda m: _refuse_cuda_sources(changes, m))
    changes.when_imported("triton.runtime.jit", lambda m: _refuse_triton(changes, m))


def _refusal(path: str, what: str, instead: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError(
            f"{path}: expected a device of NVIDIA, got loom under the name of CUDA: this is made "
            f"for {what}. Instead, {instead}"
        )

    return refuse


def _refuse_array_interface(changes: Changes) -> None:
    known: Any = torch.Tensor.__cuda_array_interface__

    def array_interface(self: torch.Tensor) -> Any:
        if not is_loom(self.device):
            return known.__get__(self)
        raise AttributeError(
            "__cuda_array_interface__: expected memory of a device of NVIDIA, got a tensor of loom "
            "under the name of CUDA. Move the tensor to the cpu, or exchange it by DLPack"
        )

    changes.set(torch.Tensor, "__cuda_array_interface__", property(array_interface))


def _refuse_cuda_sources(changes: Changes, module: ModuleType) -> None:
    known: Any = module._jit_compile

    def jit_compile(name: str, sources: Any, *args: Any, **named: Any) -> Any:
        listed = [sources] if isinstance(sources, str) else list(sources)
        for source in listed:
            if str(source).endswith((".cu", ".cuh")):
                raise RuntimeError(
                    f"torch.utils.cpp_extension: expected sources in C++, got {source}: loom runs "
                    "no kernels in CUDA C++. Leave them out (cuda_sources of load_inline), or "
                    "write the operator in C++ for loom: docs/guides/cpp.md"
                )
        return known(name, listed, *args, **named)

    changes.set(module, "_jit_compile", jit_compile)
    changes.set(
        module,
        "CUDAExtension",
        _refusal(
            "torch.utils.cpp_extension.CUDAExtension",
            "sources in CUDA C++",
            "use CppExtension without them",
        ),
    )


def _refuse_triton(changes: Changes, module: ModuleType) -> None:
    def run(self: Any, *_: Any, **__: Any) -> Any:
        raise RuntimeError(
            f"triton: expected a device of NVIDIA or AMD, got loom under the name of CUDA, which "
            f"runs no Triton kernels ({getattr(self, '__name__', self)}). Use the version of the "
            "function in PyTorch, with torch.compile"
        )

    changes.set(module.JITFunction, "run", run)


class _Refuser(importlib.abc.MetaPathFinder):
    """Refuses the import of packages that cannot work."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        instead = MODULES.get(fullname)
        if instead is None or importlib.machinery.PathFinder.find_spec(fullname, path) is None:
            return None  # not installed: Python says so
        raise ImportError(
            f"{fullname}: expected a device of NVIDIA, got loom under the name of CUDA: the "
            f"package computes on NVIDIA's devices only. Instead, {instead}",
            name=fullname,
        )
