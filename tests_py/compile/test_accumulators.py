# SPDX-License-Identifier: BSD-3-Clause
"""Reductions that generated kernels compute in several accumulators, with what remains of a row."""

import pytest
import torch
from compile_support import LOOM, assert_equal, compile_and_compare, to
from torch._inductor.utils import run_and_get_code

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("compiled_nests")]

# Whole rounds of several vectors, vectors that remain, and elements that remain.
LENGTHS = (128, 256, 511, 512, 513, 528, 575, 1000, 1024)


def reduce_rows(x):
    return x.sum(-1), x.amax(-1), x.amin(-1), (x * x).mean(-1)


def reduce_columns(x):
    return x.sum(0), x.amax(0), x.amin(0)


@pytest.mark.parametrize("length", LENGTHS)
def test_rows(length):
    compile_and_compare(reduce_rows, torch.randn(5, length))


@pytest.mark.parametrize("length", [7, 8, 9, 64, 130])
def test_columns(length):
    compile_and_compare(reduce_columns, torch.randn(length, 67))


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.int64])
def test_other_dtypes(dtype):
    x = torch.randint(-9, 9, (5, 600)).to(dtype)
    compile_and_compare(lambda x: (x.sum(-1), x.amax(-1), x.amin(-1)), x)
    compile_and_compare(reduce_columns, x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types(dtype):
    x = torch.randn(5, 600).to(dtype)
    compile_and_compare(lambda x: (x.float().sum(-1), x.amax(-1), x.softmax(-1)), x)


def test_products():
    x = 1 + torch.randn(5, 600) / 100
    compile_and_compare(lambda x: (x.prod(-1), x.prod(0)), x)


@pytest.mark.parametrize("place", [0, 17, 300, 511, 512, 599])
def test_what_is_not_a_number_is_kept(place):
    x = torch.randn(3, 600)
    x[1, place] = float("nan")
    x[2, place] = float("inf")
    compile_and_compare(reduce_rows, x, tolerances={"equal_nan": True})


def test_several_reductions_in_one_loop():
    def normalize(x, mask):
        y = torch.where(mask, x, -1.0)
        return torch.softmax(y, -1) * y.std(-1, keepdim=True), y.argmax(-1), mask.sum(-1)

    compile_and_compare(normalize, torch.randn(9, 600), torch.rand(9, 600) > 0.3)


def test_sizes_that_are_symbols():
    compiled = torch.compile(reduce_rows, dynamic=True)
    for length in (3, 100, *LENGTHS):
        x = torch.randn(4, length)
        assert_equal(compiled(x.to(LOOM)), reduce_rows(x))


def test_rows_have_several_accumulators():
    _, code = run_and_get_code(torch.compile(reduce_rows), to(torch.randn(5, 512), LOOM))
    assert "_vec_3" in code[0]


@pytest.mark.parametrize("shape", [(3, 20000), (3, 70001), (70001, 37)])
def test_variances(shape):
    x = 3 + torch.randn(shape)
    dim = int(shape[1] > shape[0])
    compile_and_compare(lambda x: torch.var_mean(x, dim), x)


def test_a_batch_is_normalized():
    x = torch.randn(8, 20, 56, 57)
    norm = torch.nn.functional.batch_norm
    compile_and_compare(
        lambda x, m, v: norm(x, m, v, training=True), x, torch.zeros(20), torch.ones(20)
    )
    x = x.to(memory_format=torch.channels_last)
    compile_and_compare(
        lambda x, m, v: norm(x, m, v, training=True), x, torch.zeros(20), torch.ones(20)
    )


@pytest.mark.parametrize("shape", [(3, 20000), (3, 70001), (70001, 37), (9001, 64)])
def test_long_sums(shape):
    x = torch.rand(shape)
    compile_and_compare(lambda x: (x.sum(0), x.mean(1), x.sum()), x)


def test_sums_of_a_part():
    x = torch.rand(700, 600)
    compile_and_compare(lambda x: (x[:, :500].sum(), x[:, 7:].amax(), x[::2].sum(0)), x)


def test_what_is_the_same_along_a_row_is_computed_before_it():
    def scale(x, w, b):
        return (x - w[:, None]) / (b[:, None] ** 2 + 0.1).sqrt() * x.mean(-1, keepdim=True)

    compile_and_compare(scale, torch.randn(50, 301), torch.randn(50), torch.randn(50))
    operands = to((torch.randn(50, 304), torch.randn(50), torch.randn(50)), LOOM)
    _, code = run_and_get_code(torch.compile(scale), *operands)
    (line,) = [line for line in code[0].splitlines() if "std::sqrt" in line and "; true)" in line]
    assert line.lstrip().startswith("if (auto ")


def test_rows_that_are_written_in_place():
    def shift(x, w):
        x.sub_(w[:, None]).mul_(2)
        w.copy_(x.sum(-1))
        return x - w[:, None]

    compile_and_compare(shift, torch.randn(50, 301), torch.randn(50))


def test_norms_of_rows_and_their_gradients():
    def train(x, w, b):
        y = torch.nn.functional.layer_norm(x, x.shape[1:], w, b)
        return torch.nn.functional.rms_norm(y, x.shape[1:])

    shapes = ((20, 301), (301,), (301,))
    on_cpu = [torch.randn(shape, requires_grad=True) for shape in shapes]
    on_loom = to(on_cpu, LOOM)
    train(*on_cpu).square().sum().backward()
    torch.compile(train)(*on_loom).square().sum().backward()
    assert_equal([x.grad for x in on_loom], [x.grad for x in on_cpu], rtol=1e-4, atol=1e-3)
