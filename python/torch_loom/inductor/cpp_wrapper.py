# SPDX-License-Identifier: BSD-3-Clause
"""The C++ that runs a compiled graph: with `config.cpp_wrapper`, and in packages (AOTInductor).

It is Inductor's own for the cpu, and calls loom's kernels as that calls those of the cpu. Operators
are called through functions named after the device (cmake/codegen/aoti_shims.py). As in Python,
every allocation and kernel names its device, so no device guard is needed.
"""

import re
from typing import Any

import sympy
import torch
from torch._inductor import config, ir
from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
from torch._inductor.virtualized import V

from .._utils import is_loom
from . import numbered_devices
from .kernel_cache import headers_hash
from .kernel_group import INCLUDE
from .wrapper import KeepsInputs, check_reads_no_loom

__all__ = ["LoomCppWrapper"]

# Calls that note a division by zero, how a kernel of the cpu says where, and its threads.
_DIVISION = re.compile(r"\b(\w+_integral|mod)\(")
_NOTED = re.compile(r"\binductor_cpu_integer_div_error_flag = [^;]*;")
_THREADS = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+omp\b.*$", re.MULTILINE)
_THREAD_NUMBER = re.compile(r"\bomp_get_thread_num\(\)")


class _IncludeFlag(str):
    """Finds loom's headers where it is installed when the graph runs, maybe from a cache."""

    def __repr__(self) -> str:
        return 'f"-I{INCLUDE}"'


