# SPDX-License-Identifier: BSD-3-Clause
"""torch.multiprocessing: device memory is private to its process."""

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from .._replace import replace
from .._utils import hushed, is_loom


def apply() -> None:
    """Send storages by value, and refuse to share them."""
    _patch_multiprocessing()
    _patch_share_memory()


def _rebuild_storage(value: torch.UntypedStorage, device: str) -> Any:
    return value.to(device=torch.device(device))


def _rebuild_from_bytes(value: bytes, device: str) -> Any:
    # A storage of the cpu that takes over the bytes' memory, which nobody else has.
    tensor = torch.frombuffer(bytearray(value), dtype=torch.uint8) if value else torch.empty(0)
    return tensor.untyped_storage().to(device=torch.device(device))


def _bytes_of(storage: torch.UntypedStorage) -> bytes:
    on_host = storage.to(device=torch.device("cpu"))
    memory = (ctypes.c_char * on_host.nbytes()).from_address(on_host.data_ptr())
    return bytes(memory)


def _patch_multiprocessing() -> None:
    # torch.multiprocessing shares every storage that is not on cuda as if it were on cpu. Device
    # memory is private to its process, so a storage of loom travels by value: as one of the cpu in
    # shared memory, copied to the same device on arrival. Views of it in one message stay views.
    # An argument of a process that is being started travels inside the message that starts it:
    # the new process inherits descriptors that are open when it starts, and that of a temporary
    # storage is closed by then. (A descriptor sent to a running process is duplicated first.)
    from multiprocessing.context import get_spawning_popen
    from multiprocessing.reduction import ForkingPickler

    from torch.multiprocessing import reductions

    original: Callable[[torch.UntypedStorage], Any] = reductions.reduce_storage

    def reduce_storage(storage: torch.UntypedStorage) -> Any:
        if not is_loom(storage.device):
            return original(storage)
        # By its own name: the receiver may not call it "cuda".
        device = f"loom:{storage.device.index}"
        if get_spawning_popen() is not None:
            return _rebuild_from_bytes, (_bytes_of(storage), device)
        return _rebuild_storage, (storage.to(device=torch.device("cpu")), device)

    ForkingPickler.register(torch.UntypedStorage, reduce_storage)
    # A tensor of a device called "cuda" would be shared by handles of CUDA.
    for cls, reduce in list(ForkingPickler._extra_reducers.items()):  # type: ignore[attr-defined]
        if reduce is reductions.reduce_tensor:
            ForkingPickler.register(cls, hushed(reduce))


def _patch_share_memory() -> None:
    # torch takes the memory of every PrivateUse1 backend for shared, as that of cuda is: what
    # other processes then do to their copies would be lost without a word.
    share: Callable[..., torch.UntypedStorage] = torch.UntypedStorage.share_memory_
    is_shared_elsewhere: Callable[..., bool] = torch.UntypedStorage.is_shared

    def share_memory_(self: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        if is_loom(self.device):
            raise RuntimeError(
                f"share_memory_: expected memory of the cpu, got {self.device}: device memory is "
                "private to its process. Share the tensor or module on the cpu, and move it to "
                "loom in each process"
            )
        return share(self, *args, **kwargs)

    def is_shared(self: torch.UntypedStorage) -> bool:
        return not is_loom(self.device) and is_shared_elsewhere(self)

    replace(torch.UntypedStorage, "share_memory_", share_memory_)
    replace(torch.UntypedStorage, "is_shared", is_shared)
