# SPDX-License-Identifier: BSD-3-Clause
"""Operators that stay one in a graph of loom, where PyTorch has a decomposition for Inductor."""

import pytest
import torch
from compile_support import LOOM, assert_equal, compile_and_compare, to
from torch._inductor.utils import run_and_get_code
from torch.nn import functional

pytestmark = pytest.mark.thorough


def interpolates(mode, **named):
    return lambda x: functional.interpolate(x, mode=mode, **named)


def reflects(*padding):
    return lambda x: functional.pad(x, padding, "reflect")


def pools(x):
    return functional.max_pool2d(x, 3, 2, 1)


def samples(x):
    steps = torch.linspace(-1.1, 1.1, 11, device=x.device, dtype=x.dtype)
    grid = torch.stack(torch.meshgrid(steps, steps, indexing="xy"), -1).expand(len(x), -1, -1, 2)
    return functional.grid_sample(x, grid, align_corners=False, padding_mode="border")


# name: (function, rank of its input, forward operator, backward operator)
KEPT = {
    "nearest1d": (interpolates("nearest", scale_factor=2.0), 3, "upsample_nearest1d"),
    "nearest": (interpolates("nearest", scale_factor=2.0), 4, "upsample_nearest2d"),
    "nearest3d": (interpolates("nearest", scale_factor=2.0), 5, "upsample_nearest3d"),
    "exact1d": (interpolates("nearest-exact", size=9), 3, "_upsample_nearest_exact1d"),
    "exact": (interpolates("nearest-exact", size=(9, 5)), 4, "_upsample_nearest_exact2d"),
    "exact3d": (interpolates("nearest-exact", size=9), 5, "_upsample_nearest_exact3d"),
    "linear": (interpolates("linear", scale_factor=1.5), 3, "upsample_linear1d"),
    "bilinear": (interpolates("bilinear", scale_factor=1.5), 4, "upsample_bilinear2d"),
    "bilinear_corners": (
        interpolates("bilinear", size=(9, 13), align_corners=True),
        4,
        "upsample_bilinear2d",
    ),
    "trilinear": (interpolates("trilinear", size=9), 5, "upsample_trilinear3d"),
    "bicubic": (interpolates("bicubic", scale_factor=2.0), 4, "upsample_bicubic2d"),
    "grid_sample": (samples, 4, "grid_sampler_2d"),
    "unfold": (lambda x: functional.unfold(x, 3, padding=1), 4, "im2col"),
    "fold": (lambda x: functional.fold(x.flatten(2, 3), 6, (4, 2)), 4, "col2im"),
    "reflect1d": (reflects(3, 1), 3, "reflection_pad1d"),
    "reflect": (reflects(3, 1, 0, 2), 4, "reflection_pad2d"),
    "reflect3d": (
        reflects(3, 1, 0, 2, 1, 1),
        5,
        "reflection_pad3d",
    ),
    "max_pool": (
        pools,
        4,
        "max_pool2d_with_indices_backward",
    ),
    "batch_norm": (
        lambda x: functional.batch_norm(x, None, None, training=True),
        4,
        "native_batch_norm_backward",
    ),
    "replicate": (
        lambda x: functional.pad(x, (3, 1, 0, 2), "replicate"),
        4,
        "replication_pad2d_backward",
    ),
    "replicate3d": (
        lambda x: functional.pad(x, (3, 1, 0, 2, 1, 1), "replicate"),
        5,
        "replication_pad3d_backward",
    ),
}
SHAPES = {3: (2, 8, 7), 4: (2, 8, 7, 5), 5: (2, 4, 7, 5, 6)}
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def result_and_gradient(function, x):
    y = function(x)
    weights = torch.arange(y.numel(), device=y.device, dtype=y.dtype).view(y.shape)
    return y, *torch.autograd.grad(y, x, torch.empty_like(y).copy_(weights))


def check(name, x, **options):
    function, _, operator = KEPT[name]
    return check_function(function, operator, x, **options)


def check_function(function, operator, x, **options):
    expected = result_and_gradient(function, to(x, "cpu"))
    eager = result_and_gradient(function, to(x, LOOM))
    compiled = torch.compile(function, fullgraph=True, **options)
    with (
        torch._inductor.config.patch(fx_graph_cache=False),
        torch._functorch.config.patch(enable_autograd_cache=False),
    ):
        actual, code = run_and_get_code(result_and_gradient, compiled, to(x, LOOM))
    assert_equal(actual, expected)
    is_kept = f"aten.{operator}.default(" in "".join(code)
    assert not is_kept or [t.stride() for t in actual] == [t.stride() for t in eager]
    return is_kept


def input_of(name):
    shape = (2, 8, 5, 3) if name == "fold" else SHAPES[KEPT[name][1]]
    return torch.randn(shape)


@pytest.mark.parametrize("name", KEPT)
def test_values_and_gradients(name):
    assert check(name, input_of(name).requires_grad_())


