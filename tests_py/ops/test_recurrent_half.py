# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent layers of half types and those with projections: near the exact values, with cpu's
dtypes and strides."""

import copy

import pytest
import torch
from recurrent_support import LAYERS, every_kind, numbers
from torch import nn
from torch.nn.utils import rnn

BOUNDS = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float64: 1e-12}
HALVES = [torch.float16, torch.bfloat16]


def results(layer, x, state=None):
    """Of a sequence, and gradients of it and of all parameters."""
    source = x.data if isinstance(x, rnn.PackedSequence) else x
    source.requires_grad_()
    output, last = layer(x, state)
    if isinstance(output, rnn.PackedSequence):
        output = output.data
    made = [output, *(last if isinstance(last, tuple) else [last])]
    leaves = [source, *layer.parameters()]
    loss = sum((each.double() * (0.3 + index)).sum() for index, each in enumerate(made))
    return [*made, *torch.autograd.grad(loss, leaves)]


def moved(x, *where):
    if isinstance(x, rnn.PackedSequence):
        return rnn.PackedSequence(x.data.detach().to(*where), x.batch_sizes)
    return x.detach().to(*where)


def check(layer, x):
    dtype = (x.data if isinstance(x, rnn.PackedSequence) else x).dtype
    exact = results(copy.deepcopy(layer).double(), moved(x, torch.float64))
    on_cpu = results(copy.deepcopy(layer), moved(x, "cpu"))
    mine = results(copy.deepcopy(layer).to("loom"), moved(x, "loom"))
    for found, theirs, right in zip(mine, on_cpu, exact, strict=True):
        assert found.dtype == theirs.dtype
        assert found.stride() == theirs.stride()
        error = (found.cpu().double() - right).abs().max().item()
        assert error <= BOUNDS[dtype] * max(1.0, right.abs().max().item())


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("steps", [2, 9])
@every_kind
def test_layers(kind, steps, bias, bidirectional, dtype):
    torch.manual_seed(0)
    layer = LAYERS[kind](12, 20, num_layers=2, bidirectional=bidirectional, bias=bias).to(dtype)
    check(layer, numbers(steps, 5, 12).to(dtype))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@every_kind
def test_packed_sequences(kind, dtype):
    torch.manual_seed(0)
    layer = LAYERS[kind](7, 33, num_layers=2).to(dtype)
    sequences = [numbers(length, 7, seed=length).to(dtype) for length in (9, 6, 6, 2)]
    check(layer, rnn.pack_sequence(sequences))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@every_kind
def test_without_gradients(kind, dtype):
    torch.manual_seed(0)
    layer = LAYERS[kind](12, 40, batch_first=True).to(dtype)
    x = numbers(3, 11, 12).to(dtype)
    with torch.no_grad():
        exact = copy.deepcopy(layer).double()(x.double())[0]
        mine = layer.to("loom")(x.to("loom"))[0]
    assert mine.dtype == dtype
    assert (mine.cpu().double() - exact).abs().max() <= BOUNDS[dtype]


# Units that are no whole groups or pairs, one sample, samples in blocks, units in blocks.
LSTMS = {
    "odd units": (5, 33, 9, 5),
    "fewer units than a group": (12, 7, 6, 3),
    "one sample": (16, 48, 12, 1),
    "samples in tiles": (8, 96, 5, 70),
    "units in blocks": (40, 600, 4, 2),
}


def check_lstm(layer, x, state=None):
    """Without gradients, dtypes and strides as cpu's and values near the exact ones."""
    with torch.no_grad():
        exact = copy.deepcopy(layer).double()(
            moved(x, torch.float64), state and tuple(each.double() for each in state)
        )
        on_cpu = layer(x, state)
        mine = copy.deepcopy(layer).to("loom")(
            moved(x, "loom"), state and tuple(each.to("loom") for each in state)
        )
    for right, theirs, found in zip(
        (exact[0], *exact[1]), (on_cpu[0], *on_cpu[1]), (mine[0], *mine[1]), strict=True
    ):
        if isinstance(found, rnn.PackedSequence):
            right, theirs, found = right.data, theirs.data, found.data
        assert found.dtype == theirs.dtype
        assert found.stride() == theirs.stride()
        error = (found.cpu().double() - right).abs().max().item()
        assert error <= BOUNDS[torch.bfloat16] * max(1.0, right.abs().max().item())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("case", LSTMS)
