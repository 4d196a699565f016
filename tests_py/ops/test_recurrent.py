# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent layers and cells: what is one command each, and what stays PyTorch's composite."""

import copy
import functools
import os
import subprocess
import sys

import pytest
import torch
from compare import assert_same, natively, same_error, to_loom
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

OWN = "RecurrentLayerFunction"
LAYERS = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "tanh": nn.RNN,
    "relu": functools.partial(nn.RNN, nonlinearity="relu"),
}
CELLS = {
    "lstm": nn.LSTMCell,
    "gru": nn.GRUCell,
    "tanh": nn.RNNCell,
    "relu": functools.partial(nn.RNNCell, nonlinearity="relu"),
}
every_kind = pytest.mark.parametrize("kind", LAYERS)


def numbers(*shape, seed=31):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def twins(kind, *sizes, made_of=LAYERS, **options):
    torch.manual_seed(0)
    layer = made_of[kind](*sizes, **options)
    return layer, copy.deepcopy(layer).to("loom")


def state_of(kind, *shape, seed=1):
    """An initial state, as layers of a kind take it."""
    hidden = numbers(*shape, seed=seed)
    return (hidden, numbers(*shape, seed=seed + 1)) if kind == "lstm" else hidden


def tensors(state):
    return list(state) if isinstance(state, tuple) else [] if state is None else [state]


def with_gradients(layer, x, state=None):
    """Results, and gradients of everything that has one, through all results."""
    x = x.detach().requires_grad_()
    leaves = [part.detach().requires_grad_() for part in tensors(state)]
    given = tuple(leaves) if isinstance(state, tuple) else leaves[0] if leaves else None
    output, last = layer(x, given)
    weights = torch.linspace(0.5, 1.5, output.numel()).view(output.shape).to(output.device)
    loss = (output * weights).sum()
    for i, part in enumerate(tensors(last)):
        loss = loss + (part.sin().sum() if i else part.square().sum())
    loss.backward()
    inputs = [x, *leaves, *layer.parameters()]
    results = [output, *tensors(last)]
    return [result.detach() for result in results], [leaf.grad for leaf in inputs]


def agree(layer, twin, x, state=None):
    expected, gradients = with_gradients(layer, x, state)
    results, found = natively(with_gradients, twin, to_loom(x), to_loom(state))
    assert_same(results, expected)
    assert_same(found, gradients, strides=False)


