# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile: functions of vectors are loom's own formulas, with the results of eager loom."""

import math

import pytest
import torch
from torch._inductor.utils import run_and_get_code

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("compiled_nests")]

SPECIAL = [
    0.0,
    -0.0,
    math.inf,
    -math.inf,
    math.nan,
    1e-45,
    -1e-40,
    1e-30,
    3e38,
    -3e38,
    88.7,
    -104.0,
]
FUNCTIONS = {
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "log2": torch.log2,
    "tanh": torch.tanh,
    "erf": torch.erf,
}


def values(dtype):
    torch.manual_seed(0)
    near = torch.randn(2048)
    return torch.cat([torch.tensor(SPECIAL), near, near * 30, near * 1e-4]).to(dtype)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float_has_the_bits_of_the_eager_operator(name):
    x = values(torch.float32)[: 128 * 48].to("loom")
    actual, (code,) = run_and_get_code(torch.compile(FUNCTIONS[name], fullgraph=True), x)
    assert f"loom_kernel::{name}(" in code
    expected = FUNCTIONS[name](x)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
    numbers = ~expected.isnan()
    assert torch.equal(actual.signbit()[numbers], expected.signbit()[numbers])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", [*FUNCTIONS, "sigmoid"])
def test_other_dtypes(name, dtype):
    function = getattr(torch, name)
    x = values(dtype)
    actual = torch.compile(function, fullgraph=True)(x.to("loom"))
    torch.testing.assert_close(actual.cpu(), function(x), equal_nan=True)


def test_vectors_of_two_registers():
    # Of int64 a vector takes two registers of float.
    def function(i, x):
        return torch.tanh(i.float()) + i, torch.sigmoid(x) * i

    i, x = torch.arange(-500, 500), torch.linspace(-9, 9, 1000)
    actual = torch.compile(function, fullgraph=True)(i.to("loom"), x.to("loom"))
    for ours, theirs in zip(actual, function(i, x), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)


def test_unsafe_arithmetic_keeps_the_methods_of_vectors():
    # There the compiler may cancel the large numbers by which the formulas round.
    x = torch.linspace(-3, 3, 1000)
    with torch._inductor.config.patch("cpp.enable_unsafe_math_opt_flag", True):
        actual, (code,) = run_and_get_code(torch.compile(torch.erf), x.to("loom"))
    assert "loom_kernel::erf" not in code
    torch.testing.assert_close(actual.cpu(), x.erf())
