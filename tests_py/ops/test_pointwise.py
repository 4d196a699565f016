# SPDX-License-Identifier: BSD-3-Clause
"""Pointwise operators: values, layouts, broadcasting, promotion, out=, in place, gradients."""

import operator
import re

import pytest
import torch
from compare import agrees, assert_same, gradients_agree, natively, same_error, to_loom
from torch.testing._internal.common_methods_invocations import op_db

F = torch.nn.functional

# Whose samples of op_db are compared, in every dtype below that the operator takes.
NAMES = re.findall(
    r"\S+",
    """
abs acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_left_shift
bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil clamp clamp_max clamp_min copysign cos
cosh div eq erf erfc erfinv exp exp2 expm1 floor fmax fmin fmod frac gcd ge gt heaviside hypot
isnan isneginf isposinf lcm le lerp log log10 log1p log2 logaddexp logaddexp2 logical_and
logical_not logical_or logical_xor lt masked_fill maximum minimum mul ne neg nextafter pow
reciprocal remainder round rsqrt rsub sgn sigmoid sign signbit sin sinh sqrt sub tan tanh trunc
where xlogy nn.functional.gelu nn.functional.relu nn.functional.silu nn.functional.mish
nn.functional.leaky_relu nn.functional.elu nn.functional.hardtanh nn.functional.hardswish
nn.functional.hardsigmoid nn.functional.softplus nn.functional.softshrink nn.functional.hardshrink
nn.functional.threshold nn.functional.relu6 i0 lgamma digamma polygamma sinc special.entr
special.erfcx special.i1 special.ndtri special.xlog1py special.zeta
""",
)
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64]

INFOS = {(op.name, op.variant_test_name): op for op in op_db if op.name in NAMES}
CASES = [
    pytest.param(op, dtype, id="-".join(filter(None, [*key, str(dtype).removeprefix("torch.")])))
    for key, op in INFOS.items()
    for dtype in DTYPES
    if dtype in op.dtypes
]


def test_every_name_is_known():
    assert {name for name, _ in INFOS} == set(NAMES)


@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_samples_of_op_db(op, dtype):
    for sample in op.sample_inputs("cpu", dtype):
        arguments = (sample.input, *sample.args)
        expected = op(*arguments, **sample.kwargs)
        kwargs = to_loom(sample.kwargs)
        assert_same(natively(op, *to_loom(arguments), **kwargs), expected)


def numbers(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(7)).to(dtype)


# Large enough to be cut into blocks.
LAYOUTS = {
    "contiguous": lambda: numbers(600, 500),
    "transposed": lambda: numbers(500, 600).t(),
    "strided": lambda: numbers(1200, 1000)[::2, 1::2],
    "channels_last": lambda: numbers(3, 100, 20, 50).contiguous(memory_format=torch.channels_last),
    "expanded": lambda: numbers(1, 500).expand(600, 500),
    "many dimensions": lambda: numbers(4, 5, 3, 5, 4, 5, 50).permute(3, 0, 2, 1, 4, 6, 5),
    "flat": lambda: numbers(300_001),
    "empty": lambda: numbers(0, 500),
    "zero-dimensional": lambda: numbers(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("function", [torch.exp, torch.neg, F.gelu, torch.relu, torch.abs])
def test_layouts_of_one_operand(layout, function):
    agrees(function, LAYOUTS[layout]())


@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("right", LAYOUTS)
def test_layouts_of_two_operands(left, right):
    a, b = LAYOUTS[left](), LAYOUTS[right]()
    try:
        torch.broadcast_shapes(a.shape, b.shape)
    except RuntimeError:
        same_error(torch.add, a, b)
    else:
        agrees(torch.add, a, b)


@pytest.mark.parametrize("shape", [(500,), (600, 1), (1, 1), (1,), (), (1, 600, 500), (2, 1, 1)])
def test_broadcasting(shape):
    agrees(torch.mul, numbers(600, 500), numbers(*shape))
    agrees(torch.sub, numbers(*shape), numbers(600, 500))
    agrees(torch.where, numbers(600, 500) > 0, numbers(*shape), numbers(500))


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.float16, torch.complex64])
@pytest.mark.parametrize("function", [torch.add, torch.mul, torch.true_divide, torch.eq])
def test_promotion(function, dtype):
    agrees(function, numbers(700, 500), numbers(500).to(dtype))
    agrees(function, numbers(700, 500).to(dtype), numbers())
    agrees(lambda x: function(x, 2), numbers(700, 500).to(dtype))
    agrees(lambda x: function(x, 2.5), numbers(700, 500).to(dtype))


