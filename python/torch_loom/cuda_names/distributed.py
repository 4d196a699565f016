# SPDX-License-Identifier: BSD-3-Clause
"""``torch.distributed`` with ``nccl``, for which lccl answers."""

import functools
from datetime import timedelta
from typing import Any

import torch

from .._utils import is_loom_name
from .changes import Changes

__all__ = ["ProcessGroupNCCL", "apply"]

_TIMEOUT = timedelta(minutes=10)  # NCCL's default


class ProcessGroupNCCL:
    """A name for ``isinstance``, and for options that a program passes. No group is one."""

    class Options:
        """Options of NCCL, which a program sets and lccl does not have."""

        has_no_effect = True

        def __init__(self, is_high_priority_stream: bool = False) -> None:
            self.is_high_priority_stream = is_high_priority_stream
            self.config = _Config()
            self._timeout = _TIMEOUT

    def __init__(self, *_: Any, **__: Any) -> None:
        raise RuntimeError(
            "ProcessGroupNCCL: expected a device of NVIDIA, got loom, which has no NCCL. Call "
            'torch.distributed.init_process_group("nccl"), for which lccl answers'
        )


class _Config:
    """``ncclConfig_t``: takes any setting."""


def apply(changes: Changes) -> None:
    """Take lccl where a program says nccl, and call it so where the program asks."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import constants, distributed_c10d as c10d

    _translate_configurations(changes, c10d)
    for module in (torch.distributed, c10d, torch._C._distributed_c10d):
        changes.set(module, "ProcessGroupNCCL", ProcessGroupNCCL)
    for module in (torch.distributed, c10d):
        changes.set(module, "is_nccl_available", lambda: True)
    for module in (constants, c10d):
        changes.set(module, "default_pg_nccl_timeout", _TIMEOUT)
    changes.set_item(c10d.Backend.default_device_backend_map, "cuda", "nccl")
    changes.set_item(c10d.Backend.backend_type_map, "nccl", c10d.ProcessGroup.BackendType.CUSTOM)
    changes.set(torch.cuda.nccl, "version", lambda: (0, 0, 0))


def _translate_configurations(changes: Changes, c10d: Any) -> None:
    config = c10d.BackendConfig
    known_init = config.__init__
    known_repr = config.__repr__

    @functools.wraps(known_init)
    def init(self: Any, backend: Any, *rest: Any, **named: Any) -> None:
        known_init(self, backend, *rest, **named)
        self.device_backend_map = {
            device: "lccl" if name == "nccl" else name
            for device, name in self.device_backend_map.items()
        }

    @functools.wraps(known_repr)
    def text(self: Any) -> str:
        return ",".join(
            f"{'cuda' if is_loom_name(device) else device}:{'nccl' if name == 'lccl' else name}"
            for device, name in self.device_backend_map.items()
        )

    changes.set(config, "__init__", init)
    changes.set(config, "__repr__", text)
