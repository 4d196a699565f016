# SPDX-License-Identifier: BSD-3-Clause
"""safetensors on loom: its library refuses devices that are not on its own list.

A file that is opened for loom is opened for the cpu, and each tensor goes on to its device.
"""

from typing import Any

import torch

from .._utils import is_loom_name

__all__ = ["patch"]


def patch(module: Any) -> None:
    """Let ``safetensors.safe_open`` take loom devices."""
    original = module.safe_open

    class EitherKind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, (original, _OnDevice))

    class safe_open(metaclass=EitherKind):  # noqa: N801
        __doc__ = original.__doc__

        def __new__(cls, filename: Any, framework: str, device: Any = "cpu", **options: Any) -> Any:
            if not is_loom_name(str(device).partition(":")[0]):
                return original(filename, framework, device, **options)
            return _OnDevice(original(filename, framework, "cpu", **options), torch.device(device))

    safe_open.__module__ = original.__module__
    safe_open.__qualname__ = original.__qualname__
    module.safe_open = safe_open


class _OnDevice:
    """An open file, or a slice of it, whose tensors are copied to a device as they are read."""

    def __init__(self, inner: Any, device: torch.device) -> None:
        self._inner = inner
        self._device = device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __enter__(self) -> "_OnDevice":
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._inner.__exit__(*error)

    def __getitem__(self, index: Any) -> torch.Tensor:
        tensor: torch.Tensor = self._inner[index]
        return tensor.to(self._device)

    def get_slice(self, name: str) -> "_OnDevice":
        return _OnDevice(self._inner.get_slice(name), self._device)

    def get_tensor(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self._inner.get_tensor(name)
        return tensor.to(self._device)

    def get_tensors(self) -> dict[str, torch.Tensor]:
        return {name: tensor.to(self._device) for name, tensor in self._inner.get_tensors().items()}
