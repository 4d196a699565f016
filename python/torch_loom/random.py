# SPDX-License-Identifier: BSD-3-Clause
"""Random numbers: one Philox generator for each device.

Numbers depend on the seed and on the order of calls only, not on timing or the number of threads.
A seed given before the first use of loom starts nothing. Every function may be called from any
thread.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import torch
from torch import Tensor

from . import _C
from ._utils import DeviceLike, _get_device_index, device_name
from .device import _lazy_call, _lazy_init, current_device, device_count

__all__ = [
    "default_generators",
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


class _DefaultGenerators(Sequence[torch.Generator]):
    """The default generator of each device, looked up when it is asked for.

    A tuple would have to be filled at import and so would have to read the environment then.
    """

    @overload
    def __getitem__(self, index: int) -> torch.Generator: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[torch.Generator, ...]: ...
    def __getitem__(self, index: int | slice) -> torch.Generator | tuple[torch.Generator, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        if not -len(self) <= index < len(self):
            raise IndexError(
                f"torch.{device_name()}.default_generators: expected an index below {len(self)}, "
                f"got {index}"
            )
        _lazy_init()
        return _C._default_generator(index % len(self))

    def __len__(self) -> int:
        return device_count()

    def __iter__(self) -> Iterator[torch.Generator]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        return repr(tuple(self))


default_generators: Sequence[torch.Generator] = _DefaultGenerators()


def _get_generator(device: DeviceLike) -> torch.Generator:
    _lazy_init()
    return _C._default_generator(_get_device_index(device, optional=True))


def get_rng_state(device: DeviceLike = "loom") -> Tensor:
    r"""Return the state of a device's generator: 16 bytes, a seed and an offset, on the cpu.

    Args:
        device (torch.device or str or int): the device. Default: the current device.
    """
    return _get_generator(device).get_state()


def get_rng_state_all() -> list[Tensor]:
    r"""Return the states of the generators of all devices."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state: Tensor, device: DeviceLike = "loom") -> None:
    r"""Set the state of a device's generator.

    Args:
        new_state (ByteTensor): a state that :func:`get_rng_state` returned.
        device (torch.device or str or int): the device. Default: the current device.

    Raises:
        RuntimeError: when ``new_state`` is not such a state.
    """
    _get_generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    r"""Set the states of the generators of all devices, in their order."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def _get_rng_state_offset(device: DeviceLike = "loom") -> int:
    return _get_generator(device).get_offset()


def _set_rng_state_offset(offset: int, device: DeviceLike = "loom") -> None:
    _get_generator(device).set_offset(offset)


def _seed(devices: Iterable[int], seed: int) -> None:
    for index in devices:
        _C._default_generator(index).manual_seed(int(seed))


def manual_seed(seed: int) -> None:
    r"""Seed the generator of the current device. :func:`torch.manual_seed` seeds all devices.

    Args:
        seed (int): from -2**63 to 2**64 - 1; negative values count from 2**64 down.
    """
    _lazy_call(lambda: _seed([current_device()], seed))


def manual_seed_all(seed: int) -> None:
    r"""Seed the generators of all devices. ``seed`` as for :func:`manual_seed`."""
    _lazy_call(lambda: _seed(range(device_count()), seed))


def seed() -> None:
    r"""Seed the generator of the current device from the system's entropy."""
    _get_generator(None).seed()


def seed_all() -> None:
    r"""Seed the generators of all devices alike, from the system's entropy."""
    manual_seed_all(_get_generator(0).seed())


def initial_seed() -> int:
    r"""Return the seed of the current device's generator."""
    return _get_generator(None).initial_seed()