def nodes(tensor):
    """The names of all nodes behind a tensor, in one text."""
    seen, waiting = set(), [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting.extend(following for following, _ in node.next_functions)
    return " ".join(node.name() for node in seen)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("given", [False, True])
@every_kind
def test_options(kind, bidirectional, batch_first, bias, given):
    layer, twin = twins(
        kind, 12, 20, num_layers=2, bidirectional=bidirectional, batch_first=batch_first, bias=bias
    )
    x = numbers(5, 7, 12) if batch_first else numbers(7, 5, 12)
    state = state_of(kind, 4 if bidirectional else 2, 5, 20) if given else None
    agree(layer, twin, x, state)


# Sequence, batch, features, units: parts of groups, weights packed or not, and cut by units, by
# samples, or not at all.
@pytest.mark.parametrize(
    "sizes",
    [
        (1, 1, 3, 1),
        (1, 3, 17, 33),
        (3, 2, 8, 16),
        (9, 2, 3, 5),
        (40, 1, 24, 48),
        (6, 33, 64, 64),
        (40, 40, 64, 64),
        (5, 1, 256, 256),
        (36, 1, 256, 256),
        (5, 17, 32, 256),
        (5, 18, 32, 200),
        (9, 70, 17, 300),
    ],
)
@pytest.mark.parametrize("reversed_too", [False, True])
@every_kind
def test_sizes(kind, sizes, reversed_too):
    steps, batch, features, units = sizes
    layer, twin = twins(kind, features, units, bidirectional=reversed_too)
    agree(layer, twin, numbers(steps, batch, features))


@every_kind
def test_one_sequence_without_a_batch(kind):
    layer, twin = twins(kind, 6, 20)
    agree(layer, twin, numbers(9, 6))


@every_kind
def test_strided_operands(kind):
    layer, twin = twins(kind, 6, 20, num_layers=2)
    x = numbers(6, 5, 9).permute(2, 1, 0)
    state = [part.permute(2, 1, 0) for part in tensors(state_of(kind, 20, 5, 2, seed=3))]
    state = tuple(state) if kind == "lstm" else state[0]
    expected, gradients = with_gradients(layer, x, state)
    results, found = with_gradients(twin, to_loom(x), to_loom(state))
    assert_same(results, expected)
    assert_same(found, gradients, strides=False)


@every_kind
def test_negative_views(kind):
    layer, twin = twins(kind, 6, 20)
    x, state = numbers(7, 5, 6), state_of(kind, 1, 5, 20, seed=3)
    mine = [torch._neg_view(-part.to("loom")) for part in tensors(state)]
    mine = tuple(mine) if kind == "lstm" else mine[0]
    output, _ = twin(x.to("loom"), mine)
    expected, _ = layer(x, state)
    assert_same(output.detach(), expected.detach())
    leaves = [list(module.parameters()) for module in (twin, layer)]
    grad = numbers(7, 5, 20, seed=5)
    assert_same(
        torch.autograd.grad(output, leaves[0], torch._neg_view(-grad.to("loom"))),
        torch.autograd.grad(expected, leaves[1], grad),
        strides=False,
    )


@every_kind
def test_each_layer_and_direction_is_one_node(kind):
    _, twin = twins(kind, 12, 20, num_layers=3, bidirectional=True)
    output, _ = twin(numbers(7, 5, 12).to("loom"))
    names = nodes(output)
    assert names.count(OWN) == 6
    assert "thnn" not in names.lower()


@every_kind
def test_dropout_between_layers(kind):
    layer, twin = twins(kind, 6, 20, num_layers=2, dropout=1.0)
    agree(layer, twin, numbers(7, 5, 6))
    agree(layer.eval(), twin.eval(), numbers(7, 5, 6))
    _, twin = twins(kind, 6, 20, num_layers=2, dropout=0.5)
    x = numbers(7, 5, 6).to("loom")
    kept = torch.randn(3, device="loom")  # the generator has a state before the seeds
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append(twin(x)[0])
    assert kept.numel() == 3
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


@every_kind
def test_without_gradients_results_are_the_same(kind):
    _, twin = twins(kind, 12, 256, num_layers=2)
    x = numbers(7, 5, 12).to("loom")
    expected = twin(x)[0].detach()
    with torch.no_grad():
        assert torch.equal(natively(twin, x)[0], expected)
    with torch.inference_mode():
        assert torch.equal(natively(twin, x)[0].clone(), expected)


@every_kind
def test_only_what_is_wanted(kind):
    layer, twin = twins(kind, 6, 20)
    x, state = numbers(7, 5, 6), state_of(kind, 1, 5, 20)
    for chosen in (["weight_hh_l0"], ["bias_ih_l0"], ["bias_hh_l0"], []):
        found = []
        for module, device in ((layer, "cpu"), (twin, "loom")):
            given = [part.to(device) for part in tensors(state)]
            leaves = [given[-1].requires_grad_()]
            for name, parameter in module.named_parameters():
                parameter.requires_grad_(name in chosen)
                leaves += [parameter] if name in chosen else []
            _, last = module(x.to(device), tuple(given) if kind == "lstm" else given[0])
            found.append(torch.autograd.grad(tensors(last)[0].sum(), leaves))
        assert_same(found[1], found[0], strides=False)


@every_kind
def test_gradients_of_gradients(kind):
    layer, twin = twins(kind, 6, 20, num_layers=2, bidirectional=True)

    def penalty(module, x):
        x = x.detach().requires_grad_()
        output, last = module(x)
        inputs = [x, *module.parameters()]
        loss = output.square().sum() + sum(part.sum() for part in tensors(last))
        first = torch.autograd.grad(loss, inputs, create_graph=True)
        # Sums of large numbers leave rounding errors that are large beside small gradients.
        return torch.autograd.grad(sum(grad.square().sum() for grad in first) / 100, inputs)

    # cpu's own kernel for float32 has no second derivative of every form: double has.
    x = numbers(7, 3, 6)
    expected = [grad.float() for grad in penalty(copy.deepcopy(layer).double(), x.double())]
    assert_same(penalty(twin, x.to("loom")), expected, strides=False)


@every_kind
def test_batched_gradients(kind):
    _, twin = twins(kind, 6, 20)
    x = numbers(7, 5, 6).to("loom").requires_grad_()
    output, _ = twin(x)
    grads = numbers(3, *output.shape, seed=5).to("loom")
    (together,) = torch.autograd.grad(output, x, grads, is_grads_batched=True, retain_graph=True)
    for grad, expected in zip(grads, together, strict=True):
        (own,) = torch.autograd.grad(output, x, grad, retain_graph=True)
        torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-5)


