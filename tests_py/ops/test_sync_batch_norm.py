# SPDX-License-Identifier: BSD-3-Clause
"""The operators of nn.SyncBatchNorm: several processes' parts make one batch norm."""

import concurrent.futures
import threading

import pytest
import torch
from compare import natively
from torch.nn.modules._functions import SyncBatchNorm

F = torch.nn.functional
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
TOLERANCE = {torch.bfloat16: 3e-2, torch.float16: 4e-3, torch.float32: 1e-4, torch.float64: 1e-9}


def numbers(*shape, dtype=torch.float32, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator) * 2 + 1).to(dtype)


def as_one_process(parts, weight, bias, grads, momentum, eps):
    """What batch norm of all parts together does, in double precision on cpu."""
    x = torch.cat(parts).double().requires_grad_()
    w, b = (p.double().requires_grad_() for p in (weight, bias))
    mean, var = torch.zeros(x.size(1)).double(), torch.ones(x.size(1)).double()
    y = F.batch_norm(x, mean, var, w, b, True, momentum, eps)
    y.backward(torch.cat(grads).double())
    return y.detach(), x.grad, w.grad, b.grad, mean, var


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(3,), (3, 7), (3, 5, 6), (3, 2, 5, 6)], ids=str)
@pytest.mark.parametrize("channels_last", [False, True])
def test_parts_make_the_whole(dtype, shape, channels_last):
    if channels_last and len(shape) != 3:
        pytest.skip("a memory format of four dimensions")
    parts = [numbers(n, *shape, dtype=dtype, seed=n) for n in (4, 2, 5)]
    grads = [numbers(n, *shape, dtype=dtype, seed=n + 20) for n in (4, 2, 5)]
    weight, bias = numbers(3, dtype=torch.float64), numbers(3, dtype=torch.float64, seed=5)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    y, x_grad, w_grad, b_grad, mean, var = as_one_process(parts, weight, bias, grads, 0.3, 1e-3)

    def on_loom():
        like = torch.channels_last if channels_last else torch.contiguous_format
        xs = [part.to("loom").contiguous(memory_format=like) for part in parts]
        dys = [grad.to("loom").contiguous(memory_format=like) for grad in grads]
        w, b = weight.to("loom", wide), bias.to("loom", wide)
        running_mean, running_var = torch.zeros_like(w), torch.ones_like(w)
        stats = [torch.batch_norm_stats(x, 1e-3) for x in xs]
        assert all(m.dtype == wide and i.dtype == wide for m, i in stats)
        counts = torch.tensor([x.numel() // 3 for x in xs], device="loom", dtype=wide)
        center, invstd = torch.batch_norm_gather_stats_with_counts(
            xs[0],
            torch.stack([m for m, _ in stats]),
            torch.stack([i for _, i in stats]),
            running_mean,
            running_var,
            0.3,
            1e-3,
            counts,
        )
        ys = [torch.batch_norm_elemt(x, w, b, center, invstd, 1e-3) for x in xs]
        sums = [
            torch.batch_norm_backward_reduce(dy, x, center, invstd, w, True, True, True)
            for dy, x in zip(dys, xs, strict=True)
        ]
        total, product, dw, db = (torch.stack(each).sum(0) for each in zip(*sums, strict=True))
        dxs = [
            torch.batch_norm_backward_elemt(dy, x, center, invstd, w, total, product, counts.int())
            for dy, x in zip(dys, xs, strict=True)
        ]
        for result, x in zip(ys + dxs, xs + xs, strict=True):
            assert (result.dtype, result.stride()) == (x.dtype, x.stride())
        return torch.cat(ys), torch.cat(dxs), dw, db, running_mean, running_var

    tolerance = TOLERANCE[dtype]
    for got, wanted in zip(natively(on_loom), (y, x_grad, w_grad, b_grad, mean, var), strict=True):
        scale = float(wanted.abs().max()) + 1
        torch.testing.assert_close(got.cpu().double(), wanted, rtol=0, atol=tolerance * scale)


def test_without_parameters_and_running_statistics():
    x, dy = numbers(6, 3, 4).to("loom"), numbers(6, 3, 4, seed=8).to("loom")

    def on_loom():
        mean, invstd = torch.batch_norm_stats(x, 1e-5)
        mean, invstd = torch.batch_norm_gather_stats(
            x, mean[None], invstd[None], None, None, 0.1, 1e-5, 24
        )
        y = torch.batch_norm_elemt(x, None, None, mean, invstd, 1e-5)
        sums = torch.batch_norm_backward_reduce(dy, x, mean, invstd, None, True, False, False)
        assert sums[2] is None
        assert sums[3] is None
        count = torch.tensor([24], device="loom", dtype=torch.int32)
        return y, torch.batch_norm_backward_elemt(dy, x, mean, invstd, None, *sums[:2], count)

    y, dx = natively(on_loom)
    theirs = x.cpu().requires_grad_()
    expected = F.batch_norm(theirs, None, None, training=True)
    expected.backward(dy.cpu())
    torch.testing.assert_close(y.cpu(), expected.detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(dx.cpu(), theirs.grad, rtol=1e-4, atol=1e-4)


def test_update_of_running_statistics_alone():
    x = numbers(6, 3, 4)
    states = {}
    for device in ("cpu", "loom"):
        mean, var = torch.zeros(3, device=device), torch.ones(3, device=device)
        update = natively if device == "loom" else lambda function, *rest: function(*rest)
        results = update(torch.ops.aten.batch_norm_update_stats, x.to(device), mean, var, 0.2)
        states[device] = [t.cpu() for t in (*results, mean, var)]
    torch.testing.assert_close(states["loom"], states["cpu"])


@pytest.mark.parametrize("mask", [[True, True, True], [True, False, False]])
def test_batch_norm_with_update(mask):
    x, weight, bias = numbers(6, 3, 4), numbers(3), numbers(3, seed=6)
    states = {}
    for device in ("cpu", "loom"):
        mean, var = torch.zeros(3, device=device), torch.ones(3, device=device)
        a, w, b = x.to(device), weight.to(device), bias.to(device)
        call = natively if device == "loom" else lambda function, *rest: function(*rest)
        results = call(torch.ops.aten._batch_norm_with_update, a, w, b, mean, var, 0.1, 1e-5)
        assert (results[3].dtype, results[3].shape) == (torch.uint8, (0,))
        gradients = call(
            torch.ops.aten.batch_norm_backward,
            *(a, a, w, mean, var, results[1], results[2], True, 1e-5, mask, results[3]),
        )
        states[device] = [t.cpu() for t in (*results, mean, var, *gradients) if t is not None]
    torch.testing.assert_close(states["loom"], states["cpu"], rtol=1e-4, atol=1e-4)


class Group:
    """Two threads of a process in place of a process group."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(2, timeout=60)
        self.parts: dict[int, torch.Tensor] = {}
        self.rank = threading.local()

    def _get_backend_name(self) -> str:
        return "gloo"

    def exchange(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        self.parts[self.rank.number] = tensor.clone()
        self.barrier.wait()
        parts = [self.parts[0], self.parts[1]]
        self.barrier.wait()
        return parts

    def all_gather(self, outputs, tensor, group, async_op=False) -> None:
        for output, part in zip(outputs, self.exchange(tensor), strict=True):
            output.copy_(part)

    def all_reduce(self, tensor, op, group, async_op=False) -> None:
        tensor.copy_(torch.stack(self.exchange(tensor)).sum(0))


def test_autograd_function_of_the_module(monkeypatch):
    group = Group()
    monkeypatch.setattr(torch.distributed, "all_gather", group.all_gather)
    monkeypatch.setattr(torch.distributed, "all_reduce", group.all_reduce)
    parts = [numbers(4, 3, 5), numbers(7, 3, 5, seed=9)]
    factors = torch.arange(1.0, 6)

    def train(rank: int):
        group.rank.number = rank
        x = parts[rank].to("loom").requires_grad_()
        w, b = torch.full((3,), 1.5), torch.full((3,), 0.5)
        w, b = (p.to("loom").requires_grad_() for p in (w, b))
        mean, var = torch.zeros(3, device="loom"), torch.ones(3, device="loom")
        y = SyncBatchNorm.apply(x, w, b, mean, var, 1e-5, 0.1, group, 2)
        # On this thread: those of autograd are one a device, and would wait for each other.
        with torch.autograd.set_multithreading_enabled(False):
            (y * factors.to("loom")).square().sum().backward()
        return [t.detach().cpu() for t in (y, x.grad, w.grad, b.grad, mean, var)]

    torch.loom.reset_fallbacks()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first, second = pool.map(train, range(2))
    assert not torch.loom.fallbacks()

    whole = torch.nn.BatchNorm1d(3)
    torch.nn.init.constant_(whole.weight, 1.5)
    torch.nn.init.constant_(whole.bias, 0.5)
    x = torch.cat(parts).requires_grad_()
    y = whole(x)
    (y * factors).square().sum().backward()
    close = {"rtol": 1e-3, "atol": 1e-3}
    torch.testing.assert_close(torch.cat([first[0], second[0]]), y.detach(), **close)
    torch.testing.assert_close(torch.cat([first[1], second[1]]), x.grad, **close)
    torch.testing.assert_close(first[2] + second[2], whole.weight.grad, **close)
    torch.testing.assert_close(first[3] + second[3], whole.bias.grad, **close)
    for state in (first, second):
        torch.testing.assert_close(state[4], whole.running_mean)
        torch.testing.assert_close(state[5], whole.running_var)
