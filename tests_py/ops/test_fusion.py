# SPDX-License-Identifier: BSD-3-Clause
"""Fused programs: temporaries, writes, views, gradients, reports."""

import threading
from collections.abc import Callable

import pytest
import torch
from ops_support import busy, held, layer_norm, numbers, softmax

from support.program_checks import different_bits, far_apart


def agrees(function: Callable[..., torch.Tensor], *operands: torch.Tensor, size: float = 100.0):
    """The same bits fused (twice: interpreted, compiled) and unfused; cpu's result, nearly."""
    expected = function(*[t.clone() for t in operands])
    with torch.loom.fusion(False):
        unfused = function(*[t.to("loom") for t in operands]).cpu()
    for _ in range(2):
        on_loom = [t.to("loom") for t in operands]
        busy()
        fused = function(*on_loom).cpu()
        assert not different_bits(fused, unfused), different_bits(fused, unfused)
    assert not far_apart(unfused, expected, size), far_apart(unfused, expected, size)


def programs_of(function: Callable[[], object]) -> list[tuple[str, ...]]:
    """The operators of each program that the function's operators became."""
    torch.loom.synchronize()
    torch.loom.reset_fusion_report()
    with held():
        kept = function()
    torch.loom.synchronize()
    del kept
    return [program.operators for program in torch.loom.fusion_report()]


# --- values ----------------------------------------------------------------------------------


def columns_before_reductions(x, column):
    """Programs begin with columns whose memory later columns take again."""
    results = []
    for _ in range(12):
        scaled = x * column
        centred = x - x.mean(-1, keepdim=True)
        column = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + 1)
        results.append(centred * column + scaled)
    return torch.stack(results)


@pytest.mark.parametrize("columns", [1, 2, 33, 200])
def test_columns_before_reductions(columns):
    agrees(columns_before_reductions, numbers(50, columns), numbers(50, 1))


def in_place(x):
    x.mul_(2).add_(1)
    x.relu_()
    return x


def through_views(x):
    half = x[::2]
    half.mul_(3)
    y = x + 1
    x.t()[0].fill_(5)
    return y + x


def overlapping_views(x):
    low, high = x[:-1], x[1:]
    low.mul_(2)
    high.add_(1)
    low.sub_(0.5)
    return x * 1


def reused_memory(x):
    for n in range(10):
        y = x * n
        x = y + 1
        del y
        z = x - 1  # where y was
        x = z * 0.5
    return x


def of_other_dtypes(x):
    mask = x > 0
    y = mask.to(torch.int32) + x.to(torch.int8)
    return torch.where(mask, y.double() * 0.5, x.half())


def broadcast(x):
    return (x * x[0] + x[:, :1]) / (x[:1, 1:2] + 10)


def sums_in_the_middle(x):
    y = x * 2
    total = y.sum(-1, keepdim=True)
    x -= total * 0.01
    other = y.sum(-1) * 0.5
    return x + other.unsqueeze(-1) + y


def written_before_reductions(x):
    y = x * 3
    x.sub_(x.amax(-1, keepdim=True))
    z = y / (x.amin(-1, keepdim=True) - 1)
    return z + y + x


def out_of_place_and_back(x):
    y = torch.empty_like(x)
    torch.add(x, 1, out=y)
    torch.mul(y, x, out=x)
    y.copy_(x)
    x.zero_()
    return y + x


def masked(x):
    x.masked_fill_(x < 0, -1)
    return x.clamp(-0.5, 0.5) + x.where(x > 1, 0)


FUNCTIONS = [
    in_place, through_views, overlapping_views, reused_memory, of_other_dtypes, broadcast, softmax,
    layer_norm, sums_in_the_middle, written_before_reductions, out_of_place_and_back, masked,
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    "x",
    [
        numbers(7, 33),
        numbers(64, 129, dtype=torch.float64),
        numbers(33, 20).t(),
        numbers(20, 70)[::2, 1::3],
        numbers(5, 2),
        numbers(300, 400),
    ],
    ids=["odd", "double", "transposed", "strided", "short", "many"],
)
def test_values(function, x):
    agrees(function, x, size=1e3)


@pytest.mark.parametrize("function", [in_place, softmax, layer_norm, masked, sums_in_the_middle])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_values_of_short_dtypes(function, dtype):
    agrees(function, numbers(9, 100, dtype=dtype), size=30.0)


def test_large_results_that_are_written_past_the_caches():
    x = numbers(2_200_003)
    agrees(lambda t: (t * 2 + 1).relu(), x)
    agrees(lambda t: (t[3:] * 2 + 1).relu(), x)
    agrees(lambda t: t.mul_(2).add_(t), x)


def test_large_results_of_strided_operands():
    x, y = numbers(1501, 1472), numbers(1472, 1501, seed=1)
    agrees(lambda x, y: (x.t() * y + 1).relu(), x, y)
    agrees(lambda x, y: (x * y.t() + 1).relu(), x[:, 1:], y[1:])
    agrees(lambda x: x.t() > 0.5, numbers(3100, 3104))
    agrees(lambda t: (t[::2] * t[1::2] + 1).relu(), numbers(5_000_002))
    agrees(lambda t: torch.view_as_complex(t).abs(), numbers(2_200_003, 2))


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.float64], ids=str)
def test_transposed_operands_of_all_sizes(dtype):
    for rows, columns in [(1, 70), (3, 64), (64, 64), (65, 67), (200, 3), (127, 300)]:
        x = numbers(columns, rows).mul(1000).to(dtype)
        y = numbers(rows, columns, seed=1).mul(1000).to(dtype)
        agrees(lambda x, y: x.t() * 3 - y, x, y)


