# SPDX-License-Identifier: BSD-3-Clause
"""Pieces of Python and C++ that generated wrappers say about the device."""

from torch._inductor.codegen.common import DeviceOpOverrides

__all__ = ["LoomDeviceOps"]


class LoomDeviceOps(DeviceOpOverrides):
    """What is said for loom. Kernels take the current stream of their device, without a handle."""

    def import_get_raw_stream_as(self, name: str) -> str:
        return f"from torch_loom.inductor.interface import get_raw_stream as {name}"

    def set_device(self, device_idx: int | str) -> str:
        return f"torch.loom.set_device({device_idx})"

    def synchronize(self) -> str:
        return "torch.loom.synchronize()"

    def device_guard(self, device_idx: int | str) -> str:
        return f"torch.loom.device({device_idx})"

    def current_device_idx_expr(self) -> str:  # DEVICE_INDEX_EXPRESSION
        return "torch.loom.current_device()"

    def aten_device_type(self) -> str:  # ATEN_DEVICE_TYPE
        return "at::kPrivateUse1"

    def current_stream(self) -> str:
        return "torch.loom.current_stream()"

    def cpp_kernel_type(self) -> str:
        return "void*"  # of kernels that are loaded from files, which those of loom are not
