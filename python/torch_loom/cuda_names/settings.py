# SPDX-License-Identifier: BSD-3-Clause
"""``torch.backends.cuda``, and kernels that a program registers for CUDA."""

import sys
from types import ModuleType
from typing import Any

import torch
import torch.backends.cuda
import torch.backends.cudnn

from .. import _C
from .changes import Changes


def apply(changes: Changes) -> None:
    """Say that CUDA is built in; ``torch.version.cuda`` and cuDNN stay ``None`` and absent.

    A version would make libraries look for NVIDIA's compiler, and Triton and NCCL's for a driver.
    """
    changes.set(torch._C, "_has_cuda", True)
    changes.set(torch.backends.cuda, "is_built", lambda: True)
    # Recurrent layers ask it of tensors that are on CUDA, where it warns that cuDNN is missing.
    changes.set(torch.backends.cudnn, "is_acceptable", lambda tensor: False)


_KEYS = {
    "AutocastCUDA": "AutocastPrivateUse1",
    "AutogradCUDA": "AutogradPrivateUse1",
    "CUDA": "PrivateUse1",
    "SparseCUDA": "SparsePrivateUse1",
}


def _key(name: str) -> str:
    if name not in _KEYS:
        return name
    # PyTorch's own modules register for both keys.
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__") == "torch.library":
        frame = frame.f_back
    is_torchs = str(frame.f_globals.get("__name__")).partition(".")[0] == "torch"
    return name if is_torchs else _KEYS[name]


def apply_to_libraries(changes: Changes) -> None:
    """Register a program's kernels for the key ``CUDA`` for loom instead, in ``torch.library``."""
    from torch.library import Library

    known_init: Any = Library.__init__
    known_impl: Any = Library.impl

    def init(self: Library, ns: str, kind: str, dispatch_key: str = "") -> None:
        known_init(self, ns, kind, _key(dispatch_key))

    def impl(
        self: Library, op_name: Any, fn: Any, dispatch_key: str = "", *args: Any, **named: Any
    ) -> Any:
        return known_impl(self, op_name, fn, _key(dispatch_key), *args, **named)

    known_load: Any = torch._ops._Ops.load_library

    def load_library(self: Any, path: Any) -> None:
        known_load(self, path)
        _C._redirect_cuda_name()  # the library's names, too

    def follow_extensions(module: ModuleType) -> None:
        known_import: Any = module._import_module_from_library

        def import_module(*args: Any, **named: Any) -> Any:
            found = known_import(*args, **named)
            _C._redirect_cuda_name()
            return found

        changes.set(module, "_import_module_from_library", import_module)

    changes.set(torch._ops._Ops, "load_library", load_library)
    changes.when_imported("torch.utils.cpp_extension", follow_extensions)
    changes.set(Library, "__init__", init)
    changes.set(Library, "impl", impl)