def test_more_operands_than_a_program_has_room_for():
    many = [numbers(50, seed=n) for n in range(40)]

    def total(*operands):
        result = operands[0] * 1.5
        for n, operand in enumerate(operands):
            result = result + operand * (n + 0.25)
        return result

    agrees(total, *many)


# --- gradients -------------------------------------------------------------------------------


def gelu_by_hand(x, w):
    y = x * w
    return 0.5 * y * (1 + torch.tanh(0.8 * (y + 0.04 * y.pow(3))))


def norm_and_activation(x, w):
    return torch.nn.functional.silu(layer_norm(x) * w) + softmax(x).sqrt()


@pytest.mark.parametrize("function", [gelu_by_hand, norm_and_activation])
def test_gradients_through_chains(function):
    def gradients(x, w):
        x.requires_grad_()
        w.requires_grad_()
        function(x, w).square().sum().backward()
        return torch.cat([x.grad, w.grad.unsqueeze(0)])

    agrees(gradients, numbers(20, 33), numbers(33, seed=1), size=1e4)


def test_saved_tensors_are_kept_though_the_program_is_open():
    x = torch.full((100,), 2.0, device="loom", requires_grad=True)
    busy()
    y = (x * x).exp()
    z = y * y
    del y
    z.sum().backward()
    assert x.grad.cpu().allclose(torch.full((100,), 8 * torch.tensor(8.0).exp().item()))


def test_a_saved_tensor_that_was_written_is_an_error():
    x = torch.ones(100, device="loom", requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_every_write_counts_as_a_version():
    x = torch.ones(100, device="loom")
    busy()
    x.add_(1).mul_(2)
    x[3:].zero_()
    assert x._version == 3


# --- reports ---------------------------------------------------------------------------------


def test_a_chain_is_one_program():
    x = numbers(100, 50).to("loom")
    assert programs_of(lambda: torch.relu(x * 2 + x)) == [("mul", "add", "relu")]


def test_a_softmax_by_hand_is_one_program():
    x = numbers(100, 50).to("loom")
    assert programs_of(lambda: softmax(x)) == [("amax", "sub", "exp", "sum", "div")]


def test_a_reduction_joins_what_began_without_one():
    x, column = numbers(100, 50).to("loom"), numbers(100, 1).to("loom")
    x.add_(1)

    def scaled_then_centred():
        scaled = x * column
        return scaled, x - x.mean(-1, keepdim=True)

    assert programs_of(scaled_then_centred) == [("mul", "mean", "sub")]


@pytest.mark.parametrize("dims", [2, 5, 6, 7])
def test_short_rows_of_any_dimensions_are_summed_in_programs(dims):
    """The sizes of more than five dimensions lie apart from their tensor, which has to live."""
    x = numbers(*[2] * (dims - 2), 4096, 3)
    agrees(lambda x: (x * 2).sum(-1), x)
    on_loom = x.to("loom")
    torch.loom.synchronize()
    assert programs_of(lambda: on_loom.sum(-1)) == [("sum",)]
    assert programs_of(lambda: on_loom.amax(-1)) == [("amax",)]


def test_temporaries_are_not_written():
    x = numbers(1000).to("loom")
    torch.loom.synchronize()
    torch.loom.reset_fusion_report()
    with held():
        y = torch.relu(x * 3 + 1)
    torch.loom.synchronize()
    (program,) = torch.loom.fusion_report()
    assert (program.runs, program.elements) == (1, 1000)
    assert program.bytes == x.nbytes + y.nbytes
    assert program.bytes_saved == 4 * y.nbytes
    assert program.seconds > 0
    assert "mul.float" in program.instructions


def test_what_nobody_can_see_does_not_run():
    x = numbers(1000).to("loom")
    assert programs_of(lambda: (x * 2 + 1, None)[1]) == []


def test_without_fusion_each_operator_is_a_program():
    x = numbers(100, 50).to("loom")
    with torch.loom.fusion(False):
        assert not torch.loom.is_fusion_enabled()
        names = programs_of(lambda: torch.relu(x * 2 + x))
    assert sorted(names) == [("add",), ("mul",), ("relu",)]
    assert torch.loom.is_fusion_enabled()


def test_fusion_is_switched_for_one_thread_and_back_after_an_error():
    others: list[bool] = []
    with pytest.raises(ValueError, match="on purpose"), torch.loom.fusion(False):  # noqa: PT012
        thread = threading.Thread(target=lambda: others.append(torch.loom.is_fusion_enabled()))
        thread.start()
        thread.join()
        with torch.loom.fusion(True):
            assert torch.loom.is_fusion_enabled()
        assert not torch.loom.is_fusion_enabled()
        raise ValueError("on purpose")
    assert others == [True]
    assert torch.loom.is_fusion_enabled()