def test_backward_uses_what_it_saved_once():
    _, twin = twins("lstm", 6, 20)
    output, _ = twin(numbers(7, 5, 6).to("loom"))
    output.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        output.sum().backward()


def test_backward_finds_a_changed_operand():
    _, twin = twins("lstm", 6, 20)
    output, _ = twin(numbers(7, 5, 6).to("loom"))
    with torch.no_grad():
        twin.weight_hh_l0.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


@every_kind
def test_numbers_that_are_none(kind):
    layer, twin = twins(kind, 4, 20)
    x = numbers(5, 3, 4)
    x[1, 0, 0], x[2, 1, 1], x[2, 2, 1] = torch.nan, torch.inf, -torch.inf
    assert_same(twin(to_loom(x))[0].detach(), layer(x)[0].detach())
    large = 1e4 * numbers(5, 3, 4)
    assert_same(twin(to_loom(large))[0].detach(), layer(large)[0].detach())


def packed(module, x, lengths, enforce_sorted=True, state=None):
    """What with_gradients() calls: a layer of a packed sequence, its output padded."""
    sequence = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=enforce_sorted)
    output, last = module(sequence, state)
    return nn.utils.rnn.pad_packed_sequence(output)[0], last


class Packed(nn.Module):
    def __init__(self, layer, *options):
        super().__init__()
        self.layer, self.options = layer, options

    def forward(self, x, state=None):
        return packed(self.layer, x, *self.options, state=state)


# Lengths: some end together, all do, and steps enough that samples are cut into blocks.
@pytest.mark.parametrize("lengths", [[7, 5, 5, 2], [4, 4, 4], [5], [40] * 9 + [31] * 16 + [7] * 15])
@pytest.mark.parametrize("given", [False, True])
@every_kind
def test_packed_sequences(kind, lengths, given):
    units = 64 if len(lengths) > 9 else 20
    layer, twin = twins(kind, 6, units, num_layers=2, bidirectional=True)
    state = state_of(kind, 4, len(lengths), units) if given else None
    x = numbers(max(lengths), len(lengths), 6)
    expected, gradients = with_gradients(Packed(layer, lengths), x, state)
    results, found = with_gradients(Packed(twin, lengths), to_loom(x), to_loom(state))
    assert_same(results, expected, strides=False)
    assert_same(found, gradients, strides=False)
    output, _ = Packed(twin, lengths)(to_loom(x))
    assert nodes(output).count(OWN) == 4


@every_kind
def test_packed_sequences_that_are_not_sorted(kind):
    layer, twin = twins(kind, 6, 20)
    x, lengths = numbers(7, 3, 6), torch.tensor([5, 2, 7])
    expected, gradients = with_gradients(Packed(layer, lengths, False), x)
    results, found = with_gradients(Packed(twin, lengths, False), to_loom(x))
    assert_same(results, expected, strides=False)
    assert_same(found, gradients, strides=False)


