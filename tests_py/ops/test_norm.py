# SPDX-License-Identifier: BSD-3-Clause
"""Layer and batch normalisation."""

import math

import pytest
import torch
from compare import agrees, assert_same, gradients_agree, natively, same_error, to_loom

F = torch.nn.functional


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(13))


@pytest.mark.parametrize(
    ("shape", "normalized"),
    [
        ((4, 5), (5,)),
        ((8, 100, 256), (256,)),
        ((3, 4, 50, 60), (50, 60)),
        ((600,), (600,)),
        ((0, 5), (5,)),
        ((2000, 17), (17,)),
    ],
)
def test_layer_norm(shape, normalized):
    x, weight, bias = numbers(*shape), numbers(*normalized), numbers(*normalized) + 1
    agrees(lambda x: F.layer_norm(x, normalized), x)
    agrees(lambda x, w, b: F.layer_norm(x, normalized, w, b), x, weight, bias)
    agrees(lambda x, w: torch.native_layer_norm(x, normalized, w, None, 1e-5), x, weight)
    gradients_agree(lambda x: F.layer_norm(x, normalized), x)
    gradients_agree(lambda x, w, b: F.layer_norm(x, normalized, w, b), x, weight, bias)


def test_layer_norm_of_a_view_and_of_mixed_dtypes():
    agrees(lambda x: F.layer_norm(x.transpose(0, 1), (60,)), numbers(50, 40, 60))
    agrees(lambda x, w: F.layer_norm(x, (60,), w), numbers(50, 60).bfloat16(), numbers(60))


