# SPDX-License-Identifier: BSD-3-Clause
"""Lightning's accelerator for loom, for the packages of both names: lightning and the older ones.

Lightning has a registry of accelerators, so ``accelerator="loom"`` needs no patch. But it takes the
cpu for the device of any accelerator that it does not know, cuda for the one of autocast, and does
not ask the registry for ``accelerator="auto"``.

``lightning.pytorch`` and ``pytorch_lightning`` have the same text but not the same classes, and so
have ``lightning.fabric`` and ``lightning_fabric``.
"""

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from .._utils import is_loom
from .selection import is_the_accelerator

__all__ = ["patch_fabric", "patch_trainer"]


class _Loom:
    """What an accelerator of Lightning does, for loom."""

    def setup_device(self, device: torch.device) -> None:
        """Make the device the current one."""
        torch.accelerator.set_device_index(device)

    def teardown(self) -> None:
        """Give unused memory back."""
        torch.accelerator.empty_cache()

    @staticmethod
    def parse_devices(devices: int | str | list[int]) -> list[int]:
        """Indices of devices: of a number of them, of a list, or of text such as "0,1"."""
        count = torch.accelerator.device_count()
        if isinstance(devices, str) and "," in devices:
            devices = [int(index) for index in devices.split(",") if index.strip()]
        if not isinstance(devices, list):
            number = int(devices)
            devices = list(range(count if number == -1 else number))
        if not devices or not all(0 <= index < count for index in devices):
            raise ValueError(f"devices: expected some of the {count} loom devices, got {devices}")
        return devices

    @staticmethod
    def get_parallel_devices(devices: list[int]) -> list[torch.device]:
        """The devices with these indices."""
        return [torch.device("loom", index) for index in devices]

    @staticmethod
    def auto_device_count() -> int:
        """One: several devices of one host are a wish, not a default."""
        return 1

    @staticmethod
    def is_available() -> bool:
        """Whether loom is torch's accelerator."""
        return is_the_accelerator()

    @staticmethod
    def name() -> str:
        """The name in the registry."""
        return "loom"

    def get_device_stats(self, device: torch.device | str | int) -> dict[str, Any]:
        """Memory statistics, for the callback DeviceStatsMonitor."""
        statistics: dict[str, Any] = torch.accelerator.memory_stats(device)
        return statistics


def patch_trainer(connector: Any) -> None:
    """Put loom into the registry of the Trainer, and into its choices."""
    package = connector.__name__.removesuffix(".trainer.connectors.accelerator_connector")
    accelerators = import_module(f"{package}.accelerators")
    _patch(package, connector._AcceleratorConnector, accelerators.AcceleratorRegistry)
    _patch_ddp(import_module(f"{package}.strategies").DDPStrategy, "_setup_model")


def patch_fabric(connector: Any) -> None:
    """Put loom into the registry of Fabric, and into its choices."""
    package = connector.__name__.removesuffix(".connector")
    accelerators = import_module(f"{package}.accelerators")
    _patch(package, connector._Connector, accelerators.ACCELERATOR_REGISTRY)
    _patch_ddp(import_module(f"{package}.strategies").DDPStrategy, "setup_module")


def _patch_ddp(strategy: Any, name: str) -> None:
    # It makes DDP on a stream of CUDA's, whatever the device is.
    original: Callable[[Any, torch.nn.Module], Any] = getattr(strategy, name)

    @functools.wraps(original)
    def wrap_in_ddp(self: Any, module: torch.nn.Module) -> Any:
        if not is_loom(self.root_device):
            return original(self, module)
        return torch.nn.parallel.DistributedDataParallel(
            module=module, device_ids=[self.root_device.index], **self._ddp_kwargs
        )

    setattr(strategy, name, wrap_in_ddp)


def _patch(package: str, connector: Any, registry: Any) -> None:
    base = import_module(f"{package}.accelerators").Accelerator
    single_device = import_module(f"{package}.strategies").SingleDeviceStrategy
    mixed_precision = import_module(f"{package}.plugins").MixedPrecision
    auto: Callable[[], str] = connector._choose_auto_accelerator
    strategy: Callable[[Any], Any] = connector._choose_strategy
    precision: Callable[[Any], Any] = connector._check_and_init_precision

    def _choose_auto_accelerator() -> str:
        chosen = auto()
        return "loom" if chosen == "cpu" and is_the_accelerator() else chosen

    def _choose_strategy(self: Any) -> Any:
        chosen = strategy(self)
        devices = self._parallel_devices
        if isinstance(chosen, single_device) and devices and is_loom(devices[0]):
            return single_device(device=devices[0])
        return chosen

    def _check_and_init_precision(self: Any) -> Any:
        flag = getattr(self, "_precision_flag", None) or getattr(self, "_precision_input", None)
        mixed = flag in ("16-mixed", "bf16-mixed")  # not so where the user gave a plug-in
        if mixed and is_loom(self.strategy.root_device):
            return mixed_precision(flag, "loom")
        return precision(self)

    accelerator = type("LoomAccelerator", (_Loom, base), {"__module__": __name__})
    registry.register("loom", accelerator, description="the host's cores", override=True)
    connector._choose_auto_accelerator = staticmethod(_choose_auto_accelerator)
    connector._choose_strategy = _choose_strategy
    connector._check_and_init_precision = _check_and_init_precision
