# SPDX-License-Identifier: BSD-3-Clause
"""FX: symbolic traces, shapes, fusion of convolution and norm, a profiling interpreter."""

import copy
import operator
import warnings

import pytest
import torch
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.shape_prop import ShapeProp
from torch.fx.passes.split_module import split_module
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

with warnings.catch_warnings():  # the module is written with torch.jit
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch.fx.experimental.optimization import fuse, remove_dropout

LOOM = "loom"


pytestmark = pytest.mark.usefixtures("no_fallback")


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.second_norm = nn.BatchNorm2d(channels)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x):
        inner = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(x + self.dropout(self.second_norm(self.second(inner))))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2)
        self.body = nn.Sequential(Residual(8), Residual(8))
        self.head = nn.Linear(8, 5)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        x = self.body(self.stem(x))
        return self.head(x.mean((2, 3))) * self.scale + 1


@pytest.fixture
def network():
    """A network in eval mode whose norms have seen data."""
    network = Network().to(LOOM)
    for _ in range(3):
        network(torch.randn(8, 3, 17, 17, device=LOOM) * 2 + 1)
    return network.eval()


@pytest.fixture
def x():
    return torch.randn(2, 3, 17, 17, device=LOOM)


def modules_of(traced, kind):
    return [module for module in traced.modules() if isinstance(module, kind)]


def close(result, expected):
    assert result.is_loom
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


def test_a_trace_computes_and_learns_as_the_module(network, x):
    traced = fx.symbolic_trace(network)
    traced.graph.lint()
    close(traced(x), network(x))
    assert traced.head.weight is network.head.weight
    reference = copy.deepcopy(network).cpu()
    traced(x).square().sum().backward()
    reference(x.cpu()).square().sum().backward()
    for mine, theirs in zip(network.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.cpu(), theirs.grad, rtol=1e-3, atol=1e-4)


def test_a_trace_made_on_cpu_moves_to_loom(network, x):
    traced = fx.symbolic_trace(copy.deepcopy(network).cpu()).to(LOOM)
    close(traced(x), network(x))


def test_shapes_are_propagated(network, x):
    traced = fx.symbolic_trace(network)
    result = ShapeProp(traced).propagate(x)
    close(result, network(x))
    shapes = {node.name: node.meta["tensor_meta"].shape for node in traced.graph.nodes}
    assert shapes["x"] == (2, 3, 17, 17)
    assert shapes["stem"] == (2, 8, 8, 8)
    assert shapes["mean"] == (2, 8)
    assert shapes["output"] == (2, 5)


def parent_of(name):
    return name.rpartition(".")[::2]


def fold_norms(module):
    """Folds each norm into the convolution before it."""
    traced = fx.symbolic_trace(copy.deepcopy(module))
    modules = dict(traced.named_modules())
    for node in list(traced.graph.nodes):
        if node.op != "call_module" or not isinstance(modules[node.target], nn.BatchNorm2d):
            continue
        source = node.args[0]
        if source.op != "call_module" or not isinstance(modules[source.target], nn.Conv2d):
            continue
        if len(source.users) > 1:
            continue
        parent, name = parent_of(source.target)
        fused = fuse_conv_bn_eval(modules[source.target], modules[node.target])
        setattr(modules[parent], name, fused)
        node.replace_all_uses_with(source)
        traced.graph.erase_node(node)
    traced.graph.lint()
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced


@pytest.mark.parametrize("fold", [fold_norms, fuse], ids=["own pass", "fuse"])
def test_norms_are_folded_into_convolutions(network, x, fold):
    fused = fold(network)
    called = {node.target for node in fused.graph.nodes if node.op == "call_module"}
    assert not [name for name in called if "norm" in name]
    assert {p.device.type for p in fused.parameters()} == {LOOM}
    close(fused(x), network(x))
    assert modules_of(network, nn.BatchNorm2d)  # the network itself is as it was


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_one_convolution_and_its_norm(transposed, layout):
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    convolution, norm = kind(3, 4, 3).to(LOOM), nn.BatchNorm2d(4).to(LOOM)
    x = torch.randn(2, 3, 9, 9, device=LOOM).to(memory_format=layout)
    norm(convolution(x * 3))
    pair = nn.Sequential(convolution, norm).eval()
    close(fuse_conv_bn_eval(*pair, transpose=transposed)(x), pair(x))


