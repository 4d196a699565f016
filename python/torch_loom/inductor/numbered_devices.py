# SPDX-License-Identifier: BSD-3-Clause
"""Operators with devices among their arguments, where C++ runs the graph.

PyTorch's runtime, which calls them in packages, replaces every device by one of its own. Integers
it passes on: cpp/loom/ops/numbered_devices.h has operators that take those instead.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._export.serde.schema import Argument, ArgumentKind, NamedArgument, Node

from torch_loom import _C

__all__ = ["list_of_operators", "number_of", "numbered", "takes_devices"]

_PREFIX = "loom_devices_"


def takes_devices(operator: Any) -> bool:
    """Whether a device is among the arguments, given or not."""
    types = (repr(argument.type) for argument in operator._schema.arguments)
    return any(each in ("Device", "Optional[Device]") for each in types)


def numbered(
    operator: Any, node: Node, arguments: Sequence[Any], number: Callable[[torch.device], str]
) -> tuple[Any, list[Any]]:
    """The operator that is called with integers, and what it is called with.

    `node`, which describes the call for PyTorch's runtime, changes with it.
    """
    if not isinstance(operator, torch._ops.OpOverload):
        raise NotImplementedError(
            f"AOTInductor: {operator} has a device as an argument, which PyTorch's packages "
            "replace by one of their own. Make the tensor before, or call it outside"
        )
    node.target = _C._define_with_numbered_devices(operator.name())
    described = {given.name: given for given in node.inputs}
    numbers = list(arguments)
    for i, (argument, value) in enumerate(zip(operator._schema.arguments, arguments, strict=False)):
        is_device = isinstance(value, torch.device)
        if is_device:
            numbers[i] = number(value)
        # Integers come with each call, defaults too, which Inductor does not describe.
        if is_device or (type(value) is int and argument.name not in described):
            kind = ArgumentKind.KEYWORD if argument.kwarg_only else ArgumentKind.POSITIONAL
            named = NamedArgument(argument.name, Argument.create(as_int=0), kind)
            described[argument.name] = named
    # The runtime takes integers in this order.
    names = [argument.name for argument in operator._schema.arguments]
    node.inputs = [described[name] for name in names if name in described]
    packet = getattr(getattr(torch.ops, _PREFIX + operator.namespace), operator._opname)
    return getattr(packet, operator._overloadname), numbers


def number_of(device: torch.device) -> str:
    """What stands for a device that is not loom's, in C++."""
    if device.type not in ("cpu", "meta"):
        raise NotImplementedError(
            f"AOTInductor: expected operators of packages on loom to be given devices of loom, cpu "
            f"or meta, got {device}"
        )
    return f"-1 - static_cast<int64_t>(aoti_torch_device_type_{device.type}())"


def list_of_operators(nodes: list[Any]) -> str:
    """C++ that tells the one who loads the package which operators it calls so."""
    targets = dict.fromkeys(each.node.target for each in nodes)
    names = [f'"{name.removeprefix(_PREFIX)}"' for name in targets if name.startswith(_PREFIX)]
    return f"""
    extern "C" AOTI_API const char* const* loom_package_operators() {{
      static const char* const names[] = {{{", ".join([*names, "nullptr"])}}};
      return names;
    }}
    """
