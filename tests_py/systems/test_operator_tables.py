# SPDX-License-Identifier: BSD-3-Clause
"""Tables of operators: FLOPs, recomputation, vmap, decompositions, as of CUDA's operators.

docs/design/operator-tables.md lists the tables. Those of DTensor are tested with several ranks, in
tests_py/distributed/test_tensor_parallel.py.
"""

import functools

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jacrev, jvp, vmap
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

aten = torch.ops.aten
ATTENTION = aten._scaled_dot_product_fused_attention_overrideable
attend = nn.functional.scaled_dot_product_attention


class Calls(TorchDispatchMode):
    """How often each operator was called."""

    def __init__(self):
        super().__init__()
        self.counts = {}

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        packet = operator.overloadpacket
        self.counts[packet] = self.counts.get(packet, 0) + 1
        return operator(*args, **(kwargs or {}))


def heads(*shape, requires_grad=True):
    torch.manual_seed(0)
    return [torch.randn(*shape, device="loom", requires_grad=requires_grad) for _ in range(3)]


def test_importing_torch_leaves_the_tables_alone(check):
    check(
        """
        import sys, torch
        names = ("torch.distributed.tensor", "torch.utils.flop_counter",
                 "torch._functorch.partitioners", "torch._dynamo")
        assert not [name for name in names if name in sys.modules]
        assert not torch.loom.is_initialized()
        """
    )


@pytest.mark.parametrize("causal", [True, False])
def test_flops_of_attention(causal):
    query, key, value = heads(2, 4, 8, 16)
    product = 2 * (2 * 4 * 8 * 8 * 16)
    with FlopCounterMode(display=False) as counter:
        out = attend(query, key, value, is_causal=causal)
    assert counter.get_total_flops() == 2 * product
    with FlopCounterMode(display=False) as counter:
        out.sum().backward()
    assert counter.get_total_flops() == 5 * product  # one is computed again


def convolution(dims, transposed):
    name = f"Conv{'Transpose' if transposed else ''}{dims}d"
    return getattr(nn, name)(4, 4, 3), torch.randn(2, 4, *[8] * dims)


LAYERS = {
    **{f"conv{dims}d": functools.partial(convolution, dims, False) for dims in (1, 2, 3)},
    **{f"transposed{dims}d": functools.partial(convolution, dims, True) for dims in (1, 2, 3)},
    "linear": lambda: (nn.Linear(4, 5), torch.randn(2, 3, 4)),
    "lstm_cell": lambda: (nn.LSTMCell(4, 5), torch.randn(2, 4)),
    "gru_cell": lambda: (nn.GRUCell(4, 5), torch.randn(2, 4)),
    "gru": lambda: (nn.GRU(4, 5), torch.randn(6, 2, 4)),
    "batch_norm": lambda: (nn.BatchNorm2d(4).eval(), torch.randn(2, 4, 5, 5)),
    "layer_norm": lambda: (nn.LayerNorm(4), torch.randn(2, 4)),
}


def call(module, x):
    out = module(x)
    return out[0] if isinstance(out, tuple) else out


@pytest.mark.parametrize("name", LAYERS)
def test_flops_of_layers_are_those_of_the_cpu(name):
    module, x = LAYERS[name]()
    counts = []
    for device in ("cpu", "loom"):
        with FlopCounterMode(display=False) as counter:
            call(module.to(device), x.to(device).requires_grad_()).sum().backward()
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1]


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("name", ["conv2d", "transposed2d", "batch_norm", "lstm_cell", "gru_cell"])
def test_transforms_of_layers_agree_with_the_cpu(name):
    torch.manual_seed(0)
    module, x = LAYERS[name]()
    got = []
    for device in ("cpu", "loom"):
        run = functools.partial(call, module.to(device))
        on_device = x.to(device)
        got.append(
            [
                jvp(run, (on_device,), (torch.ones_like(on_device),))[1].cpu(),
                jacrev(lambda x, run=run: run(x).flatten()[:3])(on_device).cpu(),
                hessian(lambda x, run=run: run(x).flatten()[:2].square().sum())(on_device).cpu(),
            ]
        )
    torch.testing.assert_close(got[1], got[0], rtol=1e-3, atol=1e-5)


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("name", LAYERS)
def test_vmap_over_gradients_of_layers(name):
    torch.manual_seed(0)
    module, x = LAYERS[name]()
    xs = torch.stack([x, -x, x.square()])
    expected = [grad(lambda x: call(module, x).square().sum())(x) for x in xs]
    module.to("loom")
    got = vmap(grad(lambda x: call(module, x).square().sum()))(xs.to("loom"))
    torch.testing.assert_close(got.cpu(), torch.stack(expected), rtol=1e-3, atol=1e-4)


MASKS = {
    "none": (None, None),
    "same": ((8, 8), None),
    "of_each_batch": ((2, 1, 8, 8), None),
    "of_each_example": ((3, 8, 8), 0),
    "of_each_example_and_batch": ((2, 3, 1, 8, 8), 1),
}


