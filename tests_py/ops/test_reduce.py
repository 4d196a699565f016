# SPDX-License-Identifier: BSD-3-Clause
"""Reductions: every way of cutting, dtypes, out=, determinism, gradients."""

import pytest
import torch
from compare import agrees, gradients_agree, same_error
from torch.utils._pytree import tree_leaves


def numbers(*shape, dtype=torch.float32):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(5))
    return (values * 3).to(dtype) if dtype is not torch.float32 else values


# Small; a long kept dimension; long reduced ones; everything in between.
SHAPES = [(3, 4, 5), (64, 70, 80), (3, 50_000, 2), (2, 2, 90_000), (90_000, 3, 2), (0, 3, 4)]
DIMS = [None, 0, 1, 2, -1, (0, 1), (0, 2), (1, 2), (0, 1, 2)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dim", DIMS, ids=str)
@pytest.mark.parametrize("keepdim", [False, True])
def test_sum_and_mean(shape, dim, keepdim):
    for function in (torch.sum, torch.mean):
        agrees(lambda x, f=function: f(x, dim, keepdim=keepdim), numbers(*shape))


@pytest.mark.parametrize("shape", SHAPES[:-1], ids=str)
@pytest.mark.parametrize("dim", DIMS[1:], ids=str)
def test_extrema(shape, dim):
    agrees(lambda x: torch.amax(x, dim), numbers(*shape))
    agrees(lambda x: torch.amin(x, dim, keepdim=True), numbers(*shape))


@pytest.mark.parametrize("shape", SHAPES[:-1], ids=str)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_along_one_dimension(shape, dim):
    x = numbers(*shape)
    agrees(lambda x: x.max(dim), x)
    agrees(lambda x: x.min(dim, keepdim=True), x)
    agrees(lambda x: x.argmax(dim), x)
    agrees(lambda x: x.argmin(dim, keepdim=True), x)
    agrees(lambda x: (x > 2).any(dim), x)
    agrees(lambda x: (x > -2).all(dim), x)
    agrees(lambda x: x.cumsum(dim), x)
    agrees(lambda x: torch.linalg.vector_norm(x, 2, dim), x)
    agrees(lambda x: x.norm(3, dim), x)
    agrees(lambda x: x.var(dim, correction=0), x)
    agrees(lambda x: x.std(dim, correction=0, keepdim=True), x)
    agrees(lambda x: torch.var_mean(x, dim, correction=0), x)
    agrees(lambda x: x.double().clamp(0.9, 1.1).prod(dim), x[:, :50])


@pytest.mark.parametrize("shape", SHAPES[:-1], ids=str)
def test_to_one_value(shape):
    x = numbers(*shape)
    for function in (torch.max, torch.min, torch.argmax, torch.norm, torch.aminmax):
        agrees(function, x)
    agrees(lambda x: (x > 100).any(), x)
    agrees(lambda x: (x > -100).all(), x)
    agrees(lambda x: torch.linalg.vector_norm(x, 0), x)
    agrees(lambda x: torch.linalg.vector_norm(x, float("inf")), x)
    agrees(lambda x: torch.linalg.vector_norm(x, 1), x.to(torch.complex64))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int32, torch.bool])
def test_dtypes(dtype):
    x = numbers(300, 700, dtype=dtype)
    agrees(torch.sum, x)
    agrees(lambda x: x.sum(0), x)
    agrees(lambda x: x.sum(1, dtype=torch.float64), x)
    agrees(lambda x: x.mean(dtype=torch.float32), x)
    agrees(lambda x: x.amax(), x)


@pytest.mark.parametrize("layout", [lambda x: x.t(), lambda x: x[::2, 1::3], lambda x: x[:, :1]])
def test_layouts(layout):
    x = layout(numbers(900, 700))
    for function in (torch.sum, torch.mean, torch.amax, torch.norm):
        agrees(function, x)
        agrees(lambda x, f=function: f(x, dim=0), x)
        agrees(lambda x, f=function: f(x, dim=1), x)


def test_nan_is_kept():
    x = numbers(500_000)
    x[123_456] = float("nan")
    for function in (torch.amax, torch.amin, torch.sum, torch.max):
        agrees(function, x)


