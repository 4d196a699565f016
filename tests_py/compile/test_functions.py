# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile: one kind of loop nest after the other, equal to eager cpu."""

import pytest
import torch
from compile_support import assert_equal, compile_and_compare, generated_kernels
from torch.nn import functional as F  # noqa: N812

torch.manual_seed(0)


def randn(*size, dtype=torch.float32):
    return torch.randn(*size).to(dtype)


INTEGERS = torch.arange(8000).reshape(40, 200) % 77

FUNCTIONS = {
    "pointwise": (lambda x, y: torch.relu(x * 2 + y), [randn(64, 100), randn(64, 100)]),
    "pointwise_of_many_blocks": (lambda x: (x.sin() + 2).sqrt(), [randn(300001)]),
    "broadcast": (lambda x, y: x * y + 1, [randn(33, 1), randn(47)]),
    "transposed": (lambda x, y: x.t() + y, [randn(130, 70), randn(70, 130)]),
    "long_and_short_loops": (lambda x: x.permute(2, 0, 1) * 2, [randn(5, 3000, 7)]),
    "functions": (lambda x: torch.tanh(x) + torch.erf(x) + torch.exp(-x.abs()), [randn(5000)]),
    "gelu_bfloat16": (F.gelu, [randn(3, 1000, dtype=torch.bfloat16)]),
    "float16": (lambda x: torch.sigmoid(x) * x, [randn(777, dtype=torch.float16)]),
    "float64": (lambda x: x.log1p().cumsum(0), [torch.rand(500, dtype=torch.float64)]),
    "integers": (lambda x, y: (x // y) + (x % y) * 3, [torch.arange(-50, 50), torch.full((), 7)]),
    "bool": (lambda x: torch.where(x > 0, x, -1.0), [randn(100, 3)]),
    "dtypes": (lambda x: x.to(torch.int32).to(torch.float64) + x, [randn(1000) * 100]),
    "softmax": (lambda x: torch.softmax(x, -1), [randn(50, 1000)]),
    "log_softmax_of_columns": (lambda x: torch.log_softmax(x, 0), [randn(200, 65)]),
    "layer_norm": (lambda x: F.layer_norm(x, (256,)), [randn(40, 256)]),
    "group_norm": (lambda x: F.group_norm(x, 4), [randn(3, 16, 9, 9)]),
    "rms_norm": (lambda x: F.rms_norm(x, (128,)), [randn(77, 128)]),
    "sum": (lambda x: x.square().sum(), [randn(50, 60)]),
    "sum_of_many_parts": (lambda x: (x * x).sum(), [randn(1000, 777)]),
    "mean_of_columns": (lambda x: (x + 1).mean(0), [randn(5000, 12)]),
    "few_long_rows": (lambda x: (x.square().sum(1), x.amax(1)), [randn(3, 200000)]),
    "variance_of_many_parts": (lambda x: torch.var_mean(x), [randn(600000)]),
    "minimum_and_maximum": (lambda x: (x.amin(), x.amax(), x.argmin()), [randn(400000)]),
    "any_and_all": (lambda x: ((x > 3).any(), (x > -9).all(1)), [randn(300, 300)]),
    "product": (lambda x: x.prod(1), [torch.rand(30, 20) + 0.5]),
    "logsumexp": (lambda x: torch.logsumexp(x, (0, 2)), [randn(20, 30, 40)]),
    "gather": (
        lambda x, i: torch.gather(x, 1, i) * 2,
        [randn(30, 40), torch.randint(40, (30, 5))],
    ),
    "index": (lambda x, i: x[i] + x[:, i[:3]].sum(), [randn(20, 20), torch.randint(20, (9,))]),
    "embedding": (lambda w, i: F.embedding(i, w) + 1, [randn(50, 16), torch.randint(50, (4, 9))]),
    "index_put": (
        lambda x, i, v: x.index_put((i,), v) * 2,
        [randn(40, 3), torch.randperm(40)[:9], randn(9, 3)],
    ),
    "index_put_accumulate": (
        lambda x, i, v: x.index_put((i,), v, accumulate=True) + 1,
        [randn(40, 3), torch.randint(40, (500,)), randn(500, 3)],
    ),
    "scatter_add": (
        lambda x, i, v: (x + 1).scatter_add(0, i, v) * 2,
        [randn(30, 5), torch.randint(30, (200, 5)), randn(200, 5)],
    ),
    "cat": (lambda x, y: torch.cat([x * 2, y, x[:, :3]], 1), [randn(10, 20), randn(10, 7)]),
    "pad_of_comparisons": (lambda x: F.pad(x > 9, (0, 0, 0, 3)).long() * 2, [INTEGERS]),
    "pad": (lambda x: F.pad(x, (1, 2, 3, 0), value=3.0) * 2, [randn(4, 6, 8)]),
    "split_and_stack": (
        lambda x: torch.stack([p.relu() for p in x.split(5, 1)]),
        [randn(6, 20)],
    ),
    "linear_gelu": (
        lambda x, w, b: F.gelu(F.linear(x, w, b)),
        [randn(32, 64), randn(48, 64), randn(48)],
    ),
    "max_pool": (lambda x: F.max_pool2d(x * 2, 2), [randn(2, 3, 12, 12)]),
    "avg_pool": (lambda x: F.avg_pool2d(x, 3, 1, 1) + 1, [randn(2, 3, 12, 12)]),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), [randn(1, 2, 6, 6, 6)]),
    "convolution": (
        lambda x, w: F.conv2d(x, w, padding=1).relu() + 1,
        [randn(2, 3, 16, 16), randn(8, 3, 3, 3)],
    ),
    "attention": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k * 2) + 1,
        [randn(2, 4, 33, 16), randn(2, 4, 33, 16)],
    ),
    "divide_by_a_constant": (lambda x: x / 3 + torch.div(x, 7), [randn(1000)]),
    "upsample": (
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear") + 1,
        [randn(1, 2, 9, 9)],
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name):
    function, inputs = FUNCTIONS[name]
    compile_and_compare(function, *inputs)