def test_lstms_of_bfloat16_without_gradients(case, bidirectional, bias):
    torch.manual_seed(0)
    features, units, steps, batch = LSTMS[case]
    layer = nn.LSTM(features, units, num_layers=2, bidirectional=bidirectional, bias=bias)
    count = 4 if bidirectional else 2
    state = tuple(numbers(count, batch, units, seed=seed).bfloat16() for seed in (1, 2))
    check_lstm(layer.bfloat16(), numbers(steps, batch, features).bfloat16(), state)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_packed_lstms_of_bfloat16_without_gradients(bidirectional):
    torch.manual_seed(0)
    layer = nn.LSTM(7, 33, num_layers=2, bidirectional=bidirectional).bfloat16()
    sequences = [numbers(length, 7, seed=length).bfloat16() for length in (9, 6, 6, 2)]
    check_lstm(layer, rnn.pack_sequence(sequences))


def test_an_lstm_of_bfloat16_that_wants_no_gradient_is_the_same_with_grad_mode():
    torch.manual_seed(0)
    layer = nn.LSTM(12, 40).bfloat16().requires_grad_(False).to("loom")
    x = numbers(11, 3, 12).bfloat16().to("loom")
    with torch.no_grad():
        expected = layer(x)[0]
    made = layer(x)[0]
    assert torch.equal(made, expected)
    assert not made.requires_grad


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("dtype", [*HALVES, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_projections(bias, bidirectional, dtype):
    torch.manual_seed(0)
    layer = nn.LSTM(12, 37, num_layers=2, proj_size=9, bias=bias, bidirectional=bidirectional)
    check(layer.to(dtype), numbers(6, 5, 12).to(dtype))


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32], ids=str)
def test_cells_of_an_lstm_have_the_gradients_of_either_state(dtype):
    cells = [numbers(3, count, seed=count).to(dtype) for count in (80, 81, 20)]
    gates, sums, cell = cells[0], cells[1][:, 1:], cells[2]  # rows that are apart
    for device in ("cpu", "loom"):
        operands = [each.detach().to(device).requires_grad_() for each in (gates, sums, cell)]
        if device == "cpu":
            wide = [each.double() for each in operands]
            split = (wide[0] + wide[1]).chunk(4, 1)
            kept = split[1].sigmoid() * wide[2] + split[0].sigmoid() * split[2].tanh()
            expected = (split[3].sigmoid() * kept.tanh(), kept)
            exact = [
                torch.autograd.grad(each.sum(), operands, retain_graph=True) for each in expected
            ]
            continue
        made = torch.ops.aten._thnn_fused_lstm_cell(*operands)[:2]
        for each, right, grads in zip(made, expected, exact, strict=True):
            error = (each.cpu().double() - right).abs().max()
            assert error <= BOUNDS[dtype]
            found = torch.autograd.grad(each.sum(), operands, retain_graph=True)
            for mine, grad in zip(found, grads, strict=True):
                assert (mine.cpu().double() - grad).abs().max() <= BOUNDS[dtype]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_cells_of_a_gru_are_no_less_precise_than_those_of_cpu(dtype):
    """Sums of gates are rounded at the end, as those of an LSTM."""
    torch.manual_seed(0)
    cell = nn.GRUCell(60, 100).to(dtype)
    x, state = numbers(50, 60).to(dtype), numbers(50, 100, seed=3).to(dtype)
    weights = numbers(50, 100, seed=4).to(dtype)
    errors = {}
    for device in ("cpu", "loom"):
        found = []
        for made_of, where in ((torch.float64, "cpu"), (dtype, device)):
            layer = copy.deepcopy(cell).to(where, made_of)
            operands = [each.to(where, made_of).requires_grad_() for each in (x, state)]
            made = layer(*operands)
            grads = torch.autograd.grad(made, [*operands, *layer.parameters()], weights.to(made))
            found.append([each.detach().cpu().double() for each in (made, *grads)])
        errors[device] = [
            (mine - right).square().mean().sqrt() for right, mine in zip(*found, strict=True)
        ]
    for mine, theirs in zip(errors["loom"], errors["cpu"], strict=True):
        assert mine <= theirs
