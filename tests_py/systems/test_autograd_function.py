# SPDX-License-Identifier: BSD-3-Clause
"""torch.autograd.Function: double backward, gradcheck, saved tensors, vmap, fused conv and norm."""

import pytest
import torch
from torch import nn
from torch.autograd import Function, gradcheck, gradgradcheck
from torch.autograd.function import once_differentiable

pytestmark = [
    # The forward mode of gradcheck is written with torch.jit inside PyTorch.
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
]

LOOM = "loom"


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def leaf(*shape, dtype=torch.float64, device=LOOM):
    return torch.randn(shape, dtype=dtype).to(device).requires_grad_()


class Cube(Function):
    """Saves its argument; the backward is made of operators, so it has a derivative itself."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 3 * x**2


class Split(Function):
    """setup_context, two results, an argument without gradient, forward mode and vmap."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, scale):
        return x.sin() * scale, x.cos()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale = inputs
        ctx.scale = scale
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx, to_sine, to_cosine):
        (x,) = ctx.saved_tensors
        return to_sine * x.cos() * ctx.scale - to_cosine * x.sin(), None

    @staticmethod
    def jvp(ctx, tangent, _):
        (x,) = ctx.saved_tensors
        return tangent * x.cos() * ctx.scale, -tangent * x.sin()


class Halve(Function):
    """A vmap rule of its own, which counts how often it is asked."""

    calls = 0

    @staticmethod
    def forward(x):
        return x / 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return gradient / 2

    @staticmethod
    def vmap(info, in_dims, x):
        assert info.batch_size == x.shape[in_dims[0]]
        Halve.calls += 1
        return Halve.apply(x), in_dims[0]


class Clamp(Function):
    """Changes its argument in place."""

    @staticmethod
    def forward(ctx, x, low):
        ctx.save_for_backward(x < low)
        ctx.mark_dirty(x)
        return x.clamp_(min=low)

    @staticmethod
    def backward(ctx, gradient):
        (below,) = ctx.saved_tensors
        return gradient.masked_fill(below, 0), None


class Sorted(Function):
    """Values with a gradient and indices without."""

    @staticmethod
    def forward(ctx, x):
        values, order = x.sort()
        ctx.mark_non_differentiable(order)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(order)
        return values, order

    @staticmethod
    @once_differentiable
    def backward(ctx, to_values, to_order):
        assert to_order is None
        (order,) = ctx.saved_tensors
        return torch.empty_like(to_values).scatter_(-1, order, to_values)


@pytest.mark.parametrize("function", [Cube.apply, lambda x: Split.apply(x, 2.0), Halve.apply])
def test_numerical_derivatives_agree(function):
    x = leaf(4, 3)
    assert gradcheck(function, x)
    assert gradgradcheck(function, x)


def test_numerical_derivatives_by_forward_mode_and_in_batches():
    x = leaf(5)
    function = lambda x: Split.apply(x, 2.0)  # noqa: E731
    assert gradcheck(function, x, check_forward_ad=True, check_batched_grad=True)


BUILT_IN = {
    "linear": (nn.functional.linear, (3, 4), (2, 4), (2,)),
    "conv2d": (nn.functional.conv2d, (1, 2, 5, 5), (3, 2, 3, 3), (3,)),
    "layer norm": (lambda x: nn.functional.layer_norm(x, (4,)), (3, 4)),
    "batch norm": (lambda x: nn.functional.batch_norm(x, None, None, training=True), (4, 3)),
    "softmax": (lambda x: torch.softmax(x, -1), (3, 4)),
    "solve": (torch.linalg.solve, (3, 3), (3, 2)),
    "eigenvalues": (lambda x: torch.linalg.eigvalsh(x + x.mT), (3, 3)),
    "fft": (lambda x: torch.fft.rfft(x).abs(), (6,)),
    "pool": (lambda x: nn.functional.avg_pool2d(x, 2), (1, 2, 4, 4)),
}


@pytest.mark.parametrize("name", BUILT_IN)
def test_numerical_derivatives_of_operators(name):
    function, *shapes = BUILT_IN[name]
    operands = [leaf(*shape) for shape in shapes]
    assert gradcheck(function, operands)


def test_a_wrong_derivative_is_found():
    class Wrong(Cube):
        @staticmethod
        def backward(ctx, gradient):
            return gradient * ctx.saved_tensors[0]

    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradcheck(Wrong.apply, leaf(3))


