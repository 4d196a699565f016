# SPDX-License-Identifier: BSD-3-Clause
"""``lccl``, loom's backend of :mod:`torch.distributed`.

It is registered with torch: ``torch.distributed.init_process_group()`` takes it for tensors of
loom, and Gloo for those of the cpu; ``"lccl"`` alone takes it for both. Operations are asynchronous
in stream order; an error of one ends the group on all ranks, and says which rank failed in what.
"""

import copy
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from . import _C

__all__ = ["flight_record", "recent_operations"]


def register() -> None:
    """Register the backend. Call once."""
    from torch.distributed import distributed_c10d as c10d

    c10d.Backend.register_backend("lccl", _create, extended_api=True, devices=["loom"])
    c10d.Backend.backend_capability["lccl"] = ["loom", "cpu"]
    if dist.is_gloo_available():
        _C._set_network_factory(dist.ProcessGroupGloo)


def recent_operations(group: dist.ProcessGroup | None = None) -> list[dict[str, Any]]:
    """Tell of the operations that were called last, oldest first.

    For those who ask why a group hangs or has failed: the first one whose state is not the same on
    all ranks is where to look.

    Args:
        group (ProcessGroup, optional): by default the default group.

    Returns:
        list of dict: ``name``; ``number``, how many operations of the group, or messages with the
        same peer, came before it; ``bytes`` of its tensors; ``state``: ``queued``, ``running``,
        ``done`` or ``failed``; ``error``, empty unless it has failed.

    Raises:
        RuntimeError: when the group has no backend for loom, or another one than lccl.
    """
    group = group or dist.group.WORLD
    if group is None:
        raise RuntimeError("recent_operations(): expected a process group, got none")
    backend = _lccl_of(group)
    if backend is None:
        raise RuntimeError(
            "recent_operations(): expected a group whose backend for loom is lccl, got "
            f"{group._get_backend(torch.device('loom'))}"
        )
    records: list[dict[str, Any]] = backend._records()
    return records


def flight_record() -> bytes:
    """Tell of the last operations of all groups of this process as PyTorch's flight recorder does.

    Written to files that end with the rank, one for each, the records are compared by
    ``torchfrtrace``. When a group has failed that happens by itself if
    ``TORCH_FR_DUMP_TEMP_FILE`` says where.

    Returns:
        bytes: a pickle.
    """
    return _C._flight_record()


def set_timeout(group: dist.ProcessGroup, timeout: timedelta) -> bool:
    """Set the timeout of a group's operations. Returns False if it has no lccl."""
    backend = _lccl_of(group)
    if backend is None:
        return False
    backend.set_timeout(timeout)
    return True


def _lccl_of(group: dist.ProcessGroup) -> Any:
    if torch.device("loom") not in group._device_types:
        return None
    backend: Any = group._get_backend(torch.device("loom"))
    backend = getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL
    return backend if hasattr(backend, "_records") else None


def _create(group: Any, options: Any) -> Any:
    # The classes derive from torch's, which are there by now.
    _C._bind_distributed()
    is_ours = options is not None and not getattr(options, "has_no_effect", False)
    own = copy.copy(options) if is_ours else _C._LcclOptions(group.timeout)
    own._timeout = group.timeout
    own.group_name = group.group_id
    own.global_ranks_in_group = group.global_ranks_in_group
    return _C._ProcessGroupLccl(group.store, group.group_rank, group.group_size, own)
