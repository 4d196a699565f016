# SPDX-License-Identifier: BSD-3-Clause
"""The checks of module_db and optim_db: modules and their gradients, optimisers and their steps."""

from __future__ import annotations

import copy
from typing import Any

import torch
from op_checks import Check
from torch.testing._internal.common_optimizers import OptimizerInput

from support.oracle import Mover, Outcome, compare, leaves, map_leaves

STEPS = 5


def run_module(info: Any, given: Any, device: str, compiled: bool = False) -> Outcome:
    """Results, gradients of inputs and parameters, and buffers afterwards."""
    mover = Mover(device)
    torch.manual_seed(11)
    constructor = given.constructor_input
    module = info.module_cls(*constructor.args, **constructor.kwargs)
    module = copy.deepcopy(module).to(device)
    args = map_leaves(mover, given.forward_input.args)
    kwargs = map_leaves(mover, given.forward_input.kwargs)
    torch.manual_seed(7)
    try:
        forward = Check.as_compiled(module) if compiled else module
        results = forward(*args, **kwargs)
        left = [results]
        wanted = [t for t in leaves(results) if isinstance(t, torch.Tensor) and t.requires_grad]
        if wanted:
            sum(t.abs().sum() for t in wanted).backward()
        left += [t.grad for t in mover.moved if t.requires_grad and t.is_leaf]
        left += [parameter.grad for parameter in module.parameters()]
        left += list(module.buffers())
        if device != "cpu":
            torch.accelerator.synchronize()
        return Outcome(left, None, [])
    except Exception as error:
        return Outcome(None, error, [])


def module(check: Check, dtype: Any, training: bool) -> None:
    info = check.info
    previous = torch.get_default_dtype()
    torch.manual_seed(0)
    inputs = info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=True, training=training
    )
    try:
        torch.set_default_dtype(dtype)
        for given in check.each(inputs):
            expected = run_module(info, given, "cpu")
            if expected.error is None:
                actual = run_module(info, given, check.device, check.compiled)
                compare(actual, expected, check.device, check.close)
                check.count += 1
    finally:
        torch.set_default_dtype(previous)


def run_optimizer(
    info: Any, given: OptimizerInput, device: str, more: dict[str, Any], compiled: bool = False
) -> Outcome:
    """The parameters after some steps, and the optimiser's state."""
    torch.manual_seed(3)
    values = [torch.randn(4, 3), torch.randn(5), torch.randn(2, 2, 2)]
    parameters = [torch.nn.Parameter(value.to(device)) for value in values]
    kwargs = map_leaves(Mover(device), {**given.kwargs, **more})
    try:
        optimizer = info.optim_cls(parameters, **kwargs)
        take_step = Check.as_compiled(optimizer.step) if compiled else optimizer.step
        for step in range(STEPS):
            generator = torch.Generator().manual_seed(step)
            for parameter in parameters:
                grad = torch.randn(parameter.shape, generator=generator).to(device)
                parameter.grad = grad.to_sparse() if info.only_supports_sparse_grads else grad
            take_step(lambda: sum(p.square().sum() for p in parameters).detach())
        if device != "cpu":
            torch.accelerator.synchronize()
    except Exception as error:
        return Outcome(None, error, [])
    state = [list(optimizer.state[parameter].values()) for parameter in parameters]
    return Outcome([[p.detach() for p in parameters], tensors_of(state)], None, [])


def tensors_of(state: Any) -> list[Any]:
    """The state's tensors that live with their parameters (step counts may stay on the host)."""
    return [t for t in leaves(state) if isinstance(t, torch.Tensor) and t.dim() > 0]


def optimizer(check: Check, implementation: str) -> None:
    more = {} if implementation == "forloop" else {implementation: True}
    if implementation == "forloop" and "foreach" in check.info.supported_impls:
        more = {"foreach": False}
    for given in check.each(check.info.optim_inputs_func(device="cpu")):
        if {"fused", "foreach"} & set(given.kwargs):
            continue
        expected = run_optimizer(check.info, given, "cpu", more)
        if expected.error is None:
            actual = run_optimizer(check.info, given, check.device, more, check.compiled)
            compare(actual, expected, check.device, check.close)
            check.count += 1
