# SPDX-License-Identifier: BSD-3-Clause
"""Hugging Face transformers: Trainer, pipelines, device maps, caches that wait on the host."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from .._utils import is_loom
from .selection import add_to_device_lists, is_the_accelerator, replace

__all__ = [
    "patch_accelerate",
    "patch_cache_utils",
    "patch_modeling_utils",
    "patch_pipelines",
    "patch_trainer",
    "patch_training_args",
]


def patch_training_args(module: Any) -> None:
    """``TrainingArguments.device`` is what accelerate has chosen, and takes bf16."""
    # It goes through the list a second time, and ends at the cpu even where accelerate has chosen
    # loom.
    arguments = module.TrainingArguments
    chosen: Callable[[Any], torch.device] = arguments._setup_devices.func

    def _setup_devices(self: Any) -> torch.device:
        device = chosen(self)
        state = self.distributed_state
        if device.type == "cpu" and not self.use_cpu and state is not None:
            device = state.device
            if is_loom(device):
                return torch.device("loom", device.index or 0)
        return device

    replacement = functools.cached_property(_setup_devices)
    replacement.__set_name__(arguments, "_setup_devices")
    arguments._setup_devices = replacement

    # bf16=True is refused on a device that is not on the list. Replaced where it is asked: other
    # modules may hold the function from before torch was imported.
    supported: Callable[[], bool] = module.is_torch_bf16_gpu_available
    module.is_torch_bf16_gpu_available = lambda: supported() or is_the_accelerator()


def patch_pipelines(module: Any) -> None:
    """A pipeline takes the accelerator if no device is named, and reads numbers as its indices.

    Without the patch it ends at the cpu, and moves the model there.
    """
    pipeline = module.Pipeline
    original: Callable[..., None] = pipeline.__init__

    @functools.wraps(original)
    def __init__(self: Any, model: Any, *args: Any, **options: Any) -> None:  # noqa: N807
        device = options.get("device")
        if device is None and getattr(model, "hf_device_map", None) is None:
            device = 0
        if isinstance(device, int) and device >= 0 and is_the_accelerator():
            options["device"] = torch.device("loom", device)
        original(self, model, *args, **options)

    pipeline.__init__ = __init__


def patch_trainer(module: Any) -> None:
    """A checkpoint of a Trainer has the state of loom's random numbers."""
    trainer = module.Trainer
    save: Callable[[Any, str], None] = trainer._save_rng_state
    load: Callable[[Any, str | None], None] = trainer._load_rng_state

    def file_of(self: Any, folder: str) -> Path:
        return Path(folder) / f"rng_state_loom_{self.args.process_index}.pth"

    def _save_rng_state(self: Any, output_dir: str) -> None:
        save(self, output_dir)
        if is_the_accelerator():
            states = torch.loom.get_rng_state_all()  # type: ignore[attr-defined]
            torch.save(states, file_of(self, output_dir))

    def _load_rng_state(self: Any, checkpoint: str | None) -> None:
        load(self, checkpoint)
        if checkpoint is None or not is_the_accelerator():
            return
        path = file_of(self, checkpoint)
        if path.exists():
            states = torch.load(path)[: torch.accelerator.device_count()]
            torch.loom.set_rng_state_all(states)  # type: ignore[attr-defined]

    trainer._save_rng_state = _save_rng_state
    trainer._load_rng_state = _load_rng_state


def patch_accelerate(module: Any) -> None:
    """A device map has the memory that loom's allocator keeps for reuse."""
    max_memory_of: Callable[[Any], dict[Any, int]] = module.get_max_memory

    @functools.wraps(max_memory_of)
    def get_max_memory(max_memory: Any = None) -> dict[Any, int]:
        found = max_memory_of(max_memory)
        if max_memory is None and is_the_accelerator():
            for index in found:
                if isinstance(index, int):
                    kept = torch.accelerator.memory_reserved(index)
                    found[index] += kept - torch.accelerator.memory_allocated(index)
        return found

    replace(module, "get_max_memory", get_max_memory)


def patch_modeling_utils(module: Any) -> None:
    """Loading a model reserves no more memory ahead than a device has."""
    add_to_device_lists(module.caching_allocator_warmup)


def patch_cache_utils(module: Any) -> None:
    """Offloaded caches: ``Cache.update`` asks torch.cuda for the stream of the model."""
    cache = module.Cache
    original: Callable[..., Any] = cache.update

    @functools.wraps(original)
    def update(
        self: Any, key_states: Any, value_states: Any, layer_idx: int, *args: Any, **options: Any
    ) -> Any:
        if not self.offloading or not is_loom(key_states.device):
            return original(self, key_states, value_states, layer_idx, *args, **options)
        if self.layer_class_to_replicate is not None:
            while len(self.layers) <= layer_idx:
                self.layers.append(self.layer_class_to_replicate())
        # Each waits for the other: a layer that is needed now, and memory that is used again.
        stream = torch.accelerator.current_stream(key_states.device)
        stream.wait_stream(self.prefetch_stream)
        self.prefetch_stream.wait_stream(stream)
        self.prefetch(layer_idx + 1, self.only_non_sliding)
        self.offloading = False
        try:
            result = original(self, key_states, value_states, layer_idx, *args, **options)
        finally:
            self.offloading = True
        self.offload(layer_idx, self.only_non_sliding)
        return result

    cache.update = update