@pytest.mark.parametrize("dims", [(0, 0, 0), (1, None, 2), (None, 4, None)], ids=str)
@pytest.mark.parametrize("mask", MASKS)
def test_vmap_over_gradients_of_attention(mask, dims):
    torch.manual_seed(0)
    shape, of_mask = MASKS[mask]
    sizes = (2, 4, 8, 16)
    tensors = [torch.randn(sizes if d is None else (*sizes[:d], 3, *sizes[d:])) for d in dims]
    bias = None if shape is None else torch.randn(shape)

    def loss(query, key, value, bias):
        return attend(query, key, value, attn_mask=bias).square().sum()

    mapped = vmap(grad(loss, argnums=(0, 1, 2)), in_dims=(*dims, of_mask))
    got = mapped(*(x.to("loom") for x in tensors), None if bias is None else bias.to("loom"))
    loop = [
        grad(loss, argnums=(0, 1, 2))(
            *(x if d is None else x.select(d, i) for x, d in zip(tensors, dims, strict=True)),
            bias if of_mask is None else bias.select(of_mask, i),
        )
        for i in range(3)
    ]
    for ours, *theirs in zip(got, *loop, strict=True):
        torch.testing.assert_close(ours.cpu(), torch.stack(theirs), rtol=1e-3, atol=1e-4)


def test_gradients_of_each_example_of_a_transformer():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    x = torch.randn(3, 5, 16)

    def loss(parameters, example):
        return functional_call(layer, parameters, example.unsqueeze(0)).square().sum()

    parameters = {name: p.detach() for name, p in layer.named_parameters()}
    expected = [grad(loss)(parameters, example) for example in x]
    parameters = {name: p.detach() for name, p in layer.to("loom").named_parameters()}
    got = vmap(grad(loss), in_dims=(None, 0))(parameters, x.to("loom"))
    for name, ours in got.items():
        theirs = torch.stack([each[name] for each in expected])
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-3, atol=1e-4)


def test_a_backward_pass_does_not_compute_attention_again():
    from functorch.compile import (
        aot_function,
        make_boxed_func,
        min_cut_rematerialization_partition,
    )
    from torch._functorch import config

    graphs = []

    def keep(graph, _):
        graphs.append([node.target for node in graph.graph.nodes])
        return make_boxed_func(graph)

    tensors = heads(2, 4, 8, 16)
    with config.patch(aggressive_recomputation=True):
        compiled = aot_function(
            lambda q, k, v: attend(q, k, v).cos(),
            fw_compiler=keep,
            bw_compiler=keep,
            partition_fn=min_cut_rematerialization_partition,
        )
        compiled(*tensors).sum().backward()
    forward, backward = graphs
    assert ATTENTION.default in forward
    assert ATTENTION.default not in backward


def test_the_budget_of_memory_counts_what_attention_costs():
    from torch._functorch import partitioners
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda q, k, v: attend(q, k, v), tracing_mode="fake")(
        *heads(2, 4, 8, 16, requires_grad=False)
    )
    (node,) = graph.graph.find_nodes(op="call_function", target=ATTENTION.default)
    assert partitioners.estimate_runtime(node) >= 4 * (2 * 4 * 8 * 8 * 16)
    assert partitioners.get_default_op_list().is_compute_intensive(node)


@pytest.mark.parametrize("saved", [True, False])
def test_selective_checkpoints_keep_attention_where_they_are_told_to(saved):
    tensors = heads(2, 4, 8, 16)
    policy = [ATTENTION.default] if saved else [aten.mm.default]
    context = functools.partial(create_selective_checkpoint_contexts, policy)
    with Calls() as calls:
        out = checkpoint(
            lambda *x: attend(*x).cos(), *tensors, use_reentrant=False, context_fn=context
        )
        out.sum().backward()
    assert calls.counts[ATTENTION] == (1 if saved else 2)


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec.:FutureWarning")
def test_an_exported_program_keeps_attention_as_one_operator():
    class Attention(nn.Module):
        def forward(self, query, key, value):
            return attend(query, key, value, is_causal=True)

    tensors = tuple(heads(2, 4, 8, 16, requires_grad=False))
    program = torch.export.export(Attention(), tensors).run_decompositions()
    assert program.graph.find_nodes(op="call_function", target=ATTENTION.default)
    expected = attend(*(x.cpu() for x in tensors), is_causal=True)
    torch.testing.assert_close(program.module()(*tensors).cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
@pytest.mark.parametrize("name", ["LSTMCell", "GRUCell"])
def test_recurrent_cells_are_compiled(name, bias):
    torch.manual_seed(0)
    cell = getattr(nn, name)(4, 5, bias=bias).to("loom")
    x = torch.randn(2, 4, device="loom")
    torch._dynamo.reset()
    compiled = torch.compile(cell, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(call(compiled, x), call(cell, x))
