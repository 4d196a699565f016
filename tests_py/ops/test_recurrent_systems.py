# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent layers in PyTorch's systems, and what stays PyTorch's composite."""

import copy

import pytest
import torch
from compare import assert_same, same_error, to_loom
from recurrent_support import (
    OWN,
    agree,
    every_kind,
    nodes,
    numbers,
    twins,
)
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils._python_dispatch import TorchDispatchMode


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_projections_and_other_dtypes_stay_composite():
    layer, twin = twins("lstm", 6, 20, proj_size=8)
    agree(layer, twin, numbers(7, 5, 6))
    layer, twin = twins("gru", 6, 20, dtype=torch.float64)
    agree(layer, twin, numbers(7, 5, 6).double())
    assert OWN not in nodes(twin(numbers(7, 5, 6).double().to("loom"))[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("steps", [2, 7])
@every_kind
def test_autocast(kind, steps, given, dtype):
    """Results have autocast's dtype, gradients that of what they are for."""
    layer, twin = twins(kind, 6, 20, num_layers=2, bidirectional=True)
    x = numbers(steps, 5, 6).to(given)
    wanted, _ = layer(x.float())
    on_loom = x.to("loom").requires_grad_()
    with torch.autocast("loom", dtype=dtype):
        output, last = twin(on_loom)
    for each in (output, *(last if isinstance(last, tuple) else [last])):
        assert each.dtype == dtype
    # A step or two are PyTorch's composite.
    assert (OWN in nodes(output)) == (steps > 2)
    torch.testing.assert_close(output.float().cpu(), wanted, rtol=2e-2, atol=2e-2)
    output.float().sum().backward()
    assert on_loom.grad.dtype == given
    if steps == 2:
        return  # gradients of the composite are rounded at each step
    wanted.sum().backward()
    for mine, theirs in zip(twin.parameters(), layer.parameters(), strict=True):
        assert mine.grad.dtype == torch.float32
        torch.testing.assert_close(mine.grad.cpu(), theirs.grad, rtol=5e-2, atol=5e-2)


@every_kind
def test_autocast_of_packed_sequences_without_gradients(kind):
    layer, twin = twins(kind, 6, 20)
    x = numbers(7, 3, 6)
    lengths = torch.tensor([7, 5, 4])
    with torch.no_grad():
        wanted, _ = layer(pack_padded_sequence(x, lengths))
        with torch.autocast("loom"):
            output, _ = twin(pack_padded_sequence(x.to("loom"), lengths))
    assert output.data.dtype == torch.bfloat16
    torch.testing.assert_close(output.data.float().cpu(), wanted.data, rtol=2e-2, atol=2e-2)


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


@pytest.mark.thorough
def test_results_do_not_depend_on_the_number_of_cores(check):
    runs = [check(BYTES, LOOM_THREADS=cores).out for cores in ("1", "3")]
    assert runs[0]
    assert runs[0] == runs[1]
