# SPDX-License-Identifier: BSD-3-Clause
"""nn.LSTM: the layers that are one command each, and the forms that stay PyTorch's composite."""

import copy
import os
import subprocess
import sys

import pytest
import torch
from compare import assert_same, natively, same_error, to_loom
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

OWN = "LstmLayerFunction"


def numbers(*shape, seed=31):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def twins(*sizes, **options):
    torch.manual_seed(0)
    layer = nn.LSTM(*sizes, **options)
    return layer, copy.deepcopy(layer).to("loom")


def with_gradients(layer, x, state=None):
    """Results, and gradients of everything that has one, through all results."""
    x = x.detach().requires_grad_()
    state = None if state is None else tuple(part.detach().requires_grad_() for part in state)
    output, (hidden, cell) = layer(x, state)
    weights = torch.linspace(0.5, 1.5, output.numel()).view(output.shape).to(output.device)
    ((output * weights).sum() + hidden.square().sum() + cell.sin().sum()).backward()
    inputs = [x, *(state or ()), *layer.parameters()]
    return [output.detach(), hidden.detach(), cell.detach()], [leaf.grad for leaf in inputs]


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
def test_options(bidirectional, batch_first, bias, given):
    layer, twin = twins(
        12, 20, num_layers=2, bidirectional=bidirectional, batch_first=batch_first, bias=bias
    )
    x = numbers(5, 7, 12) if batch_first else numbers(7, 5, 12)
    shape = (4 if bidirectional else 2, 5, 20)
    state = (numbers(*shape, seed=1), numbers(*shape, seed=2)) if given else None
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
def test_sizes(sizes, reversed_too):
    steps, batch, features, units = sizes
    layer, twin = twins(features, units, bidirectional=reversed_too)
    agree(layer, twin, numbers(steps, batch, features))


def test_one_sequence_without_a_batch():
    layer, twin = twins(6, 20)
    agree(layer, twin, numbers(9, 6))


def test_strided_operands():
    layer, twin = twins(6, 20, num_layers=2)
    x = numbers(6, 5, 9).permute(2, 1, 0)
    state = tuple(numbers(20, 5, 2, seed=seed).permute(2, 1, 0) for seed in (3, 4))
    expected, gradients = with_gradients(layer, x, state)
    results, found = with_gradients(twin, to_loom(x), to_loom(state))
    assert_same(results, expected)
    assert_same(found, gradients, strides=False)


def test_negative_views():
    layer, twin = twins(6, 20)
    x, state = numbers(7, 5, 6), (numbers(1, 5, 20, seed=3), numbers(1, 5, 20, seed=4))
    mine = tuple(torch._neg_view(-part.to("loom")) for part in state)
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


def test_each_layer_and_direction_is_one_node():
    _, twin = twins(12, 20, num_layers=3, bidirectional=True)
    output, _ = twin(numbers(7, 5, 12).to("loom"))
    names = nodes(output)
    assert names.count(OWN) == 6
    assert "thnn" not in names.lower()


def test_dropout_between_layers():
    layer, twin = twins(6, 20, num_layers=2, dropout=1.0)
    agree(layer, twin, numbers(7, 5, 6))
    agree(layer.eval(), twin.eval(), numbers(7, 5, 6))
    _, twin = twins(6, 20, num_layers=2, dropout=0.5)
    x = numbers(7, 5, 6).to("loom")
    kept = torch.randn(3, device="loom")  # the generator has a state before the seeds
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append(twin(x)[0])
    assert kept.numel() == 3
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_without_gradients_results_are_the_same():
    _, twin = twins(12, 256, num_layers=2)
    x = numbers(7, 5, 12).to("loom")
    expected = twin(x)[0].detach()
    with torch.no_grad():
        assert torch.equal(natively(twin, x)[0], expected)
    with torch.inference_mode():
        assert torch.equal(natively(twin, x)[0].clone(), expected)


def test_only_what_is_wanted():
    layer, twin = twins(6, 20)
    x, state = numbers(7, 5, 6), (numbers(1, 5, 20, seed=1), numbers(1, 5, 20, seed=2))
    for chosen in (["weight_hh_l0"], ["bias_ih_l0"], []):
        found = []
        for module, device in ((layer, "cpu"), (twin, "loom")):
            leaves = [state[1].to(device).requires_grad_()]
            for name, parameter in module.named_parameters():
                parameter.requires_grad_(name in chosen)
                leaves += [parameter] if name in chosen else []
            _, (hidden, _) = module(x.to(device), (state[0].to(device), leaves[0]))
            found.append(torch.autograd.grad(hidden.sum(), leaves))
        assert_same(found[1], found[0], strides=False)


def test_gradients_of_gradients():
    layer, twin = twins(6, 20, num_layers=2, bidirectional=True)

    def penalty(module, x):
        x = x.detach().requires_grad_()
        output, (hidden, cell) = module(x)
        inputs = [x, *module.parameters()]
        first = torch.autograd.grad(
            output.square().sum() + hidden.sum() + cell.sum(), inputs, create_graph=True
        )
        return torch.autograd.grad(sum(grad.square().sum() for grad in first), inputs)

    # cpu's own kernel for float32 has no second derivative of every form: double has.
    x = numbers(7, 3, 6)
    expected = [grad.float() for grad in penalty(copy.deepcopy(layer).double(), x.double())]
    assert_same(penalty(twin, x.to("loom")), expected, strides=False)