def test_a_cpu_scalar_is_taken_by_value():
    x = torch.ones(300_000, device="loom")
    scalar = torch.tensor(3.0)
    result = x * scalar
    scalar.fill_(-1)
    assert result.eq(3).all().item()


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "strided"])
def test_in_place(layout):
    def run(x, y):
        x.mul_(2).add_(y, alpha=3).clamp_(-1, 1).sigmoid_().relu_()
        x.add_(x)
        return x

    agrees(run, LAYOUTS[layout](), numbers(500))


def test_in_place_on_part_of_a_tensor():
    def run(x):
        x[100:500, 3:].mul_(x[100:500, :1])
        x.t()[7].neg_()
        return x

    agrees(run, numbers(600, 500))


IN_PLACE_OF_OPERANDS = {
    "itself": lambda x: x.mul_(x),
    "a view of itself": lambda x: x.add_(x.view_as(x), alpha=2),
    "other places of its memory": lambda x: x[:64].addcmul_(x[64:], x[64:].view(64)),
    "number": lambda x: x.div_(3),
    "bool": lambda x: x.add_(True).mul_(True),
    "other dtype": lambda x: x.add_(x.double()),
    "lazy clone": lambda x: (x._lazy_clone(), x.lerp_(x * 2, 0.25))[0],
}