@pytest.mark.parametrize(
    "shape",
    [(64, 10), (8, 16, 20, 20), (4, 3, 5, 6, 7), (6, 5, 9), (40, 300, 2, 2), (3, 20, 2, 3)],
    ids=str,
)
@pytest.mark.parametrize("affine", [False, True])
def test_batch_norm(shape, affine):
    channels = shape[1]

    def run(x, mean, var, weight, bias, training):
        scale = (weight, bias) if affine else (None, None)
        result = F.batch_norm(x, mean, var, *scale, training=training)
        return result, mean, var

    for training in (True, False):
        agrees(
            lambda *a, t=training: run(*a, t),
            numbers(*shape),
            numbers(channels),
            numbers(channels).abs(),
            numbers(channels),
            numbers(channels),
        )
    gradients_agree(
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        numbers(*shape),
        numbers(channels),
        numbers(channels),
    )
    for frozen in (False, True):

        def evaluated(x, w, b, frozen=frozen):
            statistics = torch.full_like(w, 0.5), torch.full_like(w, 2.0)
            weight, bias = (w.detach(), b.detach()) if frozen else (w, b)
            scale = (weight, bias) if affine else (None, None)
            return F.batch_norm(x, *statistics, *scale).square() + (w + b).sum()

        gradients_agree(evaluated, numbers(*shape), numbers(channels), numbers(channels))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    "shape", [(5, 70, 4, 4), (3, 9, 7, 7), (2, 70, 2), (1, 3, 3, 21), (2, 5, 9, 9)], ids=str
)
def test_instance_norm(shape, dtype):
    channels = shape[1]
    x, mean, var = numbers(*shape).to(dtype), numbers(channels), numbers(channels).abs()
    weight, bias = numbers(channels).to(dtype), numbers(channels).to(dtype)
    # Of half types cpu rounds on the way.
    agrees(lambda x: F.instance_norm(x if x.device.type == "loom" else x.float()).to(dtype), x)
    agrees(lambda x: F.instance_norm(x * 0 + 3, eps=1e-3), x)
    if dtype is not torch.bfloat16:
        agrees(lambda x, w, b: F.instance_norm(x, weight=w, bias=b), x, weight, bias)
    if dtype is torch.float32:

        def with_statistics(x, mean, var, w, b):
            return F.instance_norm(x, mean, var, w, b, momentum=0.3), mean, var

        agrees(with_statistics, x, mean, var, weight, bias)
        gradients_agree(lambda x, w, b: F.instance_norm(x, weight=w, bias=b), x, weight, bias)
        gradients_agree(lambda x: F.instance_norm(x.transpose(-1, -2)), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("columns", [1, 2, 3, 6, 17, 24, 25])
def test_layer_norm_of_short_rows(columns, dtype):
    x, weight = numbers(3, 67, columns).to(dtype), numbers(columns).to(dtype)
    agrees(lambda x: F.layer_norm(x, x.shape[-1:]), x)
    agrees(lambda x, w: F.layer_norm(x, x.shape[-1:], w, w), x, weight)
    agrees(lambda x, w: torch.native_layer_norm(x, x.shape[-1:], w, None, 1e-5), x, weight)
    if dtype is torch.float32:
        gradients_agree(lambda x, w: F.layer_norm(x, x.shape[-1:], w, w), x, weight)
    special = x.clone()
    special[0, 3], special[1, 5] = float("nan"), float("inf")
    agrees(lambda x: F.layer_norm(x, x.shape[-1:]), special)


@pytest.mark.parametrize("count", [7, 13, 24, 63])
def test_elements_that_are_all_the_same_have_no_negative_variance(count):
    """Rounding may leave less than nothing of the squares, whose root is no number."""
    values = torch.tensor([0.1, 3.3, 14795.1484375, 30000.69921875])
    rows = values.view(1, -1, 1).repeat(1, 1, count)
    agrees(lambda x: F.layer_norm(x, x.shape[-1:], eps=1e-12), rows)
    variance = torch.zeros(len(values), device="loom")
    F.batch_norm(rows.to("loom"), torch.zeros_like(variance), variance, training=True, momentum=1)
    assert (variance >= 0).all()


def test_a_bias_of_float32_has_a_gradient_of_float32():
    """The saved statistics are float32 then, and so are the parameters' gradients."""

    def dtypes(device: str) -> list[torch.dtype]:
        x = torch.ones(4, 3, 8, 8, dtype=torch.bfloat16, device=device)
        bias = torch.zeros(3, device=device)
        out, mean, invstd = torch.native_batch_norm(x, None, bias, None, None, True, 0.1, 1e-5)
        gradients = torch.ops.aten.native_batch_norm_backward(
            out, x, None, None, None, mean, invstd, True, 1e-5, [True] * 3
        )
        return [each.dtype for each in (out, mean, *gradients)]

    assert dtypes("loom") == dtypes("cpu")


def test_batch_norm_layer_keeps_its_statistics():
    layers = torch.nn.BatchNorm2d(6), torch.nn.BatchNorm2d(6).to("loom")
    x = numbers(8, 6, 9, 9)
    for _ in range(3):
        layers[0](x)
        natively(layers[1], x.to("loom"))
    for key, value in layers[0].state_dict().items():
        assert_same(layers[1].state_dict()[key], value)


def test_channels_last():
    x = numbers(8, 6, 9, 9).contiguous(memory_format=torch.channels_last)
    agrees(lambda x: F.batch_norm(x, None, None, training=True), x)
    gradients_agree(lambda x: F.batch_norm(x, None, None, training=True), x)


def test_group_norm():
    for shape in ((40, 6, 30, 30), (4, 6, 5), (2, 6)):
        x = numbers(*shape)
        agrees(lambda x, w: F.group_norm(x, 3, w), x, numbers(6))
        gradients_agree(lambda x, w, b: F.group_norm(x, 3, w, b), x, numbers(6), numbers(6))
    x = numbers(4, 6, 8, 8).contiguous(memory_format=torch.channels_last)
    gradients_agree(lambda x: F.group_norm(x, 2), x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.layer_norm(x, (4,)),
        lambda x: F.layer_norm(x, (5,), x[0, :4]),
        lambda x: F.batch_norm(x, x[0, :4], x[0]),
        lambda x: F.layer_norm(x, (5,), x[0].double()),
    ],
)
def test_errors(function):
    same_error(function, numbers(8, 5))


def test_results_are_new_tensors():
    x = to_loom(numbers(3, 4))
    assert F.layer_norm(x, (4,)).data_ptr() != x.data_ptr()


def check_against_double(run, operands, error):
    """Results are those in double but for rounding; dtypes and strides are cpu's."""
    exact = run(*(t.double() for t in operands))
    ours = run(*to_loom(operands))
    stock = run(*(t.clone() for t in operands))
    for got, like, wanted in zip(ours, stock, exact, strict=True):
        assert got.dtype == like.dtype
        assert got.stride() == like.stride()
        size = max(wanted.abs().max().item(), 1) if wanted.numel() else 1
        torch.testing.assert_close(got.cpu().double(), wanted, rtol=error, atol=error * size)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("parameters", [torch.float32, None])