def write_in_place(x, y):
    x.add_(1)
    x[2:5] *= y
    y.copy_(x[0])
    return x.sum(0)


def test_what_a_function_writes_is_written():
    compile_and_compare(write_in_place, randn(8, 100), randn(100))


TRANSPOSED = {
    "transposed": (lambda x: x.t(), randn(37, 53)),
    "permuted": (lambda x: x.permute(2, 0, 1), randn(5, 37, 53)),
    "strided": (lambda x: x.t()[::2, 1:], randn(37, 53)),
}


@pytest.mark.parametrize("name", TRANSPOSED)
@pytest.mark.parametrize(
    "position", [torch.argmax, pytest.param(torch.argmin, marks=pytest.mark.thorough)]
)
def test_position_of_an_extreme_counts_in_the_order_of_the_view(position, name):
    view, x = TRANSPOSED[name]
    compile_and_compare(lambda x: position(view(x)), x)
    compile_and_compare(lambda x: position(view(x * 2)), x)
    compile_and_compare(lambda x: position(view(x) * 2), x)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_weights_of_convolutions_keep_their_layout(memory_format):
    def function(x, first, second):
        return torch.conv2d(torch.conv2d(x, first), second, padding=1)

    x, first, second = (
        torch.randn(1, 16, 9, 9),
        torch.randn(64, 16, 3, 3),
        torch.randn(32, 64, 3, 3),
    )
    inputs = [tensor.to(memory_format=memory_format) for tensor in (x, first, second)]
    compile_and_compare(function, *inputs, kernels=False, tolerances={"rtol": 1e-4, "atol": 5e-4})
    assert generated_kernels() == 0


def rotate(x):
    x = x + 1
    return x.index_put((torch.arange(len(x), device=x.device).flip(0),), x)


def accumulate(x):
    x = x * 2
    return x.index_put((x.long() % len(x),), x[:1], accumulate=True)


def accumulate_constants(x):
    ones = x * 0 + 1  # computed again where it is read
    return ones.index_put((x.long() % len(x),), ones[:1], accumulate=True)


@pytest.mark.parametrize("function", [rotate, accumulate, accumulate_constants])
def test_values_are_scattered_as_they_were_before(function):
    compile_and_compare(function, torch.arange(1000.0))


def test_processors_without_vectors():
    with torch._inductor.config.patch({"cpp.simdlen": 1}):
        compile_and_compare(lambda x: torch.where(x > 0, x.exp(), 1.0).sum(1), randn(30, 50))


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        (torch.abs, torch.bool),
        (F.softsign, torch.bool),
        (lambda x: torch._foreach_abs([x, x.float()])[0], torch.bool),
        (lambda x: torch.histc(x, 4, 0, 3, out=x.new_empty(4)), torch.int64),
        (lambda x: torch.histc(x, 4, 0, 3), torch.int32),
        (lambda x: torch.histc(x, 4, 0, 3), torch.uint8),
    ],
)
def test_dtypes_that_the_cpu_refuses(function, dtype):
    x = torch.arange(30, device="loom").remainder(5).to(dtype)
    actual, expected = torch.compile(function, fullgraph=True)(x), function(x)
    assert_equal(actual, expected)
    assert actual.data_ptr() != x.data_ptr()