@pytest.mark.parametrize("change", IN_PLACE_OF_OPERANDS.values(), ids=IN_PLACE_OF_OPERANDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_in_place_with_operands_of_its_own_memory(change, dtype):
    expected, actual = numbers(128, dtype=dtype), numbers(128, dtype=dtype).to("loom")
    results = [change(x) for x in (expected, actual)]
    assert_same(results[1], results[0])
    assert_same(actual, expected)
    assert actual._version == expected._version


IN_PLACE_REFUSED = {
    "neighbours": lambda x: x[1:].add_(x[:-1]),
    "shifted rows": lambda x: x.view(8, 16)[1:].mul_(x.view(8, 16)[:-1]),
    "rows of itself": lambda x: x.view(2, 64).sub_(x[:64].view(1, 64)),
    "expanded": lambda x: x[:1].expand(4).add_(1.0),
    "shape": lambda x: x[:1].add_(x),
    "complex": lambda x: x.mul_(1j),
    "bool": lambda x: x.sub_(True),
    "bool, not in place": lambda x: x - True,
}


@pytest.mark.parametrize("change", IN_PLACE_REFUSED.values(), ids=IN_PLACE_REFUSED)
def test_in_place_errors_are_those_of_cpu(change):
    same_error(change, numbers(128))


@pytest.mark.parametrize("make", [lambda x: torch.empty(0), torch.empty_like, lambda x: x.clone()])
def test_out(make):
    def run(x, y, out):
        result = torch.add(x, y, out=out)
        assert result is out
        return result

    x, y = numbers(600, 500), numbers(500)
    agrees(run, x, y, make(x).to(x.dtype))


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_out_of_other_strides_dtype_and_shape():
    x = numbers(600, 500)
    agrees(lambda a, o: torch.exp(a, out=o), x, torch.zeros(500, 600).t())
    agrees(lambda a, o: torch.exp(a, out=o), x, torch.zeros(600, 1000)[:, ::2])
    # Computed as float32, and only as near to cpu as that is.
    double = torch.zeros(600, 500, dtype=torch.float64)
    agrees(lambda a, o: (o.dtype, torch.exp(a, out=o).float()), x, double)
    agrees(lambda a, o: torch.gt(a, 0, out=o), x, torch.zeros(600, 500))
    agrees(lambda a, o: torch.exp(a, out=o), x, torch.zeros(3))
    agrees(lambda a: torch.exp(a, out=a), x)


@pytest.mark.parametrize(
    "function",
    [
        operator.add,
        lambda x, y: x.t().add_(x),
        lambda x, y: x[1:].add_(x[:-1]),
        lambda x, y: x[:1].expand(600, 500).add_(1),
        lambda x, y: torch.add(x, 1, out=torch.zeros_like(x, dtype=torch.int64)),
        lambda x, y: x.to(torch.int64).div_(2),
        lambda x, y: torch.where(x, x, x),
        lambda x, y: x.masked_fill_(x, 1),
        lambda x, y: (x > 0) - (x > 0),
        lambda x, y: F.softplus(x.to(torch.int64)),
        lambda x, y: F.gelu(x.to(torch.int64)),
        lambda x, y: torch.bitwise_and(x, x),
        lambda x, y: torch.gcd(x, x),
        lambda x, y: torch.ceil(x.to(torch.complex64)),
    ],
)
def test_errors_are_those_of_cpu_and_the_callers(function):
    same_error(function, numbers(600, 500), numbers(3))


def test_operands_on_two_devices():
    x = torch.ones(3, device="loom")
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        x + torch.ones(3)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        x + torch.ones(3, device="loom:1")


@pytest.mark.parametrize(
    "function",
    [
        torch.exp,
        torch.tanh,
        torch.sigmoid,
        torch.relu,
        F.gelu,
        lambda x: F.gelu(x, approximate="tanh"),
        F.silu,
        F.elu,
        F.leaky_relu,
        F.hardtanh,
        F.hardswish,
        F.hardsigmoid,
        F.softplus,
        F.mish,
        torch.abs,
        lambda x: x.pow(2),
        lambda x: x.clamp(-0.5, 0.5),
        lambda x: torch.where(x > 0, x, x * 2),
        lambda x: x.masked_fill(x > 0, 0),
        lambda x: x / (x.abs() + 1),
        lambda x: torch.lerp(x, x * 2, 0.3),
    ],
)
def test_gradients(function):
    gradients_agree(function, numbers(400, 500))


def test_gradients_of_broadcast_operands():
    gradients_agree(lambda x, y, z: (x + y) * z, numbers(600, 500), numbers(500), numbers(600, 1))
    gradients_agree(torch.addcmul, numbers(600, 500), numbers(600, 500), numbers(500))


@pytest.mark.parametrize(
    "shape", [(10, 1, 5, 5), (1, 3, 1, 1), (2, 3, 1, 1), (1, 1, 4, 5), (1, 4), (4, 1), (1, 1), (1,)]
)
def test_strides_of_dimensions_of_size_one(shape):
    plain = torch.rand(shape)
    odd = [plain, plain.as_strided(shape, [7 if n == 1 else s for n, s in layout(plain)])]
    if plain.dim() == 4:
        odd.append(plain.to(memory_format=torch.channels_last))
    if plain.dim() == 2:
        odd.append(torch.rand(shape[::-1]).t())
    for x in odd:
        for function in (
            lambda x: x * 5,
            lambda x: x + 0.5,
            lambda x: 2 - x,
            lambda x: x.exp(),
            lambda x: x + x,
            lambda x: x.pow(3),
            lambda x: x.clamp(0.1),
            lambda x: x.lerp(x, 0.5),
            lambda x: torch.relu(x),
            lambda x: x.clone().mul_(2),
            lambda x: torch.addcmul(x, x, x),
            lambda x: x > 0.5,
            lambda x: torch.where(x > 0.5, x, 1.0),
        ):
            on_loom = x.to("loom").as_strided(x.shape, x.stride())
            assert function(on_loom).stride() == function(x).stride(), x.stride()


def layout(x):
    return zip(x.shape, x.stride(), strict=True)