def of_all(x):
    yield from torch.var_mean(x)
    yield from torch.std_mean(x.flatten(), 0)
    yield from (x.var(), x.std(correction=3), x.sum(), x.mean(), x.nansum(), x.amax(), x.amin())
    yield from torch.aminmax(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(9001,), (70, 80, 90), (500_003,)], ids=str)
def test_all_elements_are_as_near_as_on_cpu(shape, dtype):
    x = (numbers(*shape) + 3).to(dtype)
    for each, theirs, exact in zip(
        of_all(x.to("loom")), of_all(x), of_all(x.double()), strict=True
    ):
        assert (each.shape, each.dtype) == (theirs.shape, theirs.dtype)
        bound = 1.5 * (theirs.double() - exact).abs() + 2 * torch.finfo(dtype).eps * exact.abs()
        assert (each.cpu().double() - exact).abs() <= bound


def test_a_variance_far_from_zero():
    x = numbers(700_000) + 1e4
    exact = x.double().var()
    torch.testing.assert_close(x.to("loom").var().cpu().double(), exact, rtol=1e-5, atol=0)
    rows = x.view(2, -1).to("loom").var(1).cpu().double()
    torch.testing.assert_close(rows, x.double().view(2, -1).var(1), rtol=1e-5, atol=0)


@pytest.mark.parametrize("at", [0, 17, 399_999])
def test_what_is_not_a_number_is_the_extremum(at):
    x = numbers(400_000)
    x[at] = float("nan")
    for function in (torch.aminmax, torch.amax, torch.amin, torch.max, torch.var_mean):
        agrees(function, x)
    x[at] = float("inf")
    for function in (torch.aminmax, torch.nansum, torch.mean, torch.var):
        agrees(function, x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int32, torch.uint8])
def test_products_and_hashes_in_parts(dtype):
    x = numbers(3, 700, 201).clamp(0.99, 1.01).to(dtype)
    for each in (x, x[:, ::2], x.transpose(0, 2)):
        agrees(torch.prod, each)
        agrees(lambda x: torch.prod(x, dtype=torch.float64), each)
        agrees(torch.hash_tensor, each)
        agrees(lambda x: torch.aminmax(x, keepdim=True), each)
    agrees(lambda x: x.view(3, -1).prod(1, keepdim=True), x)
    agrees(lambda x: torch.hash_tensor(x.view(3, -1), 1), x)


@pytest.mark.parametrize("dims", [0, 1, (0, 2), (1, 2)], ids=str)
def test_variances_of_few_long_rows(dims):
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.complex64):
        x = numbers(3, 90_000, 2).to(dtype)
        agrees(lambda x: torch.var_mean(x, dims, keepdim=True), x)
        agrees(lambda x: torch.std_mean(x, dims), x)
        agrees(lambda x: x.std(dims, correction=0.5), x)


def test_variances_of_integers_are_refused():
    for function in (torch.var_mean, torch.std_mean, torch.var, torch.std):
        same_error(function, numbers(3, 4).to(torch.int64))


def test_out():
    x = numbers(300, 700)
    agrees(lambda x, o: torch.sum(x, 0, out=o), x, torch.zeros(700))
    agrees(lambda x, o: torch.sum(x, 1, keepdim=True, out=o), x, torch.zeros(2, 300, 1)[1])
    agrees(lambda x, o: torch.mean(x, (0, 1), out=o), x, torch.zeros(()))
    agrees(
        lambda x, o, i: torch.max(x, 1, out=(o, i)),
        x,
        torch.zeros(300),
        torch.zeros(300, dtype=torch.int64),
    )


def test_a_sum_does_not_depend_on_the_number_of_cores(check):
    program = """
        import torch, torch_loom
        x = torch.randn(3_000_001, generator=torch.Generator().manual_seed(0)).to("loom")
        y = x[:3_000_000].view(3000, 1000)
        print(x.sum().item().hex(), x.norm().item().hex(), y.sum(0).sum().item().hex(),
              x.var().item().hex(), x.double().var().item().hex(), x.double().prod().item().hex(),
              (y[:, :300] @ y[:300]).sum().item().hex())
    """
    assert check(program, LOOM_THREADS="1").out == check(program, LOOM_THREADS="2").out


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sum(5),
        lambda x: x.sum((0, 0)),
        lambda x: x.to(torch.int64).mean(),
        lambda x: x.to(torch.complex64).amax(),
        lambda x: x.to(torch.complex64).argmax(0),
        lambda x: x[:0].max(),
        lambda x: x[:0].amax(0),
    ],
)
def test_errors(function):
    same_error(function, numbers(8, 9))