@every_kind
def test_gradients_of_gradients_of_packed_sequences(kind):
    layer, twin = twins(kind, 3, 5, bidirectional=True)
    state = [part.double() for part in tensors(state_of(kind, 2, 3, 5))]
    x, lengths = numbers(4, 3, 3).double(), [4, 2, 1]

    def penalty(module, x, *state):
        leaves = [x, *state]
        given = None if not state else state if kind == "lstm" else state[0]
        output, last = packed(module, x, lengths, state=given)
        loss = output.square().sum() + sum(part.sin().sum() for part in tensors(last))
        first = torch.autograd.grad(loss, leaves, create_graph=True)
        return torch.autograd.grad(sum(grad.square().sum() for grad in first), leaves)

    leaves = [leaf.requires_grad_() for leaf in (x, *state)]
    expected = [grad.float() for grad in penalty(copy.deepcopy(layer).double(), *leaves)]
    mine = [leaf.detach().float().to("loom").requires_grad_() for leaf in leaves]
    assert_same(penalty(twin, *mine), expected, strides=False)


@pytest.mark.parametrize("sizes", [(1, 3, 1), (5, 12, 20), (64, 32, 100), (1, 256, 256)])
@pytest.mark.parametrize("bias", [False, True])
@every_kind
def test_cells(kind, sizes, bias):
    batch, features, units = sizes
    cell, twin = twins(kind, features, units, bias=bias, made_of=CELLS)

    def run(module, x, *state):
        leaves = [x, *state]
        for leaf in leaves:
            leaf.requires_grad_()
        given = None if not state else state if kind == "lstm" else state[0]
        results = tensors(module(x, given))
        sum(result.square().sum() for result in results).backward()
        return [result.detach() for result in results], [
            leaf.grad for leaf in (*leaves, *module.parameters())
        ]

    x, state = numbers(batch, features), tensors(state_of(kind, batch, units))
    for given in ((), state):
        expected, gradients = run(cell, x.clone(), *[part.clone() for part in given])
        results, found = natively(run, twin, x.to("loom"), *[part.to("loom") for part in given])
        assert_same(results, expected)
        assert_same(found, gradients, strides=False)
        cell.zero_grad()
        twin.zero_grad()
    one = to_loom(x[0]), to_loom(tuple(part[0] for part in state))
    expected = cell(x[0], tuple(part[0] for part in state) if kind == "lstm" else state[0][0])
    got = twin(one[0], one[1] if kind == "lstm" else one[1][0])
    assert_same([part.detach() for part in tensors(got)], [p.detach() for p in tensors(expected)])
    assert (OWN in nodes(tensors(got)[0])) == (kind in ("lstm", "gru"))


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_projections_and_other_dtypes_stay_composite():
    layer, twin = twins("lstm", 6, 20, proj_size=8)
    agree(layer, twin, numbers(7, 5, 6))
    layer, twin = twins("gru", 6, 20, dtype=torch.float64)
    agree(layer, twin, numbers(7, 5, 6).double())
    assert OWN not in nodes(twin(numbers(7, 5, 6).double().to("loom"))[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@every_kind
def test_autocast_lowers_the_products(kind, dtype):
    layer, twin = twins(kind, 6, 20)
    with torch.autocast("loom", dtype=dtype):
        output, _ = twin(numbers(7, 5, 6).to("loom"))
    assert OWN not in nodes(output)
    torch.testing.assert_close(
        output.float().cpu(), layer(numbers(7, 5, 6))[0], rtol=2e-2, atol=2e-2
    )


@every_kind
def test_errors_are_those_of_cpu(kind):
    layer, twin = twins(kind, 6, 20)

    def call(x, *state):
        given = None if not state else state if kind == "lstm" else state[0]
        return (layer if x.device.type == "cpu" else twin)(x, given)

    x, good = numbers(7, 5, 6), numbers(1, 5, 20)
    same_error(call, numbers(7, 5, 8))
    same_error(call, numbers(7))
    same_error(call, x, numbers(1, 5, 21), good)
    if kind == "lstm":
        same_error(call, x, good, numbers(2, 5, 20))
    same_error(call, x, numbers(1, 4, 20), numbers(1, 4, 20))
    same_error(call, numbers(0, 5, 6))


def test_operands_of_another_device():
    _, twin = twins("lstm", 6, 20)
    with pytest.raises(RuntimeError, match=r"same device|different devices"):
        twin(numbers(7, 5, 6).to("loom"), (numbers(1, 5, 20), numbers(1, 5, 20)))


def test_a_dispatch_mode_sees_the_operators_of_the_composite():
    seen = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    _, twin = twins("lstm", 6, 20)
    with Record(), torch.no_grad():
        twin(numbers(7, 5, 6).to("loom"))
    assert any("lstm_cell" in name for name in seen)
    seen.clear()
    _, twin = twins("tanh", 6, 20)
    with Record(), torch.no_grad():
        twin(numbers(7, 5, 6).to("loom"))
    assert any("tanh" in name for name in seen)


@every_kind
def test_function_transforms(kind):
    layer, twin = twins(kind, 6, 20)

    def gradient(module, x):
        parameters = dict(module.named_parameters())

        def loss(parameters, x):
            return torch.func.functional_call(module, parameters, (x,))[0].square().sum()

        return torch.func.grad(loss, argnums=1)(parameters, x)

    x = numbers(7, 5, 6)
    assert_same(gradient(twin, x.to("loom")), gradient(layer, x), strides=False)
    # Neither device has a batching rule.
    same_error(
        lambda x: torch.vmap(lambda x: (layer if x.device.type == "cpu" else twin)(x)[0])(x),
        numbers(2, 7, 5, 6),
    )


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@every_kind
def test_compiled_autograd(kind):
    from torch._dynamo import compiled_autograd

    layer, twin = twins(kind, 6, 20, num_layers=2)
    x = numbers(7, 5, 6)
    output, _ = twin(to_loom(x))
    with compiled_autograd._enable(lambda graph: graph):
        output.sum().backward()
    layer(x)[0].sum().backward()
    for mine, theirs in zip(twin.parameters(), layer.parameters(), strict=True):
        assert_same(mine.grad, theirs.grad, strides=False)


@pytest.mark.parametrize("own_backward", [False, True])
@every_kind
def test_graphed(kind, own_backward):
    _, twin = twins(kind, 6, 20)
    x = numbers(7, 5, 6).to("loom")
    example = x.clone().requires_grad_(own_backward)
    graphed = torch.loom.make_graphed_callables(copy.deepcopy(twin), (example,))
    given, same = (2 * x).requires_grad_(own_backward), (2 * x).requires_grad_(own_backward)
    output, expected = graphed(given)[0], twin(same)[0]
    assert torch.equal(output, expected)
    if own_backward:
        output.sum().backward()
        expected.sum().backward()
        assert torch.equal(given.grad, same.grad)


@every_kind
def test_compiled(kind):
    layer, twin = twins(kind, 6, 20)
    x = numbers(7, 5, 6)
    compiled = torch.compile(lambda x: twin(x)[0].sin(), backend="aot_eager")
    assert_same(compiled(to_loom(x)).detach(), layer(x)[0].sin().detach())


BYTES = """
import hashlib, torch
torch.manual_seed(0)
kinds = (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN)
for kind, batch, units in [(k, *s) for k in kinds for s in ((1, 256), (5, 256), (40, 64))]:
    layer = kind(32, units).to("loom")
    output, _ = layer(torch.randn(20, batch, 32).to("loom"))
    output.sum().backward()
    for tensor in (output.detach(), *(parameter.grad for parameter in layer.parameters())):
        print(hashlib.sha256(tensor.cpu().numpy().tobytes()).hexdigest())
"""


def test_results_do_not_depend_on_the_number_of_cores():
    runs = [
        subprocess.run(
            [sys.executable, "-c", BYTES],
            env={**os.environ, "LOOM_THREADS": cores},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for cores in ("1", "3")
    ]
    assert runs[0]
    assert runs[0] == runs[1]
