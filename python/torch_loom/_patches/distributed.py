# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed: the backend lccl, and where torch knows those of other devices by name."""

import functools
from typing import Any

import torch

from .. import _torch_features
from .._replace import replace
from .._utils import is_loom, is_loom_name, loom_names


def apply() -> None:
    """Register lccl, where torch has torch.distributed, and have process groups know it."""
    if not torch.distributed.is_available():
        return
    from torch_loom import distributed

    distributed.register()
    _patch_default_backends()
    _patch_groups()
    _patch_timeouts()
    _patch_bfloat16_hooks()
    _name_lccl()


def _patch_default_backends() -> None:
    # Without a backend's name torch gives a group that of the accelerator alone, and then looks
    # for its default among those of the cpu: DDP and objects find none.
    from torch.distributed import distributed_c10d as c10d

    original = c10d.BackendConfig.__init__

    @functools.wraps(original)
    def init(self: Any, backend: Any, *rest: Any, **named: Any) -> None:
        if str(backend) == c10d.Backend.UNDEFINED and _is_accelerator():
            backend = "cpu:gloo,loom:lccl"
        original(self, backend, *rest, **named)

    replace(c10d.BackendConfig, "__init__", init)


def _patch_groups() -> None:
    # Of several backends torch compares the names of registered ones in capitals with small ones,
    # and leaves the group without a default. Gloo knows its ranks in the first default group of a
    # process only, and looks them up beyond the end of a list when it splits another one.
    from torch.distributed import distributed_c10d as c10d

    original = c10d._new_process_group_helper

    @functools.wraps(original)
    def new_process_group(*args: Any, **named: Any) -> Any:
        group, store = original(*args, **named)
        if isinstance(group, c10d.ProcessGroup) and (gloo := _gloo_beside_lccl(group)) is not None:
            group._set_default_backend(c10d.ProcessGroup.BackendType.CUSTOM)
            if not gloo.options.global_ranks_in_group:
                gloo.options.global_ranks_in_group = list(range(group.size()))
        return group, store

    replace(c10d, "_new_process_group_helper", new_process_group)


def _gloo_beside_lccl(group: Any) -> Any:
    types = group._device_types
    if torch.device("cpu") not in types or torch.device("loom") not in types:
        return None
    ours, other = (group._get_backend(torch.device(device)) for device in ("loom", "cpu"))
    return other if ours.name() == "lccl" and other.name() == "gloo" else None


def _patch_timeouts() -> None:
    # torch sets those of its own backends only, before it has GROUP_TIMEOUTS.
    if _torch_features.GROUP_TIMEOUTS.is_there():
        return
    from torch.distributed import distributed_c10d as c10d

    from torch_loom import distributed

    original = c10d._set_pg_timeout

    @functools.wraps(original)
    def set_pg_timeout(timeout: Any, group: Any = None) -> None:
        chosen = c10d._get_default_group() if group is None else group
        is_ours = isinstance(chosen, c10d.ProcessGroup) and distributed.set_timeout(chosen, timeout)
        # Where nothing is left for torch it warns.
        if not is_ours or _has_gloo(chosen):
            original(timeout, group)

    replace(c10d, "_set_pg_timeout", set_pg_timeout)


def _has_gloo(group: Any) -> bool:
    from torch.distributed import distributed_c10d as c10d

    backends = [group._get_backend(device) for device in group._device_types]
    return c10d.is_gloo_available() and any(isinstance(b, c10d.ProcessGroupGloo) for b in backends)


def _patch_bfloat16_hooks() -> None:
    # DDP takes hooks that send bfloat16 for ones that need NCCL or XCCL. lccl sums it as well.
    from torch.nn.parallel import DistributedDataParallel

    original = DistributedDataParallel._check_comm_hook

    @functools.wraps(original)
    def check_comm_hook(self: Any, hook: Any) -> Any:
        name = getattr(hook, "__name__", "")
        if is_loom_name(self.device_type) and name in (
            "bf16_compress_hook",
            "bf16_compress_wrapper_hook",
        ):
            return None
        return original(self, hook)  # type: ignore[no-untyped-call]

    replace(DistributedDataParallel, "_check_comm_hook", check_comm_hook)


_COLLECTIVES = (
    "all_gather_single",
    "all_gather_single_coalesced",
    "all_to_all_single",
    "allgather",
    "_allgather_base",
    "allgather_coalesced",
    "allgather_into_tensor_coalesced",
    "allreduce",
    "allreduce_coalesced",
    "alltoall",
    "alltoall_base",
    "broadcast",
    "gather",
    "recv",
    "recv_anysource",
    "reduce",
    "reduce_scatter",
    "_reduce_scatter_base",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced",
    "scatter",
    "send",
)


def _name_lccl() -> None:
    # torch says that a group has no backend for loom, and not which one it could have.
    for name in _COLLECTIVES:
        method = getattr(torch.distributed.ProcessGroup, name)
        replace(torch.distributed.ProcessGroup, name, _with_advice(method))
    # DistributedDataParallel, before anything else.
    for name in ("_verify_params_across_processes", "_broadcast_coalesced"):
        replace(torch.distributed, name, _with_advice(getattr(torch.distributed, name)))


def _with_advice(function: Any) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except RuntimeError as error:
            known = "No backend type associated with device type "
            if not any(known + name in str(error) for name in loom_names()):
                raise
        raise RuntimeError(
            f"{function.__name__.strip('_')}: expected tensors of a device that the process group "
            "has a backend for, got tensors on loom. The backend for loom is lccl: call "
            'torch.distributed.init_process_group("cpu:gloo,loom:lccl"), or without a backend'
        )

    return call


def _is_accelerator() -> bool:
    accelerator = torch.accelerator.current_accelerator()
    return accelerator is not None and is_loom(accelerator)