def test_batched_gradients():
    _, twin = twins(6, 20)
    x = numbers(7, 5, 6).to("loom").requires_grad_()
    output, _ = twin(x)
    grads = numbers(3, *output.shape, seed=5).to("loom")
    (together,) = torch.autograd.grad(output, x, grads, is_grads_batched=True, retain_graph=True)
    for grad, expected in zip(grads, together, strict=True):
        (own,) = torch.autograd.grad(output, x, grad, retain_graph=True)
        torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-5)


def test_backward_uses_what_it_saved_once():
    _, twin = twins(6, 20)
    output, _ = twin(numbers(7, 5, 6).to("loom"))
    output.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        output.sum().backward()


def test_backward_finds_a_changed_operand():
    _, twin = twins(6, 20)
    output, _ = twin(numbers(7, 5, 6).to("loom"))
    with torch.no_grad():
        twin.weight_hh_l0.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_numbers_that_are_none():
    layer, twin = twins(4, 20)
    x = numbers(5, 3, 4)
    x[1, 0, 0], x[2, 1, 1], x[2, 2, 1] = torch.nan, torch.inf, -torch.inf
    assert_same(twin(to_loom(x))[0].detach(), layer(x)[0].detach())
    large = 1e4 * numbers(5, 3, 4)
    assert_same(twin(to_loom(large))[0].detach(), layer(large)[0].detach())


@pytest.mark.parametrize("enforce_sorted", [False, True])
def test_packed_sequences(enforce_sorted):
    layer, twin = twins(6, 20, num_layers=2, bidirectional=True)
    lengths = [7, 5, 2] if enforce_sorted else [5, 2, 7]

    def run(module, x):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=enforce_sorted)
        output, state = module(packed)
        return [nn.utils.rnn.pad_packed_sequence(output)[0].detach(), *map(torch.detach, state)]

    x = numbers(7, 3, 6)
    assert_same(run(twin, to_loom(x)), run(layer, x), strides=False)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_projections_and_other_dtypes_stay_composite():
    layer, twin = twins(6, 20, proj_size=8)
    agree(layer, twin, numbers(7, 5, 6))
    layer, twin = twins(6, 20, dtype=torch.float64)
    agree(layer, twin, numbers(7, 5, 6).double())
    assert OWN not in nodes(twin(numbers(7, 5, 6).double().to("loom"))[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_lowers_the_products(dtype):
    layer, twin = twins(6, 20)
    with torch.autocast("loom", dtype=dtype):
        output, _ = twin(numbers(7, 5, 6).to("loom"))
    assert OWN not in nodes(output)
    torch.testing.assert_close(
        output.float().cpu(), layer(numbers(7, 5, 6))[0], rtol=2e-2, atol=2e-2
    )


def test_errors_are_those_of_cpu():
    layer, twin = twins(6, 20)

    def call(x, *state):
        return (layer if x.device.type == "cpu" else twin)(x, state or None)

    x, good = numbers(7, 5, 6), numbers(1, 5, 20)
    same_error(call, numbers(7, 5, 8))
    same_error(call, numbers(7))
    same_error(call, x, numbers(1, 5, 21), good)
    same_error(call, x, good, numbers(2, 5, 20))
    same_error(call, x, numbers(1, 4, 20), numbers(1, 4, 20))
    same_error(call, numbers(0, 5, 6))


def test_operands_of_another_device():
    _, twin = twins(6, 20)
    with pytest.raises(RuntimeError, match=r"same device|different devices"):
        twin(numbers(7, 5, 6).to("loom"), (numbers(1, 5, 20), numbers(1, 5, 20)))


def test_a_dispatch_mode_sees_the_operators_of_the_composite():
    seen = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    _, twin = twins(6, 20)
    with Record(), torch.no_grad():
        twin(numbers(7, 5, 6).to("loom"))
    assert any("lstm_cell" in name for name in seen)


def test_function_transforms():
    layer, twin = twins(6, 20)

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
def test_compiled_autograd():
    from torch._dynamo import compiled_autograd

    layer, twin = twins(6, 20, num_layers=2)
    x = numbers(7, 5, 6)
    output, _ = twin(to_loom(x))
    with compiled_autograd._enable(lambda graph: graph):
        output.sum().backward()
    layer(x)[0].sum().backward()
    for mine, theirs in zip(twin.parameters(), layer.parameters(), strict=True):
        assert_same(mine.grad, theirs.grad, strides=False)


@pytest.mark.parametrize("own_backward", [False, True])
def test_graphed(own_backward):
    _, twin = twins(6, 20)
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


def test_compiled():
    layer, twin = twins(6, 20)
    x = numbers(7, 5, 6)
    compiled = torch.compile(lambda x: twin(x)[0].sin(), backend="aot_eager")
    assert_same(compiled(to_loom(x)).detach(), layer(x)[0].sin().detach())


BYTES = """
import hashlib, torch
torch.manual_seed(0)
for batch, units in ((1, 256), (5, 256), (40, 64)):
    layer = torch.nn.LSTM(32, units).to("loom")
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
