# SPDX-License-Identifier: BSD-3-Clause
"""Hugging Face accelerate: device, ranks, memory for device maps, scalers, checkpoints."""

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from .selection import add_to_device_lists, is_the_accelerator, replace

__all__ = [
    "patch_accelerator",
    "patch_checkpointing",
    "patch_memory",
    "patch_modeling",
    "patch_state",
]


def patch_state(module: Any) -> None:
    """``Accelerator().device`` is loom, without the variable ACCELERATE_TORCH_DEVICE."""
    chosen: Callable[[Any], torch.device] = module.PartialState.default_device.fget

    def default_device(self: Any) -> torch.device:
        device = chosen(self)
        return torch.device("loom") if device.type == "cpu" and is_the_accelerator() else device

    module.PartialState.default_device = property(default_device, doc=chosen.__doc__)
    _patch_ranks(module.PartialState, module.DistributedType)


def _patch_ranks(state: Any, kinds: Any) -> None:
    # Under torchrun each rank would take itself for the only process, and train alone.
    prepare: Callable[..., tuple[Any, Any]] = state._prepare_backend
    choose_device: Callable[[Any], None] = state.set_device

    @functools.wraps(prepare)
    def _prepare_backend(
        self: Any, cpu: bool = False, sagemaker_dp: bool = False, backend: str | None = None
    ) -> tuple[Any, Any]:
        found, kind = prepare(self, cpu, sagemaker_dp, backend)
        if kind == kinds.NO and not cpu and "LOCAL_RANK" in os.environ and is_the_accelerator():
            # The kind for which DDP is given a device of its own.
            return backend or "cpu:gloo,loom:lccl", kinds.MULTI_GPU
        return found, kind

    @functools.wraps(choose_device)
    def set_device(self: Any) -> None:
        if (
            self.device is None
            and self.distributed_type == kinds.MULTI_GPU
            and is_the_accelerator()
        ):
            index = self.local_process_index % torch.accelerator.device_count()
            self.device = torch.device("loom", index)
            torch.accelerator.set_device_index(index)
        choose_device(self)

    state._prepare_backend = _prepare_backend
    state.set_device = set_device


def patch_accelerator(module: Any) -> None:
    """``Accelerator(mixed_precision="fp16")`` is not refused."""
    add_to_device_lists(module.Accelerator.__init__)


def patch_memory(module: Any) -> None:
    """``clear_device_cache()``, which goes before each attempt after running out of memory."""
    clear: Callable[..., None] = module.clear_device_cache

    @functools.wraps(clear)
    def clear_device_cache(*args: Any, **options: Any) -> None:
        clear(*args, **options)
        if is_the_accelerator():
            torch.accelerator.empty_cache()

    replace(module, "clear_device_cache", clear_device_cache)


def patch_modeling(module: Any) -> None:
    """The memory that ``device_map="auto"`` shares out is loom's; a scaler scales for loom."""
    max_memory_of: Callable[[Any], dict[Any, int]] = module.get_max_memory
    grad_scaler: Callable[..., Any] = module.get_grad_scaler

    @functools.wraps(max_memory_of)
    def get_max_memory(max_memory: Any = None) -> dict[Any, int]:
        if not is_the_accelerator():
            return max_memory_of(max_memory)
        if max_memory is None:
            return _memory_to_share(max_memory_of(None))
        # The original warns of numbers, because CUDA has no such devices. It turns texts such as
        # "1GB" into bytes in the caller's dictionary, where transformers reads them.
        count = torch.accelerator.device_count()
        numbers = sorted(key for key in max_memory if isinstance(key, int) and 0 <= key < count)
        others = max_memory_of(
            {key: size for key, size in max_memory.items() if key not in numbers}
        )
        max_memory.update(others)
        for key in numbers:
            if isinstance(max_memory[key], str):
                max_memory[key] = module.convert_file_size_to_int(max_memory[key])
        return {**{key: max_memory[key] for key in numbers}, **others}

    @functools.wraps(grad_scaler)
    def get_grad_scaler(distributed_type: Any = None, **options: Any) -> Any:
        if distributed_type == module.DistributedType.FSDP or not is_the_accelerator():
            return grad_scaler(distributed_type, **options)
        return torch.amp.GradScaler("loom", **options)

    replace(module, "get_max_memory", get_max_memory)
    replace(module, "get_grad_scaler", get_grad_scaler)


def _memory_to_share(found: dict[Any, int]) -> dict[Any, int]:
    """What there is for a model: the devices' memory, and the host's that no device may take."""
    count = torch.accelerator.device_count()
    devices = {index: torch.accelerator.get_memory_info(index)[0] for index in range(count)}
    available = found.pop("cpu", 0)
    wanted = sum(devices.values())
    if wanted > available:  # all of it is the host's memory, and nothing may be counted twice
        devices = {index: free * available // wanted for index, free in devices.items()}
    rest = {"cpu": available - wanted} if available > wanted else {}
    return {**devices, **rest, **found}


def patch_checkpointing(module: Any) -> None:
    """``save_state()`` and ``load_state()`` know the state of loom's random numbers."""
    save: Callable[..., Any] = module.save_accelerator_state
    load: Callable[..., Any] = module.load_accelerator_state

    def file_of(original: Callable[..., Any], folder: str, arguments: Any, options: Any) -> Path:
        bound = inspect.signature(original).bind(*arguments, **options).arguments
        return Path(bound[folder]) / f"{module.RNG_STATE_NAME}_{bound['process_index']}_loom.pkl"

    @functools.wraps(save)
    def save_accelerator_state(*arguments: Any, **options: Any) -> Any:
        result = save(*arguments, **options)
        if is_the_accelerator():
            states = torch.loom.get_rng_state_all()  # type: ignore[attr-defined]
            torch.save(states, file_of(save, "output_dir", arguments, options))
        return result

    @functools.wraps(load)
    def load_accelerator_state(*arguments: Any, **options: Any) -> Any:
        result = load(*arguments, **options)
        path = file_of(load, "input_dir", arguments, options)
        if is_the_accelerator() and path.exists():
            states = torch.load(path)[: torch.accelerator.device_count()]
            torch.loom.set_rng_state_all(states)  # type: ignore[attr-defined]
        return result

    replace(module, "save_accelerator_state", save_accelerator_state)
    replace(module, "load_accelerator_state", load_accelerator_state)
