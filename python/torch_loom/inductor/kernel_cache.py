# SPDX-License-Identifier: BSD-3-Clause
"""Compiles and loads generated sources, in Inductor's cache of C++ libraries."""

import ctypes
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch._inductor.async_compile import AsyncCompile, get_compile_threads, kernel_code_log
from torch._inductor.codecache import CppPythonBindingsCodeCache, LambdaFuture, clear_on_fresh_cache
from torch._inductor.custom_graph_pass import get_hash_for_files

from .. import _C

__all__ = ["HEADERS", "KernelCache", "loom_kernel"]

_INCLUDE = Path(__file__).parent.parent / "include"
HEADERS = tuple(sorted(_INCLUDE.rglob("*.h")))
"""What generated sources include."""


@clear_on_fresh_cache
class KernelCache(CppPythonBindingsCodeCache):
    """Libraries that begin with loom's header, which is compiled once for all of them."""

    cache: dict[str, Any] = {}  # noqa: RUF012  # of this class, as Inductor's decorator wants it
    cache_clear = staticmethod(cache.clear)

    @classmethod
    def _get_uncompiled_header(cls, device: str) -> str | None:
        return str(_INCLUDE / "torch_loom" / "kernel.h")


def loom_kernel(async_compile: AsyncCompile, argument_types: Sequence[str], source: str) -> Any:
    """Compile a generated source, beside others where Inductor does that; generated code calls it.

    Returns:
        The function that queues the kernel, or a future of it for `async_compile.wait`.
    """
    kernel_code_log.info("loom kernel:\n%s", source)
    _make_entry_points_visible()
    source = f"{source}\n// headers: {_headers_hash()}\n"
    flags = (f"-I{_INCLUDE}",)
    if get_compile_threads() <= 1:
        return KernelCache.load_pybinding(argument_types, source, extra_flags=flags)
    return LambdaFuture(
        KernelCache.load_pybinding_async(
            argument_types, source, extra_flags=flags, submit_fn=async_compile.submit
        )
    )


@functools.cache
def _headers_hash() -> str:
    """Part of each source, whose text is the key of the cache: other headers make other code."""
    return get_hash_for_files(tuple(map(str, HEADERS))).hex()


@functools.cache
def _make_entry_points_visible() -> None:
    """Let libraries that are loaded from now on find loom_kernel_launch() and its like.

    Python loads modules, and so libtorch_loom.so, with symbols that only the module sees.
    """
    major, minor, *_ = _C.__version__.split(".")
    # In a wheel, which has no symbolic links, the library's name has no version.
    for name in (f"libtorch_loom.so.{major}.{minor}", "libtorch_loom.so"):
        try:
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL | os.RTLD_NOLOAD)
        except OSError:  # not the one that is loaded
            continue
        return
    raise ImportError("torch-loom: expected libtorch_loom.so to be loaded, found it by no name")