@pytest.mark.parametrize(
    ("shape", "memory_format"),
    [
        ((8, 6, 40, 40), torch.contiguous_format),
        ((8, 70, 40, 40), torch.channels_last),
        ((3, 5, 9, 11), torch.contiguous_format),
        ((3, 5, 2, 3), torch.contiguous_format),
        ((2, 17, 3, 8, 5), torch.channels_last_3d),
        ((2000, 33), torch.contiguous_format),
        ((1, 1, 100), torch.contiguous_format),
    ],
)
def test_batch_norm_of_layouts_and_dtypes(shape, memory_format, dtype, parameters):
    x = (numbers(*shape) * 2 + 3).to(dtype).contiguous(memory_format=memory_format)
    grad = numbers(*shape).flip(-1).to(dtype).contiguous(memory_format=memory_format)
    weight, bias, mean, var = (numbers(4, shape[1]) + 3).to(parameters or dtype)
    var = var.abs() + 0.1

    def run(x, grad, weight, bias, mean, var):
        aten = torch.ops.aten
        evaluated = aten.native_batch_norm(x, weight, bias, mean, var, False, 0.1, 1e-5)
        plain = aten.native_batch_norm(x, None, None, mean, var, False, 0.1, 1e-5)
        trained = aten.native_batch_norm(x, weight, bias, mean, var, True, 0.1, 1e-5)
        relu = trained[0].relu() + x
        gradients = aten.native_batch_norm_backward(
            grad, x, weight, mean, var, *trained[1:], True, 1e-5, [True] * 3
        )
        # The statistics have been updated: they are operands of what follows.
        of_evaluation = [
            result
            for scale in (weight, None)
            for mask in ([True] * 3, [True, False, False], [False, True, True])
            for result in aten.native_batch_norm_backward(
                grad, x, scale, mean, var, None, None, False, 1e-5, mask
            )
            if result is not None
        ]
        return *evaluated, *plain, *trained, relu, *gradients, mean, var, *of_evaluation

    operands = x, grad, weight, bias, mean, var
    check_against_double(run, operands, 1e-5 if dtype == torch.float32 else 1e-2)


def test_batch_norm_of_constants_and_of_what_is_no_number():
    x = torch.full((4, 3, 5, 16), 0.25)
    x[0, 1, 2, 3] = float("nan")
    x[1, 2, 3, 4] = float("inf")
    for memory_format in (torch.contiguous_format, torch.channels_last):
        operand = x.contiguous(memory_format=memory_format)
        agrees(lambda x: F.batch_norm(x, None, None, training=True), operand)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("weights", [torch.float32, None])
@pytest.mark.parametrize("shape", [(3, 1), (5, 7), (9, 64), (2, 3, 65), (300, 384), (3, 70000)])
def test_layer_norm_of_short_and_long_rows(shape, dtype, weights):
    width = shape[-1]
    x, grad = numbers(2, *shape).to(dtype)
    weight, bias = numbers(2, width).to(weights or dtype)

    def run(x, grad, weight, bias):
        aten = torch.ops.aten
        results = aten.native_layer_norm(x, [width], weight, bias, 1e-5)
        plain = aten.native_layer_norm(x, [width], None, None, 1e-5)
        every = [True, True, True]
        gradients = aten.native_layer_norm_backward(
            grad, x, [width], *results[1:], weight, bias, every
        )
        own = aten.native_layer_norm_backward(
            grad, x, [width], *plain[1:], None, None, [True, False, False]
        )
        return *results, *plain, *gradients, own[0]

    # The gradient of one element is the difference of large numbers.
    error = 2e-5 if dtype == torch.float32 else 2e-2
    check_against_double(run, (x, grad, weight, bias), error * (100 if width == 1 else 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(3, 1), (5, 7), (9, 64), (2, 3, 65), (33, 100), (3, 70000)])
@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax])
def test_softmax_of_short_and_long_rows(function, shape, dtype):
    x = numbers(*shape) * 4
    if shape[0] == 33:
        x[3, 5], x[4], x[5, 1], x[6, 2] = -torch.inf, -torch.inf, torch.nan, torch.inf
    agrees(lambda x: function(x, -1), x.to(dtype))
    gradients_agree(lambda x: function(x, -1), numbers(*shape))


@pytest.mark.parametrize("name", ["_softmax_backward_data", "_log_softmax_backward_data"])
@pytest.mark.parametrize("shape", [(5, 7), (9, 64), (2, 3, 65)])
def test_softmax_gradients_in_bfloat16(name, shape):
    grad, x = numbers(2, *shape).bfloat16()
    output = torch.log_softmax(x, -1) if "log" in name else torch.softmax(x, -1)
    operator = getattr(torch.ops.aten, name)
    agrees(lambda grad, output: operator(grad, output, -1, torch.bfloat16), grad, output)


def test_rows_of_results_larger_than_the_caches():
    x, weight = numbers(4100, 1024), numbers(1024)
    agrees(lambda x: torch.softmax(x, -1), x)
    agrees(lambda x, w: F.layer_norm(x, (1024,), w), x, weight)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("kind", ["constant", "far from zero", "one far from the others"])
