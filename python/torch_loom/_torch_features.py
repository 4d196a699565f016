# SPDX-License-Identifier: BSD-3-Clause
"""What differs between the versions of torch that loom works with, by names of features.

No other file of the package compares versions or asks what torch has. Each feature says since which
version torch has it and what was changed there; it is looked for, so that a version in between is
taken for what it is. When the oldest supported version has a feature, its line and the code for
torch without it are removed: tests_py/package/test_torch_features.py fails then.
"""

import importlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ._built_for import TORCH as MINOR

__all__ = ["FEATURES", "MINOR", "NEWEST", "OLDEST", "Feature", "existing", "is_known", "minor_of"]

# MINOR is the version that the library was built for, and so that of the process.
OLDEST = "2.13"
"""The oldest version that loom is made for."""
NEWEST = "2.15"
"""The newest one. A later version may work: what does not fit it is left out, with a warning."""


def minor_of(version: str) -> str:
    """The minor version of a release: that of "2.14.1+cpu" is "2.14"."""
    return ".".join(version.split(".")[:2])


def is_known(version: str) -> bool:
    """Whether loom is made for a version of torch."""
    numbers = [tuple(map(int, minor_of(each).split("."))) for each in (OLDEST, version, NEWEST)]
    return numbers == sorted(numbers)


@dataclass(frozen=True)
class Feature:
    """Something that not all supported versions of torch have."""

    since: str
    """The first version that has it."""
    place: str
    """Where it is: a module, after a colon what in it, and in parentheses a parameter of that."""
    change: str
    """What PyTorch changed."""

    def is_there(self) -> bool:
        """Whether this torch has it. Imports the module that it is in."""
        place, _, parameter = self.place.rstrip(")").partition("(")
        module, _, path = place.partition(":")
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            if not hasattr(found, name):
                return False
            found = getattr(found, name)
        return not parameter or parameter in inspect.signature(found).parameters


GROUPED_LAYOUT_CHECKS = Feature(
    "2.14",
    "torch._inductor.codegen.wrapper:PythonWrapperCodegen.write_assert_size_stride_grouped",
    "Generated code checks the layouts of several inputs by one call, and the dtypes of results",
)
DEVICE_INDEX_EXPRESSION = Feature(
    "2.14",
    "torch._inductor.codegen.common:DeviceOpOverrides.current_device_idx_expr",
    "Code compiled on one rank for all names its device by an expression, not by a number",
)
STREAM_WAITS_BY_PARTITION = Feature(
    "2.14",
    "torch._functorch._aot_autograd.streams:_collect_sync_forward_deps",
    "In joint graphs, what waits of forward carry is apart from what those of backward do",
)
FULL_MESH_FILTER = Feature(
    "2.14",
    "torch.distributed.tensor._ops.utils:expand_to_full_mesh_op_strategy(full_mesh_strategy_filter)",
    "DTensor's filter of strategies was called `is_valid_strategy_cb`",
)
WORK_TIMEOUT = Feature(
    "2.14",
    "torch.distributed:Work.timeout",
    "An operation with other ranks says how long it may take",
)
READ_ONLY_EXPORTS = Feature(
    "2.14", "torch:Tensor.__dlpack__(read_only)", "A tensor is exported for readers only"
)
GROUP_TIMEOUTS = Feature(
    "2.14", "torch.distributed:set_timeout", "The timeout of a group is set for all of its backends"
)
ACCELERATOR_RANDOM = Feature(
    "2.14",
    "torch.accelerator:random",
    "torch.accelerator has functions for the states of default generators",
)
PHILOX_STATE = Feature(
    "2.14", "torch:Generator.philox_state", "Generators hand out places in their sequences"
)
BCOMPLEX32 = Feature(
    "2.14",
    "torch:bcomplex32",
    "Two bfloat16 are a complex number, where complex64 was taken before",
)
ATEN_DEVICE_TYPE = Feature(
    "2.15",
    "torch._inductor.codegen.common:DeviceOpOverrides.aten_device_type",
    "C++ of a device is named by a method, where the table cpp_utils.DEVICE_TO_ATEN was before",
)

FEATURES = {name: value for name, value in tuple(globals().items()) if isinstance(value, Feature)}


def existing(module: ModuleType, names: Sequence[str]) -> tuple[Any, ...]:
    """Those of the things with these names that a module of this torch has."""
    return tuple(getattr(module, name) for name in names if hasattr(module, name))