@pytest.mark.parametrize(
    "function",
    [
        torch.sum,
        torch.mean,
        torch.norm,
        lambda x: x.sum(0),
        lambda x: x.mean(1),
        lambda x: x.amax(1),
        lambda x: x.max(0).values,
        lambda x: x.logsumexp(1),
    ],
)
def test_gradients(function):
    gradients_agree(function, numbers(300, 400))


@pytest.mark.parametrize("call", ["x.var(0)", "x.std()", "torch.var_mean(x, 1)"])
def test_the_first_variance_of_a_process_warns_of_nothing(check, call):
    check(f"""
        import warnings
        warnings.simplefilter("error")
        import torch
        x = torch.ones(4, 5, device="loom")
        {call}
        torch.loom.synchronize()
    """)


CHANNELS = [
    ((2048, 1536), 0),
    ((8, 256, 384), (0, 1)),
    ((8, 256, 384), 0),
    ((7, 33, 5, 20), (0, 2, 3)),
    ((7, 33, 5, 20), (0, 3)),
    ((3, 5000), 0),
    ((100, 1, 64), 0),
    ((4100, 17), 0),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("function", [torch.sum, torch.mean])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("shape", "dims"), CHANNELS, ids=str)
def test_sums_of_channels_are_as_near_as_on_cpu(shape, dims, last, function, dtype):
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=dtype) + 0.5
    if last and x.dim() == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    elif last:
        x[0, ..., 0], x[1, ..., 1] = torch.inf, torch.nan
    exact = function(x.double(), dims)
    for keepdim in (False, True):
        mine = function(x.to("loom"), dims, keepdim=keepdim).cpu()
        theirs = function(x, dims, keepdim=keepdim)
        assert (mine.shape, mine.stride(), mine.dtype) == (
            theirs.shape,
            theirs.stride(),
            theirs.dtype,
        )
        finite = exact.isfinite()
        mine, theirs = mine.reshape(exact.shape), theirs.reshape(exact.shape)
        torch.testing.assert_close(mine[~finite], theirs[~finite], equal_nan=True)
        bound = 1.5 * (theirs.double() - exact)[finite].abs().max() + 1e-9
        assert (mine.double() - exact)[finite].abs().max() <= bound


@pytest.mark.parametrize("shape", [(70, 8, 16, 5), (130, 32, 1, 7), (66, 20, 9, 1)], ids=str)
@pytest.mark.parametrize("dims", [0, (0, 1), (0, 2), (0, 3), (0, 2, 3), (0, 1, 3), (2, 3)], ids=str)
def test_sums_of_channels_last(dims, shape):
    x = numbers(*shape).contiguous(memory_format=torch.channels_last)
    for function in (torch.sum, torch.mean):
        for keepdim in (False, True):
            agrees(lambda t, f=function, k=keepdim: f(t, dims, keepdim=k), x)


def holes(*shape):
    x = numbers(*shape)
    x[numbers(*shape) > 2] = float("nan")
    return x


# Absent and empty dimensions mean all to most reductions, none to some.
REDUCTIONS = {
    "sum": torch.sum,
    "nansum": torch.nansum,
    "mean": torch.mean,
    "nanmean": torch.nanmean,
    "amax": torch.amax,
    "amin": torch.amin,
    "any": torch.any,
    "all": torch.all,
    "logsumexp": torch.logsumexp,
    "count_nonzero": lambda x, dim, keepdim: torch.count_nonzero(x, dim),
    "var": torch.var,
    "std": torch.std,
    "std_mean": torch.std_mean,
    "var_mean": torch.var_mean,
    "norm": lambda x, dim, keepdim: torch.norm(x, 3, dim, keepdim),
    "vector_norm": lambda x, dim, keepdim: torch.linalg.vector_norm(x, 2, dim, keepdim),
    "aminmax": lambda x, dim, keepdim: torch.aminmax(x, keepdim=keepdim),
    "argmax": lambda x, dim, keepdim: torch.argmax(x, None, keepdim),
    "quantile": lambda x, dim, keepdim: torch.quantile(x, 0.4, None, keepdim),
    "nanmedian": lambda x, dim, keepdim: torch.nanmedian(x),
    "median": lambda x, dim, keepdim: torch.median(x),
    "prod": lambda x, dim, keepdim: torch.prod(x),
    "hash_tensor": lambda x, dim, keepdim: torch.hash_tensor(x, dim or (), keepdim=keepdim),
}