def test_a_linear_layer_and_its_norm():
    pair = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)).to(LOOM)
    x = torch.randn(9, 4, device=LOOM)
    pair(x * 3)
    pair.eval()
    close(fuse_linear_bn_eval(*pair)(x), pair(x))


def test_dropout_is_removed(network, x):
    without = remove_dropout(network)
    assert not modules_of(without, nn.Dropout)
    close(without(x), network(x))


class Stopwatch(fx.Interpreter):
    """Runs a graph and puts an event around each node."""

    def __init__(self, module):
        super().__init__(module)
        self.events = {}

    def run_node(self, node):
        start, end = (torch.loom.Event(enable_timing=True) for _ in range(2))
        start.record()
        result = super().run_node(node)
        end.record()
        self.events[node] = start, end
        return result

    def milliseconds(self):
        torch.loom.synchronize()
        return {node.name: start.elapsed_time(end) for node, (start, end) in self.events.items()}


def test_an_interpreter_measures_every_node(network, x):
    stopwatch = Stopwatch(fx.symbolic_trace(network))
    close(stopwatch.run(x), network(x))
    times = stopwatch.milliseconds()
    assert set(times) == {node.name for node in stopwatch.module.graph.nodes}
    assert all(time >= 0 for time in times.values())
    assert times["stem"] > 0


def test_operators_are_replaced(network, x):
    traced = fx.symbolic_trace(network)
    for node in traced.graph.find_nodes(op="call_function", target=torch.relu):
        with traced.graph.inserting_after(node):
            new = traced.graph.call_function(nn.functional.gelu, node.args)
            node.replace_all_uses_with(new)
            traced.graph.erase_node(node)
    traced.recompile()
    assert "gelu" in traced.code
    assert "relu" not in traced.code
    reference = copy.deepcopy(traced).cpu()
    torch.testing.assert_close(traced(x).cpu(), reference(x.cpu()), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(traced(x), network(x))


def test_patterns_are_replaced():
    class Sum(nn.Module):
        def forward(self, a, b):
            return torch.relu(a * b + a) - torch.relu(b * a + b)

    traced = fx.symbolic_trace(Sum())
    matches = fx.replace_pattern(
        traced, lambda a, b: torch.relu(a * b + a), lambda a, b: torch.relu(torch.addcmul(a, a, b))
    )
    assert len(matches) == 2
    assert operator.mul not in {node.target for node in traced.graph.nodes}
    a, b = torch.randn(2, 7, device=LOOM)
    close(traced(a, b), Sum()(a, b))


class Swap(fx.Transformer):
    """Adds become subtractions."""

    def call_function(self, target, args, kwargs):
        return super().call_function(operator.sub if target is operator.add else target, args, {})


def test_a_transformer_makes_a_new_graph(x):
    traced = fx.symbolic_trace(lambda t: t.sin() + t * 2)
    close(Swap(traced).transform()(x), x.sin() - x * 2)
    close(traced(x), x.sin() + x * 2)


def test_the_operators_of_a_backward_as_a_graph(network, x):
    parameters, buffers = dict(network.named_parameters()), dict(network.named_buffers())

    def gradient(parameters, buffers, x):
        result = torch.func.functional_call(network, (parameters, buffers), x).square().sum()
        return torch.autograd.grad(result, list(parameters.values()))

    graph = make_fx(gradient, tracing_mode="fake")(parameters, buffers, x)
    assert torch.ops.aten.convolution_backward.default in {n.target for n in graph.graph.nodes}
    torch.testing.assert_close(
        graph(parameters, buffers, x), gradient(parameters, buffers, x), rtol=1e-4, atol=1e-5
    )


def test_a_graph_is_split_over_two_devices(network, x):
    traced = fx.symbolic_trace(network)
    nodes = list(traced.graph.nodes)
    half = {node: int(i >= len(nodes) // 2) for i, node in enumerate(nodes)}
    parts = split_module(traced, network, half.__getitem__)
    expected = network(x)

    class Pipeline(fx.Interpreter):
        def call_module(self, target, args, kwargs):
            device = self.fetch_attr(target).device
            return super().call_module(target, [a.to(device) for a in args], kwargs)

    for name, device in (("submod_0", "loom:0"), ("submod_1", "loom:1")):
        getattr(parts, name).to(device).device = device
    result = Pipeline(parts).run(x)
    assert result.device == torch.device("loom:1")
    torch.testing.assert_close(result.to("loom:0"), expected, rtol=1e-4, atol=1e-5)
