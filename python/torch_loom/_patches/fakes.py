# SPDX-License-Identifier: BSD-3-Clause
"""Fake tensors of loom: they promise what loom's operators give, which is what the cpu's give."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import _meta_registrations, _prims_common, _refs
from torch._decomp import decompositions
from torch._subclasses import FakeTensorMode, fake_impls
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols
from torch.utils import _pytree as pytree

from .. import device as devices
from .._replace import replace
from .._utils import is_loom, is_loom_name

_aten = torch.ops.aten

# The result is channels_last if the operand at this place is, and contiguous if not; PyTorch's own
# fakes of these are contiguous.
_LIE_AS_AN_OPERAND = {
    _aten.reflection_pad2d_backward: 1,
    _aten.reflection_pad3d: 0,
    _aten.reflection_pad3d_backward: 1,
    _aten.replication_pad2d_backward: 1,
    _aten.replication_pad3d: 0,
    _aten.replication_pad3d_backward: 1,
}


def apply() -> None:
    """Let fake tensors of loom have the shapes and strides that operators of loom give."""
    _hint_at_the_cpu()
    _normalize_as_the_cpu()
    _normalize_layers_as_the_cpu()
    _unpool_as_the_cpu()
    _check_cells_without_biases()
    _remember_the_current_device()
    # Fake tensors ask PyTorch which of its algorithms a convolution would take, and for devices
    # that it does not know it names one whose results are contiguous. Loom's are laid out as the
    # cpu's.
    for operator in (
        _aten.convolution.default,
        _aten._convolution.default,
        _aten._convolution.deprecated,
        _aten.convolution_backward.default,
    ):
        known = fake_impls.op_implementations_dict[operator]
        fake_impls.op_implementations_dict[operator] = _as_on_cpu(known)
    fake_impls.op_implementations_dict[_aten.histc.default] = _count_integers
    fake_impls.op_implementations_dict[_aten.histc.out] = _count_integers
    for packet, place in _LIE_AS_AN_OPERAND.items():
        fake_impls.op_implementations_dict[packet.default] = _as_operand(place)


def _hint_at_the_cpu() -> None:
    # What differs between devices in the results of meta kernels is asked here.
    known = _meta_registrations.device_hint

    def device_hint(tensor: Any) -> str:
        hint: str = known(tensor)
        return "cpu" if is_loom_name(hint) else hint

    replace(_meta_registrations, "device_hint", device_hint)


def _normalize_as_the_cpu() -> None:
    # The result is contiguous or channels_last, as the input is. What is saved for the gradient:
    # nothing without training, and in the dtype of the first parameter that there is. Statistics
    # keep theirs.
    known = decompositions.native_batch_norm_helper

    def native_batch_norm_helper(
        input: torch.Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *rest: Any
    ) -> Any:
        results: Any = known(input, weight, bias, mean, var, training, *rest)
        output, *saved, new_mean, new_var = results
        if is_loom(input.device):
            output = output.contiguous(memory_format=_prims_common.suggest_memory_format(input))
            first = next((p for p in (weight, bias, mean, var) if p is not None), input)
            saved = [s.to(first.dtype) if training else first.new_zeros((0,)) for s in saved]
            new_mean = None if mean is None else new_mean.to(mean.dtype)
            new_var = None if var is None else new_var.to(var.dtype)
        return output, *saved, new_mean, new_var

    replace(decompositions, "native_batch_norm_helper", native_batch_norm_helper)
    # Its gradient lies as the input does, not as the gradient of the output.
    table = torch._decomp.decomposition_table
    known_gradient = table[_aten.native_batch_norm_backward.default]

    @functools.wraps(known_gradient)
    def native_batch_norm_backward(
        grad: torch.Tensor, input: torch.Tensor, *args: Any, **named: Any
    ) -> Any:
        grad_input, *others = known_gradient(grad, input, *args, **named)
        if is_loom(input.device) and grad_input is not None:
            layout = _prims_common.suggest_memory_format(input)
            grad_input = grad_input.contiguous(memory_format=layout)
        return grad_input, *others

    table[_aten.native_batch_norm_backward.default] = native_batch_norm_backward
    # Others call it by name.
    replace(decompositions, "native_batch_norm_backward", native_batch_norm_backward)


def _normalize_layers_as_the_cpu() -> None:
    # What a layer norm saves: in the input's dtype, or in that of parameters of a wider one.
    known = _refs.native_layer_norm

    @functools.wraps(known)
    def native_layer_norm(
        input: torch.Tensor, shape: Any, weight: Any, bias: Any, *rest: Any, **named: Any
    ) -> Any:
        output, *saved = known(input, shape, weight, bias, *rest, **named)
        wider = any(p is not None and p.dtype != input.dtype for p in (weight, bias))
        if is_loom(input.device) and not wider:
            saved = [s.to(input.dtype) for s in saved]
        return output, *saved

    replace(_refs, "native_layer_norm", native_layer_norm)


def _unpool_as_the_cpu() -> None:
    # Images that are channels_last stay so. Of volumes the cpu's operator does not keep the layout.
    known = decompositions._max_unpoolnd

    def max_unpoolnd(input: Any, indices: Any, output_size: list[int], dim: int) -> Any:
        output = known(input, indices, output_size, dim)
        if is_loom(input.device) and dim == 2:
            layout = _prims_common.suggest_memory_format(input)
            output = output.contiguous(memory_format=layout)
        return output

    replace(decompositions, "_max_unpoolnd", max_unpoolnd)


def _check_cells_without_biases() -> None:
    # PyTorch's check asks for the devices of biases, although a recurrent cell may have none.
    known: Callable[..., None] = _meta_registrations.rnn_cell_checkSizes

    def check(
        input_gates: torch.Tensor, hidden_gates: Any, input_bias: Any, hidden_bias: Any, *rest: Any
    ) -> None:
        if input_bias is None and hidden_bias is None:
            input_bias = hidden_bias = input_gates.new_empty(input_gates.shape[1:])
        known(input_gates, hidden_gates, input_bias, hidden_bias, *rest)

    replace(_meta_registrations, "rnn_cell_checkSizes", check)


def _remember_the_current_device() -> None:
    # PyTorch keeps results by arguments, and a device without an index stands for the current one.
    # Devices are not asked for before such an argument comes: importing loom starts none.
    known = FakeTensorMode._prep_args_for_hash

    def prepare(self: Any, key: list[object], args: Any, *rest: Any) -> None:
        known(self, key, args, *rest)
        devices_given = (each for each in args if isinstance(each, torch.device))
        if any(is_loom(each) and each.index is None for each in devices_given):
            key.append(devices.current_device())

    replace(FakeTensorMode, "_prep_args_for_hash", prepare)


def _count_integers(
    fake_mode: Any, operator: Any, input: torch.Tensor, *args: Any, **kwargs: Any
) -> Any:
    # Loom counts them as CUDA does; the cpu refuses.
    is_integer = not (input.is_floating_point() or input.is_complex() or input.dtype == torch.bool)
    if not is_loom(input.device) or not is_integer:
        return NotImplemented
    out = kwargs.pop("out", None)
    with fake_mode:
        counts = _aten.histc.default(input.double(), *args, **kwargs).to(input.dtype)
        return counts if out is None else out.resize_(counts.shape)


def _as_operand(place: int) -> Any:
    def fake(fake_mode: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
        name = operator._schema.arguments[place].name
        operand = args[place] if place < len(args) else kwargs[name]
        tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        if not is_loom(operand.device) or has_free_unbacked_symbols(tensors):
            return NotImplemented  # layouts of unknown sizes cannot be told
        if all(x.is_contiguous() for x in tensors):
            return NotImplemented
        layout = _prims_common.suggest_memory_format(operand)
        with fake_mode:
            args, kwargs = pytree.tree_map_only(
                torch.Tensor, lambda tensor: tensor.contiguous(), (args, kwargs)
            )
            # A single channel is in both layouts: a copy has the strides of the one that is meant.
            return operator(*args, **kwargs).clone(memory_format=layout)

    return fake


def _as_on_cpu(known: Any) -> Any:
    def convolution(fake_mode: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
        device = next(
            tensor.device
            for tensor in pytree.tree_leaves((args, kwargs))
            if isinstance(tensor, torch.Tensor)
        )
        if not is_loom(device):
            return known(fake_mode, operator, *args, **kwargs)
        with fake_mode:
            args, kwargs = pytree.tree_map_only(
                torch.Tensor, lambda tensor: _at(tensor, torch.device("cpu")), (args, kwargs)
            )
        results = known(fake_mode, operator, *args, **kwargs)
        with fake_mode:
            return pytree.tree_map_only(torch.Tensor, lambda tensor: _at(tensor, device), results)

    return convolution


def _at(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A fake tensor of the same geometry, on another device."""
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=device)