def outcome(function, x):
    try:
        return function(x)
    except (RuntimeError, IndexError, TypeError) as error:
        return str(error).splitlines()[0]


@pytest.mark.filterwarnings(r"ignore:(std|var)\w*\(\). degrees of freedom")
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [(), None], ids=str)
def test_of_all_dimensions(name, dim, keepdim):
    for x in (holes(2, 3), numbers(2, 3), numbers(), numbers(0), numbers(2, 0), numbers(300, 400)):
        expected = outcome(lambda x: REDUCTIONS[name](x, dim, keepdim), x)
        got = outcome(lambda x: REDUCTIONS[name](x, dim, keepdim), x.to("loom"))
        if isinstance(expected, str):
            assert got == expected
            continue
        for g, e in zip(tree_leaves(got), tree_leaves(expected), strict=True):
            torch.testing.assert_close(g.cpu(), e, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dim", DIMS, ids=str)
def test_sums_without_nan(shape, dim):
    agrees(lambda x: torch.nansum(x, dim), holes(*shape))
    agrees(lambda x: torch.nanmean(x, dim, keepdim=True), holes(*shape))


def test_sums_without_nan_by_dtype_and_out():
    for dtype in (torch.bfloat16, torch.float64, torch.int32, torch.bool):
        agrees(lambda x: torch.nansum(x, 1), numbers(3, 4).to(dtype))
        agrees(lambda x: torch.nansum(x), numbers(3, 4).to(dtype))
    agrees(lambda x: torch.nansum(x, 0, dtype=torch.float64), holes(3, 4))
    agrees(lambda x, o: torch.nansum(x, 0, out=o), holes(3, 4), torch.zeros(4).double())
    same_error(lambda x: torch.nansum(x, 2), numbers(3, 4))
    same_error(
        lambda x, o: torch.nansum(x, 0, dtype=torch.float64, out=o), holes(3, 4), torch.zeros(4)
    )


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.int64, torch.bfloat16, torch.float16]
)
@pytest.mark.parametrize(
    ("shape", "dim"),
    [
        ((80, 70, 90), 0),
        ((80, 70, 90), 1),
        ((80, 70, 90), 2),
        ((90_000, 3), 1),
        ((90_000, 3), 0),
        ((3, 90_001), 1),
        ((40_000, 130), 0),
        ((2, 5, 130), 1),
        ((300_007,), 0),
    ],
    ids=str,
)
def test_running_sums_and_products(shape, dim, dtype):
    x = numbers(*shape, dtype=dtype)
    near_one = (1 + numbers(*shape) / 1000).to(dtype) if dtype.is_floating_point else x
    agrees(lambda x: x.cumsum(dim), x)
    agrees(lambda x: x.cumprod(dim), near_one)
    agrees(lambda x: x.clone().cumsum_(dim), x)
    agrees(lambda x, o: torch.cumsum(x, dim, out=o), x, torch.zeros_like(x))
    agrees(lambda x: x.transpose(0, -1).cumsum(dim), x)
    agrees(lambda x: x.cumsum(dim, dtype=torch.float64), x)


@pytest.mark.thorough
def test_a_running_sum_does_not_depend_on_the_number_of_cores(check):
    program = """
        import hashlib, torch, torch_loom
        x = torch.randn(1_000_003, generator=torch.Generator().manual_seed(0))
        for y in (x.to("loom"), x[:1_000_000].view(1000, 1000).to("loom")):
            for z in (y.cumsum(0), (1 + y / 1000).cumprod(0)):
                print(hashlib.sha1(z.cpu().numpy().tobytes()).hexdigest())
        print(x.to("loom").dot(x.flip(0).to("loom")).item().hex())
    """
    assert check(program, LOOM_THREADS="1").out == check(program, LOOM_THREADS="2").out
