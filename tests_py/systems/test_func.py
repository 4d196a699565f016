# SPDX-License-Identifier: BSD-3-Clause
"""torch.func: gradients, Jacobians, vmap, ensembles and per-sample gradients."""

import copy

import pytest
import torch
from torch import nn
from torch.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)
from torch.utils import _pytree as pytree

pytestmark = [
    # Forward mode is written with torch.jit inside PyTorch.
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
    # linearize keeps its constants beside the graph that it makes.
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning"),
    # cpu, not loom, has no batching rule for its attention.
    pytest.mark.filterwarnings("ignore:There is a performance drop.*for_cpu:UserWarning"),
]

LOOM = "loom"


def on_loom(tree):
    return pytree.tree_map_only(torch.Tensor, lambda t: t.to(LOOM), tree)


def on_host(tree):
    def take(tensor):
        assert tensor.is_loom
        return tensor.detach().cpu()

    return pytree.tree_map_only(torch.Tensor, take, tree)


def same_on_both(function, *arguments, tolerance=1e-5):
    """Function gives on loom, on loom tensors, what it gives on cpu."""
    expected = pytree.tree_map_only(torch.Tensor, torch.detach, function(*arguments))
    result = on_host(function(*on_loom(arguments)))
    torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


class Network(nn.Module):
    """A convolution, a norm and a classifier: what per-sample gradients are asked of."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3)
        self.norm = nn.GroupNorm(2, 4)
        self.classifier = nn.Linear(4 * 4 * 4, 5)

    def forward(self, x):
        return self.classifier(torch.relu(self.norm(self.convolution(x))).flatten(1))


def energy(weight, x):
    return torch.tanh(x @ weight).square().sum()


def bend(x):
    return torch.sin(x).cumsum(0) * x.exp()


TRANSFORMS = {
    "grad": lambda x: grad(lambda t: bend(t).sum())(x),
    "grad and value": lambda x: grad_and_value(lambda t: bend(t).sum())(x),
    "grad of grad": lambda x: grad(lambda t: grad(lambda s: bend(s).sum())(t).sum())(x),
    "vjp": lambda x: vjp(bend, x)[1](torch.ones_like(x)),
    "jvp": lambda x: jvp(bend, (x,), (torch.ones_like(x),)),
    "linearize": lambda x: linearize(bend, x)[1](torch.ones_like(x)),
    "jacrev": lambda x: jacrev(bend)(x),
    "jacrev in chunks": lambda x: jacrev(bend, chunk_size=2)(x),
    "jacfwd": lambda x: jacfwd(bend)(x),
    "hessian": lambda x: hessian(lambda t: bend(t).sum())(x),
    "forward over forward": lambda x: jacfwd(jacfwd(lambda t: bend(t).sum()))(x),
    "reverse over reverse": lambda x: jacrev(jacrev(lambda t: bend(t).sum()))(x),
    "vmap of jacrev": lambda x: vmap(jacrev(bend))(torch.stack([x, 2 * x])),
    "functionalize": lambda x: functionalize(lambda t: t.clone().add_(1).mul_(t))(x),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_agree_with_cpu(name):
    same_on_both(TRANSFORMS[name], torch.randn(5, dtype=torch.float64), tolerance=1e-10)


def test_the_two_jacobians_of_a_network_agree():
    network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).to(LOOM)
    x = torch.randn(4, device=LOOM)
    reverse, forward = jacrev(network)(x), jacfwd(network)(x)
    assert reverse.is_loom
    assert reverse.shape == (3, 4)
    torch.testing.assert_close(reverse, forward)
    torch.testing.assert_close(reverse, torch.autograd.functional.jacobian(network, x))


def test_hessian_vector_products_agree_with_the_hessian():
    weight, x = torch.randn(4, 3, device=LOOM), torch.randn(6, 4, device=LOOM)
    direction = torch.randn_like(weight)
    _, product = jvp(grad(energy), (weight, x), (direction, torch.zeros_like(x)))
    matrix = hessian(energy)(weight, x)
    torch.testing.assert_close(torch.einsum("ijkl,kl->ij", matrix, direction), product)


BATCHED = {
    "dot": (lambda a, b: a @ b, 0, (3, 6), (3, 6)),
    "matrix": (lambda a, b: a @ b.T, (0, None), (3, 2, 6), (4, 6)),
    "softmax": (lambda a, b: torch.softmax(a * b, -1), 0, (3, 4, 6), (3, 4, 6)),
    "second dimension": (lambda a, b: a.cumsum(0) + b, (1, 0), (4, 3), (3, 4)),
    "layer norm": (lambda a, b: nn.functional.layer_norm(a, (6,)) - b, 0, (3, 2, 6), (3, 2, 6)),
    "where": (lambda a, b: torch.where(a > 0, b, a), 0, (3, 6), (3, 6)),
    "sort": (lambda a, b: a.sort().values * b, 0, (3, 6), (3, 6)),
    "convolution": (
        lambda a, b: nn.functional.conv1d(a[None, None], b[None, None]),
        0,
        (3, 9),
        (3, 2),
    ),
    "attention": (
        lambda a, b: nn.functional.scaled_dot_product_attention(a, b, b),
        0,
        (3, 1, 2, 5, 8),
        (3, 1, 2, 5, 8),
    ),
    "solve": (
        lambda a, b: torch.linalg.solve(a + 9 * torch.eye(4, device=a.device), b),
        0,
        (3, 4, 4),
        (3, 4),
    ),
}


@pytest.mark.parametrize("name", BATCHED)
def test_vmap_gives_what_a_loop_gives(name):
    function, dims, *shapes = BATCHED[name]
    a, b = (torch.randn(shape) for shape in shapes)
    same_on_both(vmap(function, dims), a, b)
    result = vmap(function, dims)(a.to(LOOM), b.to(LOOM))
    of_a, of_b = dims if isinstance(dims, tuple) else (dims, dims)
    rows = [
        function(
            a.select(of_a, i).to(LOOM),
            b.to(LOOM) if of_b is None else b.select(of_b, i).to(LOOM),
        )
        for i in range(len(result))
    ]
    torch.testing.assert_close(result, torch.stack(rows), rtol=1e-4, atol=1e-5)


def test_vmap_in_chunks_and_nested():
    x = torch.randn(7, 3, 5)
    same_on_both(vmap(torch.logsumexp, (0, None), chunk_size=2), x, 1)
    same_on_both(vmap(vmap(lambda t: t.norm())), x)
    same_on_both(vmap(lambda t: t.sum(0), in_dims=2, out_dims=1), x)


def test_vmap_randomness():
    x = torch.zeros(4, 100, device=LOOM)

    def noise(row):
        return row + torch.randn_like(row)

    with pytest.raises(RuntimeError, match="randomness"):
        vmap(noise)(x)
    same = vmap(noise, randomness="same")(x)
    assert torch.equal(same, same[:1].expand_as(same))
    torch.manual_seed(1)
    different = vmap(noise, randomness="different")(x)
    assert len({tuple(row) for row in different.cpu().tolist()}) == 4
    torch.manual_seed(1)
    assert torch.equal(different, vmap(noise, randomness="different")(x))


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_dropout_under_vmap(randomness):
    ones = torch.ones(4, 200, device=LOOM)
    dropped = vmap(lambda row: nn.functional.dropout(row, 0.5), randomness=randomness)(ones)
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    patterns = {tuple(row) for row in dropped.cpu().tolist()}
    assert len(patterns) == (1 if randomness == "same" else 4)


def test_an_ensemble_runs_as_one_model():
    models = [Network().to(LOOM) for _ in range(4)]
    parameters, buffers = stack_module_state(models)
    assert all(p.is_loom and p.shape[0] == 4 for p in parameters.values())
    skeleton = copy.deepcopy(models[0]).to("meta")

    def run(parameters, buffers, x):
        return functional_call(skeleton, (parameters, buffers), (x,))

    shared = torch.randn(8, 1, 6, 6, device=LOOM)
    together = vmap(run, in_dims=(0, 0, None))(parameters, buffers, shared)
    one_by_one = torch.stack([model(shared) for model in models])
    torch.testing.assert_close(together, one_by_one, rtol=1e-4, atol=1e-5)
    own = torch.randn(4, 8, 1, 6, 6, device=LOOM)
    together = vmap(run)(parameters, buffers, own)
    one_by_one = torch.stack([model(x) for model, x in zip(models, own, strict=True)])
    torch.testing.assert_close(together, one_by_one, rtol=1e-4, atol=1e-5)


def loss_of(network):
    def loss(parameters, sample, target):
        prediction = functional_call(network, parameters, (sample.unsqueeze(0),))
        return nn.functional.cross_entropy(prediction, target.unsqueeze(0))

    return loss


def test_per_sample_gradients():
    network = Network()
    images, targets = torch.randn(6, 1, 6, 6), torch.randint(5, (6,))
    parameters = {name: p.detach() for name, p in network.named_parameters()}
    per_sample = vmap(grad(loss_of(network)), in_dims=(None, 0, 0))
    same_on_both(per_sample, parameters, images, targets)
    network.to(LOOM)
    images, targets = images.to(LOOM), targets.to(LOOM)
    gradients = per_sample(on_loom(parameters), images, targets)
    for i in range(len(images)):
        network.zero_grad()
        nn.functional.cross_entropy(network(images[i : i + 1]), targets[i : i + 1]).backward()
        for name, parameter in network.named_parameters():
            torch.testing.assert_close(gradients[name][i], parameter.grad, rtol=1e-4, atol=1e-5)


def test_gradient_descent_without_modules():
    def train(x):
        y = x.sum(1, keepdim=True)
        network = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)).to(x.device)
        parameters = {name: p.detach() for name, p in network.named_parameters()}

        def loss(parameters):
            return nn.functional.mse_loss(functional_call(network, parameters, (x,)), y)

        losses = []
        for _ in range(30):
            gradients, value = grad_and_value(loss)(parameters)
            parameters = {name: p - 0.1 * gradients[name] for name, p in parameters.items()}
            losses.append(value)
        return torch.stack(losses)

    x = torch.randn(32, 4)
    torch.manual_seed(5)
    expected = train(x)
    torch.manual_seed(5)
    losses = train(x.to(LOOM))
    torch.testing.assert_close(losses.cpu(), expected, rtol=1e-3, atol=1e-4)
    assert losses[-1] < 0.2 * losses[0]


def test_neural_tangent_kernel_both_ways():
    network = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    parameters = {name: p.detach() for name, p in network.named_parameters()}

    def run(parameters, x):
        return functional_call(network, parameters, (x.unsqueeze(0),)).squeeze(0)

    def kernel(parameters, a, b):
        first = vmap(jacrev(run), (None, 0))(parameters, a)
        second = vmap(jacrev(run), (None, 0))(parameters, b)
        return sum(
            torch.einsum("naf,mbf->nmab", first[name].flatten(2), second[name].flatten(2))
            for name in parameters
        )

    same_on_both(kernel, parameters, torch.randn(4, 3), torch.randn(5, 3))