@pytest.mark.parametrize("size", [4, 56])
def test_batch_norm_statistics_are_as_exact_as_in_float64(size, kind, memory_format):
    x = torch.full((16, 4, size, size), 0.3)
    if kind == "far from zero":
        x = 100 + torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    if kind == "one far from the others":
        x[0, :, 0, 0] = 1000.7
    x = x.contiguous(memory_format=memory_format)
    expected = torch.native_batch_norm(x.double(), None, None, None, None, True, 0.1, 1e-5)
    actual = torch.native_batch_norm(x.to("loom"), None, None, None, None, True, 0.1, 1e-5)
    for mine, exact in zip(actual, expected, strict=True):
        torch.testing.assert_close(mine.cpu().double(), exact, rtol=2e-5, atol=2e-5)


def test_batch_norm_keeps_its_factors_until_they_are_recorded(check):
    """Nothing that has been freed is read: malloc fills it with rubbish here."""
    check(
        """
        import torch
        norm = torch.nn.BatchNorm2d(5).to("loom")
        for training in (False, True):
            x = torch.randn(2, 5, 8, 8, device="loom", requires_grad=True)
            result = norm.train(training)(x)
        result.sum().backward()
        torch.accelerator.synchronize()
        """,
        MALLOC_PERTURB_="165",
        GLIBC_TUNABLES="glibc.malloc.tcache_count=0",
    )


def test_an_infinite_channel_has_an_infinite_running_mean():
    x = torch.randn(8, 16, 4, 4, generator=torch.Generator().manual_seed(0))
    x[1] = torch.inf
    means = {}
    for device in ("cpu", "loom"):
        mean, variance = torch.zeros(16, device=device), torch.ones(16, device=device)
        torch.nn.functional.batch_norm(x.to(device), mean, variance, training=True)
        means[device] = mean.cpu(), variance.cpu()
    torch.testing.assert_close(means["loom"], means["cpu"], equal_nan=True)


def test_the_gradient_of_a_maximum_norm_of_complex_numbers_finds_the_maximum() -> None:
    for dtype in (torch.complex64, torch.complex128):
        numbers = torch.randn(500, 5, dtype=dtype)
        gradients = []
        for device in ("cpu", "loom"):
            x = numbers.to(device).detach().requires_grad_()
            torch.linalg.vector_norm(x, math.inf, dim=1).sum().backward()
            gradients.append(x.grad.cpu())
        assert torch.equal(*gradients)


def exchanged(x: torch.Tensor) -> torch.Tensor:
    """The same elements, with batch and channels exchanged in memory."""
    return x.transpose(0, 1).contiguous().transpose(0, 1)


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e18, 1e20, 1e30])
@pytest.mark.parametrize(
    "shape", [(2, 4, 31, 20), (300, 5), (16, 70, 3, 3), (4, 6, 9, 7, 5), (40, 3000)], ids=str
)
def test_statistics_of_large_and_small_elements(shape, scale):
    """Squares of these leave the range of float32; cpu has NaN in some layer norms."""
    x = numbers(*shape) * scale
    layouts = [x, exchanged(x)]
    if x.dim() > 3:
        last = [torch.channels_last, torch.channels_last_3d][x.dim() - 4]
        layouts.append(x.contiguous(memory_format=last))
    eps = 1e-5 if scale > 1 else 1e-80
    norms = [lambda x: F.batch_norm(x, None, None, None, None, training=True, eps=eps)]
    if scale > 1:
        norms.append(lambda x: F.layer_norm(x, x.shape[1:], eps=eps))
    if x.dim() > 2:
        norms.append(lambda x: F.instance_norm(x, eps=eps))
    for each in layouts:
        for norm in norms:
            exact = norm(each.double()).float()
            torch.testing.assert_close(norm(to_loom(each)).cpu(), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(4, 3, 20, 20), (200, 33), (2, 3, 3, 3)], ids=str)
def test_running_statistics_of_a_batch_with_an_infinite_element(shape, dtype):
    for value in (torch.inf, -torch.inf, torch.nan):
        x = numbers(*shape).to(dtype)
        x.view(-1)[-1] = value
        for function in (F.batch_norm, F.instance_norm)[: 1 if x.dim() == 2 else 2]:
            found = {}
            for device in ("cpu", "loom"):
                mean, variance = torch.zeros(shape[1]), torch.ones(shape[1])
                given = [each.to(device, dtype) for each in (x, mean, variance)]
                flag = {"training": True} if function is F.batch_norm else {"use_input_stats": True}
                function(*given, **flag)
                found[device] = [each.cpu() for each in given[1:]]
            bound = 1e-4 if dtype == torch.float32 else 2e-2
            torch.testing.assert_close(
                found["loom"], found["cpu"], equal_nan=True, rtol=bound, atol=bound
            )