@pytest.mark.parametrize("name", [n for n in KEPT if KEPT[n][1] in FORMATS])
def test_layouts_are_those_of_eager_loom(name):
    x = input_of(name)
    check(name, x.to(memory_format=FORMATS[x.dim()]).requires_grad_())


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("name", [n for n in KEPT if KEPT[n][1] == 4 and "fold" not in n])
def test_gradients_may_lie_otherwise(name, layout):
    function, _, operator = KEPT[name]
    other = {torch.contiguous_format, torch.channels_last} - {layout}

    def in_other_layout(x):
        return function(x).contiguous(memory_format=next(iter(other)))

    x = input_of(name).to(memory_format=layout)
    check_function(in_other_layout, operator, x.requires_grad_())


def test_padding_of_a_single_channel():
    """It is in both layouts: a convolution behind it asks which one is meant."""
    x = torch.randn(2, 3, 9, 8).to(memory_format=torch.channels_last)
    weight = torch.randn(4, 1, 3, 3)

    def function(x, weight):
        return functional.conv2d(functional.pad(x[:, :1], (1, 1, 1, 1), "reflect"), weight)

    actual = torch.compile(function, fullgraph=True)(x.to(LOOM), weight.to(LOOM))
    assert_equal(actual, function(x, weight))


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_paddings_of_unknown_sizes(mode):
    def function(x, chosen):
        return functional.pad(x[chosen], (1, 1, 1, 1), mode)

    x = torch.randn(6, 3, 6, 5).to(memory_format=torch.channels_last)
    chosen = torch.tensor([1, 1, 0, 1, 0, 1]) > 0
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        actual = torch.compile(function, fullgraph=True)(x.to(LOOM), chosen.to(LOOM))
    assert_equal(actual, function(x, chosen))


@pytest.mark.parametrize(
    ("parameters", "statistics"),
    [
        (torch.bfloat16, torch.bfloat16),
        (torch.float32, torch.float32),
        (None, torch.bfloat16),
        (None, torch.float32),
    ],
)
def test_batch_norms_of_several_dtypes(parameters, statistics):
    """Statistics are written by loops that are generated for their dtype."""

    def function(x, mean, var, weight, bias):
        return functional.batch_norm(x, mean, var, weight, bias, training=True) * 2

    x = torch.randn(4, 5, 6, 7).bfloat16()
    mean, var = torch.zeros(5, dtype=statistics), torch.ones(5, dtype=statistics)
    both = [None if parameters is None else torch.randn(5).to(parameters) for _ in range(2)]
    compile_and_compare(function, x, mean, var, *both, tolerances={"rtol": 2e-2, "atol": 2e-2})


@pytest.mark.parametrize("name", ["nearest", "bilinear", "grid_sample", "max_pool", "reflect"])
def test_sizes_may_be_symbols(name):
    check(name, input_of(name).requires_grad_(), dynamic=True)


def test_factors_may_be_arguments():
    def scale(x, factor):
        return functional.interpolate(x, scale_factor=factor, mode="bilinear")

    x = torch.randn(2, 3, 8, 8)
    compiled = torch.compile(scale, dynamic=True)
    for factor in (1.5, 2.5, 0.5):
        assert_equal(compiled(x.to(LOOM), factor), scale(x, factor))


def test_graphs_of_the_cpu_generate_code():
    function, _, operator = KEPT["bilinear"]
    x = torch.randn(2, 3, 8, 8)
    actual, code = run_and_get_code(torch.compile(function), x)
    assert_equal(actual, function(x))
    assert operator not in "".join(code).split("def call", 1)[1]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: functional.avg_pool1d(x, 6, 3, 2, True, True), (1, 3, 9)),
        (lambda x: functional.avg_pool2d(x, 3, 2, 1, True, True), (2, 3, 8, 9)),
        (lambda x: functional.avg_pool2d(x, 3, 2, 1, True, False), (2, 3, 8, 9)),
        (lambda x: functional.avg_pool2d(x, 3, 1, 1, False, True, 2), (2, 3, 8, 9)),
        (lambda x: functional.avg_pool3d(x, 3, 2, 1, True, True), (2, 3, 6, 8, 9)),
        (lambda x: functional.avg_pool3d(x, 3, 2, 1, False, True, 5), (2, 3, 6, 8, 9)),
        (lambda x: functional.avg_pool2d(x, 3, 2, 1), (2, 3, 8, 9)),
    ],
    ids=["1d", "2d", "without_padding", "divisor", "3d", "divisor_3d", "plain"],
)
def test_gradients_of_averages(function, shape, dynamic):
    x = torch.randn(shape, requires_grad=True)
    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic)
    actual = result_and_gradient(compiled, to(x, LOOM))
    assert_equal(actual, result_and_gradient(function, x))


