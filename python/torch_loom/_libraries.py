# SPDX-License-Identifier: BSD-3-Clause
"""Libraries that choose among devices by name, and are told of loom as they are imported.

``torch.accelerator`` says which device there is, but these libraries go through lists of their own
and end at the cpu. Each patch changes that end only: what the user asks for comes first, and a
program in which loom is not torch's accelerator goes its usual way. A program that imports none of
them pays nothing.
"""

import functools
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

__all__ = ["apply"]


def apply() -> None:
    """Patch the libraries that are there, and the others when they come. Call once."""
    sys.meta_path.insert(0, _Finder([name for name in _PATCHES if name in sys.modules]))


def _accelerate_state(module: Any) -> None:
    # Accelerator().device, without the variable ACCELERATE_TORCH_DEVICE.
    chosen: Callable[[Any], torch.device] = module.PartialState.default_device.fget

    def default_device(self: Any) -> torch.device:
        device = chosen(self)
        return torch.device("loom") if device.type == "cpu" and _is_the_accelerator() else device

    module.PartialState.default_device = property(default_device, doc=chosen.__doc__)


def _transformers_training_args(module: Any) -> None:
    # TrainingArguments.device goes through the list a second time, and ends at the cpu even where
    # accelerate has chosen loom.
    arguments = module.TrainingArguments
    chosen: Callable[[Any], torch.device] = arguments._setup_devices.func

    def _setup_devices(self: Any) -> torch.device:
        device = chosen(self)
        state = self.distributed_state
        if device.type == "cpu" and not self.use_cpu and state is not None:
            device = state.device
            if device.type == "loom":
                return torch.device("loom", device.index or 0)
        return device

    replacement = functools.cached_property(_setup_devices)
    replacement.__set_name__(arguments, "_setup_devices")
    arguments._setup_devices = replacement

    # bf16=True is refused on a device that is not on the list. Replaced where it is asked: other
    # modules may hold the function from before torch was imported.
    supported: Callable[[], bool] = module.is_torch_bf16_gpu_available
    module.is_torch_bf16_gpu_available = lambda: supported() or _is_the_accelerator()


def _transformers_pipelines(module: Any) -> None:
    # A pipeline takes the accelerator if no device is named, and reads numbers as its indices. It
    # ends at the cpu, and moves the model there.
    pipeline = module.Pipeline
    original: Callable[..., None] = pipeline.__init__

    @functools.wraps(original)
    def __init__(self: Any, model: Any, *args: Any, **options: Any) -> None:  # noqa: N807
        device = options.get("device")
        if device is None and getattr(model, "hf_device_map", None) is None:
            device = 0
        if isinstance(device, int) and device >= 0 and _is_the_accelerator():
            options["device"] = torch.device("loom", device)
        original(self, model, *args, **options)

    pipeline.__init__ = __init__


def _lightning(module: Any) -> None:
    from . import _lightning

    _lightning.register(module)


def _safetensors(module: Any) -> None:
    from . import _safetensors

    _safetensors.register(module)


def _is_the_accelerator() -> bool:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return accelerator is not None and accelerator.type == "loom"


_PATCHES: dict[str, Callable[[Any], None]] = {
    "safetensors": _safetensors,
    "accelerate.state": _accelerate_state,
    "transformers.training_args": _transformers_training_args,
    "transformers.pipelines.base": _transformers_pipelines,
    "lightning.pytorch.trainer.connectors.accelerator_connector": _lightning,
}


def _try(patch: Callable[[Any], None], module: ModuleType) -> None:
    try:
        patch(module)
    except Exception as error:  # another version of the library: it works as without loom
        warnings.warn(
            f"torch-loom: {module.__name__} does not choose loom by itself: {error!r}",
            stacklevel=2,
        )


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of the table where Python finds them, and has them patched.

    A module may be in the middle of its own import when loom is registered: it was the first to
    import torch. It is patched when something else is imported after it.
    """

    def __init__(self, imported: list[str]) -> None:
        self._imported = imported
        self._patch_finished()

    def _patch_finished(self) -> None:
        waiting, self._imported = self._imported, []
        for name in waiting:
            module = sys.modules.get(name)
            if module is None:
                continue
            if getattr(module.__spec__, "_initializing", False):
                self._imported.append(name)
            else:
                _try(_PATCHES[name], module)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if self._imported:
            self._patch_finished()
        patch = _PATCHES.get(fullname)
        if patch is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, patch)
        return spec


class _Loader(importlib.abc.Loader):
    """Loads as another loader does, then patches the module."""

    def __init__(self, loader: Any, patch: Callable[[Any], None]) -> None:
        self._loader = loader
        self._patch = patch

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # What reads sources or resources through the module finds the usual loader.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _try(self._patch, module)