class LoomCppWrapper(KeepsInputs, CppWrapperCpu):
    """The wrapper of a graph and, inside it, of its subgraphs."""

    def __init__(self) -> None:
        self.device = "loom"
        super().__init__()
        self.needs_vec_isa = True

    @staticmethod
    def create(
        is_subgraph: bool,
        subgraph_name: str | None,
        parent_wrapper: Any,
        partition_signatures: Any = None,
    ) -> "LoomCppWrapper":
        return LoomCppWrapper()

    def write_header(self) -> None:
        if V.graph.aot_mode:
            _check_packaging()
        elif not V.graph.is_const_graph:
            self.header.writeline("from torch_loom import _C")
            self.header.writeline("from torch_loom.inductor.kernel_cache import INCLUDE")
            self.header.writeline("_C._make_symbols_global()")
        super().write_header()
        self.header.writeline(_headers())

    def _define_kernel_helper(
        self,
        kernel_name: str,
        kernel_body: str,
        metadata: str | None = None,
        gpu: bool = False,
        cpp_definition: str | None = None,
    ) -> None:
        # First: it renames a variable in what it includes, which kernels of the cpu include, too.
        if not self.kernel_declarations:
            self.kernel_declarations.writeline(INCLUDE)
            self.kernel_declarations.writeline(_headers())
        if INCLUDE not in kernel_body:
            kernel_body = _throws_where_it_divides(kernel_body)
        super()._define_kernel_helper(kernel_name, kernel_body, metadata, gpu, cpp_definition)

    def _generate_kernel_call_helper(
        self, kernel_name: str, call_args: Any, *, device: Any = None, **named: Any
    ) -> None:
        device = device or V.graph.get_current_device_or_throw()
        check_reads_no_loom(kernel_name, call_args, device)
        super()._generate_kernel_call_helper(kernel_name, call_args, device=device, **named)

    def _generate_end_jit(self, result: Any) -> None:
        # Kernels are in the same source, which Inductor optimises for the cpu only.
        self.device = "cpu"
        self.external_kernel_libs.add(_IncludeFlag("loom"))
        try:
            super()._generate_end_jit(result)
        finally:
            self.device = "loom"

    @staticmethod
    def _compatible_with_stableivalue(op: Any) -> bool:
        # Inductor writes a device as two arguments there, which no compiler takes.
        if numbered_devices.takes_devices(op):
            return False
        return bool(CppWrapperCpu._compatible_with_stableivalue(op))

    # Packages.

    def _write_aoti_interface_header(self) -> None:
        super()._write_aoti_interface_header()
        weights = str(config.aot_inductor.package_constants_in_so).lower()
        self.header.writeline(
            f"namespace loom_package {{ inline constexpr bool kHasWeights = {weights}; }}"
        )
        self.header.writeline("#include <torch_loom/package.h>")

    def codegen_model_constructor(self) -> None:
        # The runtime in the library would place constants in memory of the host: loom's runner
        # copies them from the library to the device.
        with config.patch({"aot_inductor.package_constants_in_so": False}):
            super().codegen_model_constructor()

    def _write_input_unpacking(self) -> None:
        super()._write_input_unpacking()
        for number, (name, value) in enumerate(V.graph.graph_inputs.items()):
            if isinstance(value, (sympy.Expr, ir.TorchBindObject)):
                continue
            device = value.get_device_or_error()
            if is_loom(device):
                index = self.codegen_device_idx(device, str(device.index or 0))
                expected = f"loom_package::loom({index})"
            else:
                expected = "loom_package::Device{aoti_torch_device_type_cpu(), 0}"
            self.prefix.writeline_aot(f"loom_package::check_input({number}, {name}, {expected});")

    def _write_constants_unpacking(self) -> None:
        if not config.aot_inductor.package_constants_in_so:
            self.prefix.writeline_aot("loom_package::check_loaded(*constants_);")
        super()._write_constants_unpacking()

    def generate_fallback_kernel_with_runtime_lookup_aot(
        self, op_overload: Any, raw_args: Any, *args: Any
    ) -> None:
        if _folds_constants(V.graph):
            raise NotImplementedError(
                f"AOTInductor: {op_overload} cannot be called when constants are folded at run "
                "time: PyTorch packages such calls without saying what they are. Set "
                "aot_inductor.use_runtime_constant_folding=False"
            )
        if any(isinstance(argument, torch.device) for argument in raw_args):
            node = V.extern_kernel_nodes[-1].node
            op_overload, raw_args = numbered_devices.numbered(
                op_overload, node, raw_args, self._device_number
            )
        super().generate_fallback_kernel_with_runtime_lookup_aot(op_overload, raw_args, *args)

    def _device_number(self, device: torch.device) -> str:
        if is_loom(device):
            return str(self.codegen_device_idx(device, str(device.index or 0)))
        return numbered_devices.number_of(device)

    def _generate_end_aoti(self, result: Any) -> None:
        super()._generate_end_aoti(result)
        if not V.graph.is_const_graph:
            result.splice(numbered_devices.list_of_operators(V.extern_kernel_nodes))


def _folds_constants(graph: Any) -> bool:
    """Whether a graph computes constants at run time, or is inside of one that does."""
    while graph is not None:
        if graph.is_const_graph:
            return True
        graph = getattr(graph, "parent", None)
    return False


def _headers() -> str:
    """A line for each source, whose text is its key in caches: other headers make other code."""
    return f"// headers: {headers_hash()}"


def _throws_where_it_divides(source: str) -> str:
    """A kernel of the cpu without the variable in which it notes a division by zero.

    Kernels of loom, which run beside it, rename that variable, and it stays null. So what divides
    throws, which it may do outside of OpenMP's threads only.
    """
    if _DIVISION.search(source):
        source = _THREAD_NUMBER.sub("0", _THREADS.sub("", source))
    return _NOTED.sub("", source)


def _check_packaging() -> None:
    """Refuse what needs a runtime of PyTorch's that knows the device."""
    settings = config.aot_inductor
    if settings.package_constants_on_disk_format == "binary_blob":
        raise NotImplementedError(
            'AOTInductor: aot_inductor.package_constants_on_disk_format="binary_blob" is not '
            "possible on loom. Leave the weights in the package's library, which is the default"
        )
    if not settings.dynamic_linkage:
        raise NotImplementedError(
            "AOTInductor: aot_inductor.dynamic_linkage=False is not possible on loom: packages "
            "are loaded by loom's runner"
        )
