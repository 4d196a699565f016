# SPDX-License-Identifier: BSD-3-Clause
"""Forward-mode AD: dual numbers through functions, modules and training steps."""

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

pytestmark = [
    pytest.mark.usefixtures("no_fallback"),
    # Some of its formulas are written with torch.jit inside PyTorch.
    pytest.mark.filterwarnings(r"ignore:`torch.jit.\w+` is deprecated:DeprecationWarning"),
]

LOOM = "loom"


def push(function, primal, tangent):
    """The value and the directional derivative of function."""
    with forward_ad.dual_level():
        result = forward_ad.unpack_dual(function(forward_ad.make_dual(primal, tangent)))
    return result.primal, result.tangent


FUNCTIONS = {
    "pointwise": (lambda x: torch.tanh(x) * x.exp() + x.pow(3), (4, 5)),
    "product": (lambda x: x @ x.T, (4, 5)),
    "softmax": (lambda x: torch.log_softmax(x, -1), (4, 5)),
    "reduction": (lambda x: x.amax(0) + x.logsumexp(0), (4, 5)),
    "norms": (lambda x: nn.functional.layer_norm(x, (5,)), (4, 5)),
    "convolution": (
        lambda x: nn.functional.conv2d(x, torch.ones_like(x[:, :, :2, :2])),
        (1, 2, 5, 5),
    ),
    "pools": (lambda x: nn.functional.max_pool2d(x, 2), (1, 2, 4, 4)),
    "index": (lambda x: x[[2, 0]].sort().values.cumsum(1), (4, 5)),
    "in place": (lambda x: x.clone().mul_(x).add_(1).relu_(), (4, 5)),
    "views": (lambda x: x.reshape(5, 4).T[1:].flip(0), (4, 5)),
    "where": (lambda x: torch.where(x > 0, x.square(), x.neg()), (4, 5)),
    "loss": (lambda x: nn.functional.cross_entropy(x, torch.arange(4, device=x.device)), (4, 5)),
    "joined": (lambda x: torch.cat([x, x * 2]).chunk(2, 1)[1], (4, 6)),
    "linear algebra": (
        lambda x: torch.linalg.solve(x + 5 * torch.ones_like(x).tril(), x),
        (4, 4),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_agree_with_cpu_and_with_reverse_mode(name):
    function, shape = FUNCTIONS[name]
    primal, tangent = torch.randn(2, *shape, dtype=torch.float64)
    value, derivative = push(function, primal.to(LOOM), tangent.to(LOOM))
    assert derivative.is_loom
    torch.testing.assert_close(
        (value.cpu(), derivative.cpu()), push(function, primal, tangent), rtol=1e-9, atol=1e-9
    )
    # The same number by reverse mode: <v, J t> = <J' v, t>.
    leaf = primal.to(LOOM).requires_grad_()
    result = function(leaf)
    weights = torch.randn_like(result)
    (gradient,) = torch.autograd.grad(result, leaf, weights)
    torch.testing.assert_close((weights * derivative).sum(), (gradient * tangent.to(LOOM)).sum())


def test_dual_numbers_live_for_one_level():
    primal, tangent = torch.randn(2, 3, device=LOOM)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(primal, tangent)
        assert dual.is_loom
        assert torch.equal(forward_ad.unpack_dual(dual).tangent, tangent)
        assert forward_ad.unpack_dual(primal).tangent is None
    assert forward_ad.unpack_dual(dual, level=0).tangent is None
    with pytest.raises(RuntimeError, match="no level"):
        forward_ad.make_dual(primal, tangent)


def test_copies_between_devices_carry_the_tangent():
    primal, tangent = torch.randn(2, 3)
    for target in ("loom:1", "cpu"):
        value, derivative = push(
            lambda x, target=target: x.to(target) * 2, primal.to(LOOM), tangent.to(LOOM)
        )
        assert derivative.device == torch.device(target)
        torch.testing.assert_close((value.cpu(), derivative.cpu()), (primal * 2, tangent * 2))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv1d(2, 4, 3)
        self.norm = nn.BatchNorm1d(4)
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return self.out(torch.nn.functional.gelu(self.norm(self.convolution(x))).mean(2))


def directional(module, x, tangents):
    """The derivative of a module's result when its parameters move along tangents."""
    parameters = dict(module.named_parameters())
    with forward_ad.dual_level():
        duals = {
            name: forward_ad.make_dual(p.detach(), tangents[name].to(p.device))
            for name, p in parameters.items()
        }
        result = torch.func.functional_call(module, duals, (x,))
        return forward_ad.unpack_dual(result).tangent


@pytest.mark.parametrize("training", [True, False])
def test_modules_are_differentiated_along_their_parameters(training):
    module, x = Network().train(training), torch.randn(5, 2, 7)
    tangents = {name: torch.randn_like(p) for name, p in module.named_parameters()}
    expected = directional(module, x, tangents)
    module.to(LOOM)
    result = directional(module, x.to(LOOM), tangents)
    assert result.is_loom
    torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_parameters_may_be_dual_numbers_themselves():
    module = nn.Linear(4, 3).to(LOOM)
    x = torch.randn(5, 4, device=LOOM)
    tangent = torch.randn(3, 4, device=LOOM)
    weight = module.weight.detach()
    with forward_ad.dual_level():
        del module.weight
        module.weight = forward_ad.make_dual(weight, tangent)
        result = forward_ad.unpack_dual(module(x)).tangent
    torch.testing.assert_close(result, x @ tangent.T)


class Cube(torch.autograd.Function):
    """Knows both modes."""

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 3 * x**2

    @staticmethod
    def jvp(ctx, tangent):
        (x,) = ctx.saved_tensors
        return tangent * 3 * x**2


class CubeInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.before = x.clone()
        ctx.mark_dirty(x)
        return x.pow_(3)

    @staticmethod
    def jvp(ctx, tangent):
        return tangent.mul_(3 * ctx.before**2)


@pytest.mark.parametrize("function", [Cube.apply, lambda x: CubeInPlace.apply(x * 1)])
def test_functions_with_a_rule_of_their_own(function):
    primal, tangent = torch.randn(2, 5, device=LOOM)
    value, derivative = push(function, primal, tangent)
    torch.testing.assert_close(value, primal**3)
    torch.testing.assert_close(derivative, 3 * primal**2 * tangent)


def test_a_function_without_a_rule_says_so():
    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    with pytest.raises((RuntimeError, NotImplementedError), match="jvp"):
        push(Backward.apply, *torch.randn(2, 3, device=LOOM))


def test_forward_over_reverse_is_a_hessian_times_a_vector():
    def energy(x):
        return (x.sin() * x.roll(1)).sum()

    primal, tangent = torch.randn(2, 6, device=LOOM, dtype=torch.float64)

    def gradient(x):
        return torch.func.grad(energy)(x)

    _, product = push(gradient, primal, tangent)
    leaf = primal.clone().requires_grad_()
    (first,) = torch.autograd.grad(energy(leaf), leaf, create_graph=True)
    (expected,) = torch.autograd.grad(first, leaf, tangent)
    torch.testing.assert_close(product, expected)


def test_forward_gradients_train_without_a_backward():
    x = torch.randn(64, 4, device=LOOM)
    y = x @ torch.tensor([1.0, -2.0, 3.0, 0.5], device=LOOM)
    weight = torch.zeros(4, device=LOOM)
    losses = []
    for _ in range(100):
        direction = torch.randn_like(weight)
        loss, slope = push(lambda w: (x @ w - y).square().mean(), weight, direction)
        weight -= 0.05 * slope * direction
        losses.append(loss)
    assert losses[-1].item() < 0.05 * losses[0].item()