def test_double_backward():
    x = leaf(6)
    (first,) = torch.autograd.grad(Cube.apply(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    (third,) = torch.autograd.grad(second.sum(), x)
    torch.testing.assert_close(first, 3 * x**2)
    torch.testing.assert_close(second, 6 * x)
    torch.testing.assert_close(third, torch.full_like(x, 6))


def test_once_differentiable_refuses_a_second_time():
    x = leaf(4, 3)
    values, order = Sorted.apply(x)
    assert not order.requires_grad
    assert values.requires_grad
    (gradient,) = torch.autograd.grad(values.square().sum(), x, create_graph=True)
    torch.testing.assert_close(gradient.detach(), 2 * x.detach())
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_arguments_changed_in_place():
    x = leaf(20)
    doubled = x * 2
    clamped = Clamp.apply(doubled, 0.5)
    assert clamped is doubled
    clamped.sum().backward()
    torch.testing.assert_close(x.grad, 2 * (2 * x.detach() >= 0.5).double())
    with pytest.raises(RuntimeError, match="leaf Variable"):
        Clamp.apply(leaf(3), 0.0)


def test_a_saved_tensor_that_changed_is_noticed():
    x = leaf(3)
    y = x * 1
    result = Cube.apply(y)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_hooks_see_every_saved_tensor_and_may_move_it():
    packed = []

    def pack(tensor):
        packed.append(tensor.device.type)
        return tensor.cpu()

    def unpack(tensor):
        assert tensor.device.type == "cpu"
        return tensor.to(LOOM)

    x = leaf(5)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        result = Cube.apply(x.exp())
    result.sum().backward()
    assert packed == [LOOM] * len(packed)
    assert len(packed) >= 2
    torch.testing.assert_close(x.grad, 3 * (3 * x.detach()).exp())


@pytest.mark.parametrize("pinned", [False, True])
def test_saved_tensors_wait_on_the_cpu(pinned):
    x = leaf(5)
    with torch.autograd.graph.save_on_cpu(pin_memory=pinned, device_type=LOOM):
        result = Cube.apply(x.exp())
    assert result.is_loom
    result.sum().backward()
    torch.testing.assert_close(x.grad, 3 * (3 * x.detach()).exp())


def test_vmap_by_rule_and_by_hand():
    x = torch.randn(4, 3, device=LOOM)
    for result, expected in zip(
        torch.vmap(Split.apply, (0, None))(x, 2.0), (x.sin() * 2, x.cos()), strict=True
    ):
        torch.testing.assert_close(result, expected)
    Halve.calls = 0
    torch.testing.assert_close(torch.vmap(Halve.apply, 1, 1)(x), x / 2)
    assert Halve.calls == 1
    gradients = torch.vmap(torch.func.grad(lambda row: Split.apply(row, 2.0)[0].sum()))(x)
    torch.testing.assert_close(gradients, 2 * x.cos())


def test_backward_runs_on_the_stream_of_its_forward():
    seen = []

    class Watch(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            seen.append(torch.loom.current_stream())
            return gradient

    side = torch.loom.Stream()
    with torch.loom.stream(side):
        result = Watch.apply(leaf(3)).sum()
    result.backward()
    assert seen == [side]


class ConvolutionAndNorm(Function):
    """A convolution and the norm of its result by batch, which keeps no tensor between the two.

    The backward computes the convolution again, so only the argument and the weight are saved.
    """

    @staticmethod
    def forward(ctx, x, weight, eps):
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        result = nn.functional.conv2d(x, weight)
        variance, mean = torch.var_mean(result, (0, 2, 3), correction=0, keepdim=True)
        return result.sub_(mean).mul_((variance + eps).rsqrt())

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        normal = nn.functional.conv2d(x, weight)
        variance, mean = torch.var_mean(normal, (0, 2, 3), correction=0, keepdim=True)
        scale = (variance + ctx.eps).rsqrt()
        normal.sub_(mean).mul_(scale)
        along = (gradient * normal).mean((0, 2, 3), keepdim=True)
        gradient = scale * (gradient - gradient.mean((0, 2, 3), keepdim=True) - normal * along)
        return (
            torch.nn.grad.conv2d_input(x.shape, weight, gradient),
            torch.nn.grad.conv2d_weight(x, weight.shape, gradient),
            None,
        )


def test_a_fused_convolution_and_norm_is_right():
    x, weight = leaf(2, 2, 5, 5), leaf(3, 2, 3, 3)
    assert gradcheck(lambda x, w: ConvolutionAndNorm.apply(x, w, 1e-3), (x, weight))
    fused = ConvolutionAndNorm.apply(x, weight, 1e-3)
    apart = nn.functional.batch_norm(
        nn.functional.conv2d(x, weight), None, None, training=True, eps=1e-3
    )
    torch.testing.assert_close(fused, apart)
    weights = torch.randn_like(fused)
    torch.testing.assert_close(
        torch.autograd.grad((fused * weights).sum(), (x, weight)),
        torch.autograd.grad((apart * weights).sum(), (x, weight)),
    )


def test_a_fused_convolution_and_norm_keeps_less_memory():
    def kept(function):
        x, weight = leaf(8, 3, 34, 34, dtype=torch.float32), leaf(16, 3, 3, 3, dtype=torch.float32)
        before = torch.loom.memory_allocated()
        result = function(x, weight)
        bytes_kept = torch.loom.memory_allocated() - before
        result.sum().backward()
        assert x.grad.is_loom
        return bytes_kept, result.numel() * 4

    fused, size = kept(lambda x, w: ConvolutionAndNorm.apply(x, w, 1e-5))
    apart, _ = kept(
        lambda x, w: nn.functional.batch_norm(nn.functional.conv2d(x, w), None, None, training=True)
    )
    assert size <= fused < 1.5 * size
    assert apart >= 2 * size
