# SPDX-License-Identifier: BSD-3-Clause
"""Forward mode of recurrent layers and cells, alone and over gradients, against cpu in float64,
whose layers are composites of differentiable operators."""

import copy

import pytest
import torch
from recurrent_support import LAYERS, every_kind, numbers
from torch import nn
from torch.autograd import forward_ad
from torch.nn.utils import rnn

# torch.func.jvp compiles its decompositions with TorchScript.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

CELLS = [nn.LSTMCell, nn.GRUCell, nn.RNNCell]
BOUNDS = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 5e-2}


def values(result):
    """Of all tensors of a layer's result, as one vector."""
    if isinstance(result, torch.Tensor):
        return result.reshape(-1)
    if isinstance(result, rnn.PackedSequence):
        return result.data.reshape(-1)
    return torch.cat([values(each) for each in result])


def check(ask, module, x, tangent, dtype):
    """`ask` gives the same of the module on loom, in `dtype`, as in float64 on cpu."""
    exact = ask(copy.deepcopy(module).double(), x.double(), tangent.double())
    mine = ask(
        copy.deepcopy(module).to("loom", dtype), x.to("loom", dtype), tangent.to("loom", dtype)
    )
    assert mine.device.type == "loom"
    assert mine.dtype == dtype
    torch.testing.assert_close(
        mine.cpu().double(),
        exact,
        rtol=BOUNDS[dtype],
        atol=BOUNDS[dtype] * max(1.0, exact.abs().max().item()),
    )


def tangent_of(module, x, tangent):
    return torch.func.jvp(lambda each: values(module(each)), (x,), (tangent,))[1].detach()


def tangent_of_gradient(module, x, tangent):
    """Of the sum of squares: forward over reverse, where a step's gradient has a tangent, too."""
    gradient = torch.func.grad(lambda each: values(module(each)).square().sum())
    return torch.func.jvp(gradient, (x,), (tangent,))[1].detach()


@pytest.mark.thorough
@pytest.mark.parametrize("ask", [tangent_of, tangent_of_gradient])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("bias", [True, False])
@every_kind
def test_layers(kind, bias, dtype, ask):
    torch.manual_seed(0)
    layer = LAYERS[kind](5, 7, num_layers=2, bidirectional=True, bias=bias)
    check(ask, layer, numbers(4, 3, 5), numbers(4, 3, 5), dtype)


@pytest.mark.parametrize("ask", [tangent_of, tangent_of_gradient])
@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("cell", CELLS)
def test_cells(cell, dtype, ask):
    torch.manual_seed(0)
    check(ask, cell(5, 7), numbers(3, 5), numbers(3, 5), dtype)


@pytest.mark.thorough
@every_kind
def test_packed_sequences(kind):
    """Not in torch.func, where PyTorch's layers cannot read the sizes of batches."""
    torch.manual_seed(0)
    sizes = torch.tensor([3, 2, 2, 1])

    def ask(layer, x, tangent):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, tangent)
            result = values(layer(rnn.PackedSequence(dual, sizes)))
            return forward_ad.unpack_dual(result).tangent.detach()

    check(ask, LAYERS[kind](5, 7), numbers(8, 5), numbers(8, 5), torch.float64)


def test_projections():
    torch.manual_seed(0)
    check(tangent_of, nn.LSTM(5, 7, proj_size=3), numbers(4, 3, 5), numbers(4, 3, 5), torch.float32)


@pytest.mark.parametrize("cell", CELLS)
def test_tangents_of_weights(cell):
    torch.manual_seed(0)
    module, x = cell(5, 7), numbers(3, 5)

    def ask(module, x, _):
        weights = dict(module.named_parameters())
        tangents = {name: torch.ones_like(each) for name, each in weights.items()}
        return torch.func.jvp(
            lambda given: values(torch.func.functional_call(module, given, (x,))),
            (weights,),
            (tangents,),
        )[1].detach()

    check(ask, module, x, x, torch.float64)


@pytest.mark.parametrize("cell", CELLS)
def test_backward_through_dual_tensors(cell):
    """A gradient that is not differentiated again still has its tangent."""

    def ask(module, x, tangent):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x.requires_grad_(), tangent)
            (gradient,) = torch.autograd.grad(values(module(dual)).square().sum(), dual)
            return forward_ad.unpack_dual(gradient).tangent.detach()

    torch.manual_seed(0)
    check(ask, cell(5, 7), numbers(3, 5), numbers(3, 5), torch.float64)


@pytest.mark.parametrize("kind", [*LAYERS.values(), *CELLS])
def test_tangents_that_only_the_gradient_of_the_result_has(kind):
    module, x = kind(5, 4), numbers(6, 5)
    given, tangent = numbers(6, 4, seed=1), numbers(6, 4, seed=2)

    def ask(module, x, tangent):
        first = x.detach().requires_grad_()
        result = module(first)
        while isinstance(result, tuple):
            result = result[0]
        with forward_ad.dual_level():
            factor = forward_ad.make_dual(given.to(x), tangent)
            asked = [first, *module.parameters()]
            gradients = torch.autograd.grad((result * factor).square().sum(), asked)
            return torch.cat(
                [forward_ad.unpack_dual(each).tangent.detach().reshape(-1) for each in gradients]
            )

    check(ask, module, x, tangent, torch.float32)


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell])
def test_cells_without_tangents_stay_one_kernel(cell):
    """In half types, whose cells are no layer of one step."""
    module = cell(5, 7).to("loom", torch.bfloat16)
    x = numbers(3, 5).to("loom", torch.bfloat16).requires_grad_()
    with torch.profiler.profile() as profile:
        values(module(x)).sum().backward()
    names = {event.name for event in profile.events()}
    kind = "lstm" if cell is nn.LSTMCell else "gru"
    assert f"aten::_thnn_fused_{kind}_cell" in names
    assert any(name.startswith(f"aten::_thnn_fused_{kind}_cell_backward") for name in names)
