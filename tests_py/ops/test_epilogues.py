# SPDX-License-Identifier: BSD-3-Clause
"""Pointwise operators that follow a product share its command: the same bits as one by one."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from epilogue_support import DTYPES, Result, check, numbers
from torch.nn import functional as F  # noqa: N812


def chain(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.tanh(F.linear(x, w, b) * 2 + 1) / 3


def written_in_place(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w, b).relu_().mul_(2)


def kept_and_used(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Result:
    y = F.linear(x, w, b)
    return F.gelu(y), y > 0, y


def into_the_input(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return x.add_(F.linear(x, w, b))


def with_its_transpose(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    y = F.linear(x, w, b)
    return y + y.t()


def of_a_part(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    y = F.linear(x, w, b)
    return y[:, 1:] - y[:, :-1]


def normalised(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    y = F.linear(x, w, b)
    return y - y.mean(-1, keepdim=True)


def by_columns(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (w @ x.t() + b[:, None]).relu().t()


def cast(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w, b).float() * 0.5


def memory_used_again(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    y = F.linear(x, w, b)
    z = y * 2
    del y
    other = z.t().contiguous()  # where y was, in another order
    del z
    return other + 1


def in_place_product(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    y = torch.ones_like(x)
    return y.addmm_(x, w).relu_().add_(b)


def in_place_and_freed(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w).addmm_(x, w).relu() + b


def the_second_output_lies_alike(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Result:
    y = F.linear(x, w, b)
    return y > 0, torch.relu(y), y.abs()


def into_a_view(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    everything = torch.zeros(x.numel() + 1, dtype=x.dtype, device=x.device)
    torch.add(F.linear(x, w), b, out=everything[1:].view_as(x))
    return everything


def unchanged(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w, b).clone()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "function",
    [
        chain,
        written_in_place,
        kept_and_used,
        into_the_input,
        with_its_transpose,
        of_a_part,
        normalised,
        by_columns,
        cast,
        memory_used_again,
        in_place_product,
        in_place_and_freed,
        the_second_output_lies_alike,
        into_a_view,
        unchanged,
    ],
    ids=lambda function: function.__name__,
)
def test_operators_on_a_square_product(function: Callable[..., Result], dtype: torch.dtype) -> None:
    check(
        function,
        *(numbers(320, 320, dtype=dtype, seed=s) for s in range(2)),
        numbers(320, dtype=dtype),
    )


# Rows, inner, columns: tails in all directions, one strip, few rows (the transposed product), more
# inner elements than are packed at once.
SIZES = [(1000, 96, 131), (130, 300, 515), (40, 700, 900), (2100, 70, 64), (128, 2500, 70)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sizes(size: tuple[int, int, int], dtype: torch.dtype) -> None:
    rows, inner, columns = size
    operands = numbers(rows, inner, dtype=dtype), numbers(columns, inner, dtype=dtype)
    check(chain, *operands, numbers(columns, dtype=dtype))
    check(by_columns, *operands, numbers(columns, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_of_what_is_summed_in_pieces(dtype: torch.dtype) -> None:
    """The left operand is transposed piece by piece: operators follow the last one."""
    left, right = numbers(4300, 1030, dtype=dtype) / 16, numbers(4300, 140, dtype=dtype)

    def function(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Result:
        y = torch.addmm(b, x.mT, w)
        return torch.relu(y * 2 + 1), torch.mm(x.mT, w) - b

    check(function, left, right, numbers(140, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_residual_and_a_mask_by_batch(dtype: torch.dtype) -> None:
    def block(x: torch.Tensor, w: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.where(mask, x + F.linear(x, w), 0)

    x, w = numbers(4, 100, 200, dtype=dtype), numbers(200, 200, dtype=dtype)
    check(block, x, w, numbers(4, 1, 200, dtype=dtype) > 0)
    check(block, x, w, numbers(4, 100, 1, dtype=dtype) > 0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("batch", [1, 3, 40])
def test_a_batch_of_products(batch: int, dtype: torch.dtype) -> None:
    def block(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Result:
        scores = torch.bmm(x, w)
        return torch.relu(scores * 2 + b), torch.bmm(w.mT, x.mT) + b.mT

    x, w = numbers(batch, 70, 130, dtype=dtype), numbers(batch, 130, 90, dtype=dtype)
    check(block, x, w, numbers(70, 90, dtype=dtype))
    check(block, x, w.mT.contiguous().mT, numbers(batch, 70, 1, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [(1, 768, 640), (3, 1024, 2048), (70, 128, 1056)], ids=str)
def test_of_weights_that_are_whole_numbers(size: tuple[int, int, int], dtype: torch.dtype) -> None:
    rows, inner, columns = size
    generator = torch.Generator().manual_seed(0)
    x, residual = numbers(rows, inner, dtype=dtype), numbers(rows, columns, dtype=dtype, seed=4)
    eight = torch.randint(-128, 128, (columns, inner), generator=generator, dtype=torch.int8)
    scales = numbers(columns, dtype=dtype) / 128

    def of_eight_bits(x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor) -> Result:
        gate = F.silu(torch._weight_int8pack_mm(x, w, scales.to(x.device)))
        return gate * residual, residual + torch._weight_int8pack_mm(x, w, scales.to(x.device))

    check(of_eight_bits, x, residual, eight)
    four = torch.randint(0, 16, (columns, inner), generator=generator, dtype=torch.int32)
    packed = torch._convert_weight_to_int4pack_for_cpu(four, 1)
    groups = numbers(inner // 64, columns, 2, dtype=dtype) / 8

    def of_four_bits(x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor) -> Result:
        y = torch._weight_int4pack_mm_for_cpu(x, w, 64, groups.to(x.device))
        return F.silu(y) * residual, torch.relu(y) + 1

    check(of_four_bits, x, residual, packed)


def device_events(run: Callable[[], Any]) -> list[str]:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.PrivateUse1]
    with torch.profiler.profile(activities=activities) as profile:
        run()
        torch.loom.synchronize()
    cpu = torch.autograd.DeviceType.CPU
    return [event.name for event in profile.events() if event.device_type != cpu]


def test_they_are_one_command() -> None:
    x, w, b = (
        numbers(*n, dtype=torch.float32).to("loom") for n in [(256, 256), (256, 256), (256,)]
    )
    before = torch.rand(2000, 2000, device="loom")

    def run() -> None:
        torch.mm(before, before)  # what comes then is recorded long before its turn
        F.gelu(F.linear(x, w, b))

    with torch.no_grad():
        run()
        assert device_events(run) == ["mm", "fused: addmm, gelu"]


def test_short_ones_are_one_command_while_they_wait() -> None:
    """In a graph all commands do."""
    x, w = numbers(1, 96, 14, 14, dtype=torch.float32), numbers(64, 96, 1, 1, dtype=torch.float32)
    x, w, d = (each.to("loom") for each in (x, w, numbers(96, 1, 3, 3, dtype=torch.float32)))

    def run() -> tuple[torch.Tensor, torch.Tensor]:
        wide = F.relu6(F.conv2d(x, d, padding=1, groups=96))
        return F.relu(F.conv2d(wide, w)), wide

    run()
    graph = torch.accelerator.Graph()
    with torch.loom.graph(graph):
        results = run()
    events = device_events(graph.replay)
    assert events[-2:] == ["fused: convolution, clamp", "fused: convolution, relu"]
    for replayed, again in zip(results, run(), strict=True):
        assert torch.equal(replayed.cpu(), again.cpu())


def test_those_of_weights_that_are_whole_numbers_are_one_command() -> None:
    x, scales = (numbers(*n, dtype=torch.bfloat16).to("loom") for n in [(1, 1024), (1024,)])
    weight = torch.ones(1024, 1024, dtype=torch.int8, device="loom")
    graph = torch.accelerator.Graph()
    with torch.loom.graph(graph):
        result = F.silu(torch._weight_int8pack_mm(x, weight, scales)) + x
    assert device_events(graph.replay) == ["fused: _weight_int8pack_mm, silu, add"]
    expected = F.silu((x.float().sum(-1, keepdim=True) * scales).bfloat16()) + x
    torch.testing.assert_close(result.cpu(), expected.cpu(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_batch_norm_does_not_come_between(dtype: torch.dtype) -> None:
    images = numbers(4, 64, 30, 30, dtype=dtype).to("loom")
    layer = torch.nn.Sequential(
        torch.nn.Conv2d(64, 64, 1), torch.nn.BatchNorm2d(64), torch.nn.ReLU()
    )
    layer = layer.eval().to("loom", dtype)
    before = torch.rand(2000, 2000, device="loom")

    def run() -> None:
        torch.mm(before, before)
        layer(images)

    with torch.no_grad():
        run()
        events = device_events(run)
    assert events == ["mm", "fused: convolution, native_batch_norm, relu"]


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
def test_a_batch_norm_of_few_elements_is_joined(training: bool) -> None:
    images = torch.rand(4, 384, 7, 7, device="loom")
    mean, variance, weight, bias = (torch.rand(384, device="loom") for _ in range(4))

    def layer() -> torch.Tensor:
        return F.relu(F.batch_norm(images, mean, variance, weight, bias, training, momentum=0))

    graph = torch.accelerator.Graph()
    with torch.no_grad():
        expected = layer()
        with torch.loom.graph(graph):
            result = layer()
    # The factors' memory is free by then, but the result does not lie there.
    events = device_events(graph.replay)
    assert events == ["native_batch_norm", "fused: native_batch_norm, relu"]
    torch.testing.assert_close(result, expected)


def test_gradients() -> None:
    def gradients(device: str) -> list[torch.Tensor]:
        x, w, b = (
            numbers(*size, dtype=torch.float32).to(device).requires_grad_()
            for size in [(300, 200), (250, 200), (250,)]
        )
        F.gelu(F.linear(x, w, b)).sum().backward()
        return [tensor.grad.cpu() for tensor in (x, w, b) if tensor.grad is not None]

    torch.testing.assert_close(gradients("loom"), gradients("cpu"), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("function", [chain, with_its_transpose, into_the_input])
def test_a_graph_replays_them(function: Callable[..., torch.Tensor]) -> None:
    sizes = [(256, 256), (256, 256), (256,)]
    x, w, b = (numbers(*size, dtype=torch.float32).to("loom") for size in sizes)
    with torch.no_grad():
        graph = torch.loom.Graph()
        with torch.loom.graph(graph):
            y = function(x, w, b)
        for factor in (1, 2):
            x.mul_(factor)
            expected = function(x.clone(), w, b)
            graph.replay()
            assert torch.equal(y.cpu(), expected.cpu())


def test_two_threads_and_streams_at_once() -> None:
    x, w, b = (
        numbers(*size, dtype=torch.float32).to("loom") for size in [(256, 256), (256, 256), (256,)]
    )
    with torch.no_grad(), torch.loom.fusion(False):
        expected = F.gelu(F.linear(x, w, b)).cpu()
    wrong: list[int] = []

    def work(index: int) -> None:
        with torch.no_grad(), torch.loom.stream(torch.loom.Stream() if index % 2 else None):
            for step in range(30):
                if not torch.equal(F.gelu(F.linear(x, w, b)).cpu(), expected):
                    wrong.append(step)

    torch.loom.synchronize()
    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
