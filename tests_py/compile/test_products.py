# SPDX-License-Identifier: BSD-3-Clause
"""Products that stay or become one operator in a graph: with vectors, of int8, of int8 weights."""

import pytest
import torch
from compile_support import LOOM, assert_equal, to
from torch._higher_order_ops.out_dtype import out_dtype
from torch._inductor.utils import run_and_get_code

pytestmark = pytest.mark.thorough


def compiled_code(function, *inputs):
    """Its result on loom, which is that of cpu, and the code of its graph."""
    torch._dynamo.reset()
    result, (code,) = run_and_get_code(torch.compile(function, fullgraph=True), *to(inputs, LOOM))
    return result, code


@pytest.mark.parametrize("shapes", [((1, 64), (64, 48)), ((48, 64), (64, 1))], ids=str)
def test_products_with_vectors_where_loops_are_tuned(shapes):
    """As libraries of quantized layers set it for the whole process."""
    left, right = (torch.randn(shape) for shape in shapes)
    with torch._inductor.config.patch(coordinate_descent_tuning=True):
        result, code = compiled_code(torch.mm, left, right)
    assert "extern_kernels.mm(" in code
    assert_equal(result, left @ right, rtol=1e-5, atol=1e-5)


def test_batches_of_products_with_vectors_where_loops_are_tuned():
    left, right = torch.randn(3, 1, 64), torch.randn(3, 64, 48)
    with torch._inductor.config.patch(coordinate_descent_tuning=True):
        result, code = compiled_code(torch.bmm, left, right)
    assert "extern_kernels.bmm(" in code
    assert_equal(result, left @ right, rtol=1e-5, atol=1e-5)


def bytes_of(*shape):
    return torch.randint(-128, 128, shape, dtype=torch.int8)


def multiply_bytes(left, right):
    return out_dtype(torch.ops.aten.mm.default, torch.int32, left, right)


@pytest.mark.parametrize("turned", [False, True])
def test_products_of_int8_in_int32(turned):
    left = bytes_of(5, 64)
    right = bytes_of(24, 64).t() if turned else bytes_of(64, 24)
    expected = left.int() @ right.int()
    result, code = compiled_code(multiply_bytes, left, right)
    assert "_int_mm" in code
    assert torch.equal(result.cpu(), expected)
    with torch.profiler.profile() as profile:
        result = multiply_bytes(*to((left, right), LOOM))
    assert torch.equal(result.cpu(), expected)
    assert "aten::_int_mm" in {event.name for event in profile.events()}


def test_other_products_of_another_dtype():
    """They are widened as on every device."""
    left, right = (torch.randint(-9, 9, shape, dtype=torch.int16) for shape in ((5, 8), (8, 3)))
    result, _ = compiled_code(multiply_bytes, left, right)
    assert torch.equal(result.cpu(), left.int() @ right.int())


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((1, 64), torch.bfloat16), ((5, 64), torch.float16), ((2, 3, 64), torch.float32)],
    ids=str,
)
def test_products_with_int8_weights_times_scales(shape, dtype):
    def linear(x, weight, scales):
        return torch.nn.functional.linear(x, weight.to(x.dtype)) * scales

    x, weight = torch.randn(shape).to(dtype), bytes_of(24, 64)
    scales = torch.rand(24).to(dtype) / 64
    result, code = compiled_code(linear, x, weight, scales)
    assert "_weight_int8pack_mm" in code
    exact = linear(x.double(), weight, scales.double())
    assert_equal(result.double(), exact, rtol=2 * torch.finfo(dtype).eps, atol=1e-5)


@pytest.mark.parametrize("factor", [(5, 24), ()], ids=str)
def test_other_factors_are_no_scales_of_weights(factor):
    def multiply(x, weight, factor):
        return torch.nn.functional.linear(x, weight.to(x.dtype)) * factor

    x, weight, factor = torch.randn(5, 64), bytes_of(24, 64), torch.rand(factor)
    result, code = compiled_code(multiply, x, weight, factor)
    assert "_weight_int8pack_mm" not in code
    assert_equal(result, multiply(x, weight, factor), rtol=1e-4, atol=1e-3)


def test_from_the_wrapper_in_cpp():
    def layer(x, weight, scales):
        sums = multiply_bytes((x * 10).to(torch.int8), weight.t())
        return torch.nn.functional.linear(x, weight.to(x.dtype)) * scales + sums * scales

    x, weight, scales = torch.randn(5, 64), bytes_of(24, 64), torch.rand(24)
    with torch._inductor.config.patch(cpp_wrapper=True):
        result, _ = compiled_code(layer, x, weight, scales)
    sums = (x * 10).to(torch.int8).int() @ weight.t().int()
    expected = (x @ weight.t().float() + sums) * scales
    assert_equal(result, expected, rtol=1e-4, atol=1e-2)