# name: (function of an image, dtype, the operator that stays)
MAXIMA = {
    "padded": (pools, torch.float32, "max_pool2d"),
    "ceiling": (lambda x: functional.max_pool2d(x, 2, ceil_mode=True), torch.float32, "max_pool2d"),
    "half": (lambda x: functional.max_pool2d(x, 2), torch.bfloat16, "max_pool2d"),
    "indices": (
        lambda x: functional.max_pool2d(x, 3, 2, 1, return_indices=True),
        torch.float32,
        "max_pool2d_with_indices",
    ),
    "volumes": (
        lambda x: functional.max_pool3d(x.unsqueeze(2), 2, 2, 1),
        torch.float32,
        "max_pool3d",
    ),
    "inside": (lambda x: functional.max_pool2d(x, 2), torch.float32, None),
}


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("name", MAXIMA)
def test_maxima_of_pixels_that_are_slow_in_loops_are_kept(name, layout):
    function, dtype, operator = MAXIMA[name]
    x = torch.randn(2, 16, 9, 11).to(dtype).to(memory_format=layout)
    with torch.no_grad():
        actual, code = run_and_get_code(torch.compile(function), x.to(LOOM))
        assert_equal(actual, function(x))
    is_kept = operator is not None and f"aten.{operator}.default(" in "".join(code)
    is_expected = operator is not None and layout == torch.contiguous_format
    assert is_kept == is_expected


# name: (window, dtype, are averages and gradients the operators' where pixels lie in rows)
AVERAGES = {
    "padded": ((3, 2, 1), torch.float32, True, True),
    "ceiling": ((2, 2, 0, True), torch.float32, True, True),
    "overlapping": ((3, 2), torch.float32, False, True),
    "overlapping half": ((3, 2), torch.bfloat16, True, True),
    "half": ((2,), torch.bfloat16, False, True),
    "apart": ((2,), torch.float32, False, False),
}


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("name", AVERAGES)
def test_averages_of_pixels_that_are_slow_in_loops_are_kept(name, layout):
    window, dtype, *kept = AVERAGES[name]
    x = torch.randn(2, 16, 9, 12).to(dtype).to(memory_format=layout).requires_grad_()

    def average(x):
        return functional.avg_pool2d(x, *window, count_include_pad=False)

    compiled = torch.compile(average, fullgraph=True)
    actual, code = run_and_get_code(result_and_gradient, compiled, to(x, LOOM))
    assert_equal(actual, result_and_gradient(average, x))
    operators = [f"aten.{name}.default(" for name in ("avg_pool2d", "avg_pool2d_backward")]
    are_kept = [operator in "".join(code) for operator in operators]
    assert are_kept == (kept if layout == torch.contiguous_format else [False, False])


def test_what_is_computed_before_a_maximum_is_computed_once():
    x = torch.randn(2, 16, 8, 12)

    def function(x):
        return functional.max_pool2d(torch.relu(x), 2)

    actual, code = run_and_get_code(torch.compile(function), x.to(LOOM))
    assert_equal(actual, function(x))
    assert "".join(code).count(" = loom_program(") == 1


@pytest.mark.parametrize("padding", [-1, 3])
def test_gradients_of_embeddings_are_kept(padding):
    def function(rows, gradient):
        return torch.ops.aten.embedding_dense_backward(gradient, rows, 50, padding, False) * 2

    inputs = (torch.randint(0, 50, (6, 40)), torch.randn(6, 40, 16))
    actual, code = run_and_get_code(torch.compile(function), *to(inputs, LOOM))
    assert_equal(actual, function(*inputs))
    assert "aten.embedding_dense_backward.default(" in "".join(code)


def images(x):
    """The elements as three images of 100 x 5 pixels, in channels_last."""
    return x.view(3, 100, 5, 40).permute(0, 3, 1, 2)


# name: (function, is its sum the operator's)
SUMS = {
    "input": (lambda x: x.sum(0), True),
    "all": (lambda x: x.sum() * 2, True),
    "kept_dims": (lambda x: x.sum((0, 1), keepdim=True), True),
    "used_again": (lambda x: (y := x.sin() + 1, y.sum(0)), True),
    "mean": (lambda x: x.mean(0), True),
    "mean_of_pixels": (lambda x: images(x).mean((2, 3)), True),
    "of_a_product": (lambda x: (x @ x.t()).sum(0), True),
    "rows_of_a_product": (lambda x: (x @ x.t()).sum(1), False),
    "expanded": (lambda x: x[:, None].expand(300, 9, 200).sum(), False),
    "computed": (lambda x: x.sin().sum(0), False),
    "small": (lambda x: x[:7].clone().sum(0), False),
    "converted": (lambda x: x.sum(0, dtype=torch.float64), False),
    "integers": (lambda x: x.long().sum(0), False),
    "rows": (lambda x: x.sum(-1), True),
    "rows_used_again": (lambda x: x * x.sum(-1, keepdim=True), False),
    "softmax": (lambda x: torch.softmax(x, -1), False),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_what_is_in_memory_are_kept(name):
    function, is_kept = SUMS[name]
    x = torch.randn(300, 200)
    actual, code = run_and_get_code(torch.compile(function), x.to(LOOM))
    assert_equal(actual, function(x), atol=2e-4, rtol=1e-5)
    source = "".join(code)
    assert ("aten.sum." in source or "aten.mean." in source) == is_kept
