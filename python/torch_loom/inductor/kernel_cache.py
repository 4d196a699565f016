# SPDX-License-Identifier: BSD-3-Clause
"""Compiles and loads generated sources, in Inductor's cache of C++ libraries."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch._inductor import cpp_builder
from torch._inductor.async_compile import AsyncCompile, get_compile_threads, kernel_code_log
from torch._inductor.codecache import CppPythonBindingsCodeCache, LambdaFuture, clear_on_fresh_cache
from torch._inductor.custom_graph_pass import get_hash_for_files

from .. import _C
from .._replace import replace

__all__ = ["HEADERS", "INCLUDE", "KernelCache", "add_include_path", "headers_hash", "loom_kernel"]

INCLUDE = Path(__file__).parent.parent / "include"
"""Where the headers of generated sources are."""
HEADERS = tuple(sorted(INCLUDE.rglob("*.h")))
"""What generated sources include."""


@clear_on_fresh_cache
class KernelCache(CppPythonBindingsCodeCache):
    """Libraries that begin with loom's header, which is compiled once for all of them."""

    cache: dict[str, Any] = {}  # noqa: RUF012  # of this class, as Inductor's decorator wants it
    cache_clear = staticmethod(cache.clear)

    @classmethod
    def _get_uncompiled_header(cls, device: str) -> str | None:
        return str(INCLUDE / "torch_loom" / "kernel.h")


def loom_kernel(async_compile: AsyncCompile, argument_types: Sequence[str], source: str) -> Any:
    """Compile a generated source, beside others where Inductor does that; generated code calls it.

    Returns:
        The function that queues the kernel, or a future of it for `async_compile.wait`.
    """
    kernel_code_log.info("loom kernel:\n%s", source)
    _C._make_symbols_global()
    source = f"{source}\n// headers: {headers_hash()}\n"
    flags = (f"-I{INCLUDE}",)
    if get_compile_threads() <= 1:
        return KernelCache.load_pybinding(argument_types, source, extra_flags=flags)
    return LambdaFuture(
        KernelCache.load_pybinding_async(
            argument_types, source, extra_flags=flags, submit_fn=async_compile.submit
        )
    )


@functools.cache
def headers_hash() -> str:
    """Part of each source, whose text is the key of the cache: other headers make other code."""
    return get_hash_for_files(tuple(map(str, HEADERS))).hex()


def add_include_path() -> None:
    """Let Inductor's own builds for the device find loom's headers: those of packages."""
    original = cpp_builder.get_cpp_torch_device_options

    def get_cpp_torch_device_options(device_type: str, *args: Any, **named: Any) -> Any:
        definitions, include_dirs, *rest = original(device_type, *args, **named)
        if device_type == "loom":
            include_dirs = [*include_dirs, str(INCLUDE)]
        return (definitions, include_dirs, *rest)

    replace(cpp_builder, "get_cpp_torch_device_options", get_cpp_torch_device_options)
