# SPDX-License-Identifier: BSD-3-Clause
"""Activations, bounds and their gradients round as cpu's, at zeros and at NaN, too."""

from collections.abc import Callable

import pytest
import torch
from compare import assert_same, natively, to_loom
from ops_support import held

F, aten = torch.nn.functional, torch.ops.aten
Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]

# (x, gradient); what has an exp or expm1 of its own is apart.
EXACT: dict[str, Function] = {
    "threshold": lambda x, g: aten.threshold(x, 0.3, 7.1),
    "hardshrink": lambda x, g: aten.hardshrink(x, 0.3),
    "hardshrink of a negative bound": lambda x, g: aten.hardshrink(x, -0.5),
    "hardshrink_backward": lambda x, g: aten.hardshrink_backward(g, x, 0.3),
    "softshrink_backward": lambda x, g: aten.softshrink_backward(g, x, 0.3),
    "elu_backward of results": lambda x, g: aten.elu_backward(g, 1.3, 1.1, 0.7, True, x),
    "hardsigmoid": lambda x, g: F.hardsigmoid(x),
    "hardsigmoid_backward": lambda x, g: aten.hardsigmoid_backward(g, x),
    "hardswish": lambda x, g: F.hardswish(x),
    "hardswish_backward": lambda x, g: aten.hardswish_backward(g, x),
    "hardtanh_backward": lambda x, g: aten.hardtanh_backward(g, x, -0.3, 1.0),
}
NEAR: dict[str, Function] = {
    "softshrink": lambda x, g: aten.softshrink(x, 0.3),  # cpu's zeros have several signs
    "elu": lambda x, g: aten.elu(x, 1.3, 1.1, 0.7),
    "selu": lambda x, g: F.selu(x),
    "celu": lambda x, g: F.celu(x, 1.7),
    "elu_backward": lambda x, g: aten.elu_backward(g, 1.3, 1.1, 0.7, False, x),
    "glu": lambda x, g: aten.glu(x, 0),
    "glu_backward": lambda x, g: aten.glu_backward(g[: len(g) // 2], x, 0),
}


def operands(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    inf, nan = float("inf"), float("nan")
    special = torch.tensor(
        [nan, inf, -inf, 0.0, -0.0, 3, -3, 6, 0.5, -0.5, 1, 88, -88, 0.3, -0.3, 2]
    )
    generator = torch.Generator().manual_seed(5)
    # Whole vectors: what is left over is computed apart on cpu, where NaN has another gradient.
    x = torch.cat(
        [special, torch.linspace(-8, 8, 4096), torch.randn(2048, generator=generator) * 3]
    )
    g = torch.cat([special.flip(0), torch.randn(len(x) - len(special), generator=generator)])
    return x.to(dtype), g.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", EXACT)
def test_bits(name, dtype):
    x, g = operands(dtype)
    expected = EXACT[name](x, g)
    result = natively(EXACT[name], *to_loom((x, g))).cpu()
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)
    numbers = ~expected.isnan()
    assert torch.equal(result.signbit()[numbers], expected.signbit()[numbers])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NEAR)
def test_values(name, dtype):
    x, g = operands(dtype)
    result = natively(NEAR[name], *to_loom((x, g))).cpu()
    torch.testing.assert_close(
        result,
        NEAR[name](x, g),
        rtol=4 * torch.finfo(dtype).eps,
        atol=4 * torch.finfo(dtype).eps,
        equal_nan=True,
    )


def test_erf_of_large_numbers_is_one_and_gelu_of_their_negatives_zero():
    """What is left of 1 would be multiplied with the number itself."""
    x = torch.tensor([4.0, 6.0, 1e3, 1e30, float("inf")]).repeat(20)
    (there,) = to_loom((x,))
    assert torch.equal(natively(torch.erf, there).cpu(), torch.ones(100))
    assert torch.equal(natively(torch.erf, -there).cpu(), -torch.ones(100))
    numbers = slice(1, 4)
    assert torch.equal(natively(F.gelu, -there).cpu()[numbers], torch.zeros(3))
    assert natively(F.gelu, -there).cpu()[4].isnan()  # as on cpu
    g = torch.ones_like(there)
    gradient = natively(aten.gelu_backward, g, -there).cpu()
    assert torch.equal(gradient[2:4], torch.zeros(2))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("shape", [(6, 10, 14), (2, 2, 2), (64, 300, 8)], ids=str)
def test_halves_of_any_dimension(shape, dim, dtype):
    generator = torch.Generator().manual_seed(6)
    x = torch.randn(shape, generator=generator).to(dtype)
    for layout in (x, x.transpose(0, 2).contiguous().transpose(0, 2)):
        g = torch.randn_like(F.glu(layout, dim))
        there, gradient = to_loom((layout, g))
        assert_same(natively(F.glu, there, dim), F.glu(layout, dim))
        assert_same(
            natively(aten.glu_backward, gradient, there, dim), aten.glu_backward(g, layout, dim)
        )


def test_rows_whose_halves_are_turned_in_place():
    x = torch.randn(200, 64, generator=torch.Generator().manual_seed(7))
    cos, sin = torch.cos(x[:, :32] * 3), torch.sin(x[:, :32] * 3)

    def turn(x, cos, sin):
        first, second = x[:, :32], x[:, 32:]
        turned = first * cos - second * sin
        second.mul_(cos).add_(first * sin)
        first.copy_(turned)
        return x

    expected = turn(x.clone(), cos, sin)
    there = to_loom((x, cos, sin))
    with held():
        result = turn(*there)
    torch.testing.assert_close(result.cpu(), expected)


@pytest.mark.parametrize("step", [1, 31, 32, 33, 63, 64, 96])
def test_columns_that_are_shifted_are_other_elements(step):
    x = torch.randn(64 * 100, generator=torch.Generator().manual_seed(8))

    def shift(x):
        rows = [torch.as_strided(x, (80, 32), (64, 1), at) for at in (0, step)]
        rows[0].mul_(2)
        return rows[1] + 1, rows[1].sub_(3), x

    expected = shift(x.clone())
    there = x.to("loom")
    with held():
        results = shift(there)
    for result, wanted in zip(results, expected, strict=True):
        assert torch.equal(result.cpu(), wanted)


BOUNDS: dict[str, Function] = {
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "heaviside": torch.heaviside,
    "clamp between tensors": lambda x, y: torch.clamp(x, y, y.roll(1)),
    "clamp from a tensor": lambda x, y: torch.clamp(x, min=y),
    "clamp to a tensor": lambda x, y: torch.clamp(x, max=y),
    "signbit": lambda x, y: x.signbit(),
    "isposinf": lambda x, y: x.isposinf(),
    "isneginf": lambda x, y: x.isneginf(),
}
REAL: dict[str, Function] = {
    "frac": lambda x, y: x.frac(),
    "round to decimals": lambda x, y: x.round(decimals=2),
    "round to hundreds": lambda x, y: x.round(decimals=-2),
    "round to too many decimals": lambda x, y: x.round(decimals=40),
    "nan_to_num": lambda x, y: x.nan_to_num(),
    "nan_to_num of numbers": lambda x, y: x.nan_to_num(0.3, -7.1, 1e5),
    "nan_to_num_": lambda x, y: x.clone().nan_to_num_(1.0),
}


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int32, torch.int64, torch.uint8], ids=str)
@pytest.mark.parametrize("name", [*BOUNDS, *REAL])
def test_bits_of_all_pairs(name, dtype):
    if name in REAL and not dtype.is_floating_point:
        pytest.skip("of floating-point numbers")
    inf, nan = float("inf"), float("nan")
    special = torch.tensor([nan, inf, -inf, 0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, 1234.5678])
    if not dtype.is_floating_point:
        special = special.nan_to_num(0, 9, 9).clamp(0 if dtype == torch.uint8 else -120, 120)
    random = torch.randn(600, generator=torch.Generator().manual_seed(9)).abs() * 100
    x = torch.cat([special.repeat_interleave(len(special)), random]).to(dtype)
    y = torch.cat([special.repeat(len(special)), random.flip(0)]).to(dtype)
    function = (BOUNDS | REAL)[name]
    expected, result = function(x, y), natively(function, *to_loom((x, y)))
    assert_same(result, expected)
    result = result.cpu()
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)
    numbers = expected == expected
    assert torch.equal(result.signbit()[numbers], expected.signbit()[numbers])


def test_infinities_of_another_dtype_than_the_result():
    x = torch.tensor([1.0, float("inf")])
    with pytest.raises(RuntimeError, match="should be same as input"):
        torch.nan_to_num(x.to("loom"), out=torch.empty(2, dtype=torch.float64, device="loom"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_gradients_of_mish_are_rounded_once(dtype):
    """They were rounded to half types by each of eight operators."""
    x = torch.linspace(-8, 8, 4096).to(dtype)
    exact = aten.mish_backward(torch.ones_like(x).double(), x.double())
    result = aten.mish_backward(*to_loom((torch.ones_like(x), x))).cpu()
    torch.testing.assert_close(result.double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-6)
