# SPDX-License-Identifier: BSD-3-Clause
"""What the host does to device memory is ordered with what queues do to it."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch.nn import functional as F  # noqa: N812


@contextmanager
def busy_stream() -> Iterator[None]:
    """Another thread queues work on the default stream and drops its results at once."""
    stop = threading.Event()

    def work() -> None:
        a = torch.ones(1 << 20, dtype=torch.int64, device="loom")
        while not stop.is_set():
            for _ in range(10):
                a + 5
            torch.loom.synchronize()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_fallback_writes_no_memory_that_another_thread_still_uses() -> None:
    x = (torch.arange(1 << 20) % 7).float()
    on_loom = x.to("loom")
    expected = torch.unique(x, return_inverse=True)[1]
    with busy_stream():
        for _ in range(10):
            assert torch.equal(torch.unique(on_loom, return_inverse=True)[1].cpu(), expected)


def test_fallback_waits_for_the_copy_of_a_lazy_clone() -> None:
    ones = torch.ones(1 << 21, device="loom")
    for _ in range(5):
        assert torch.nonzero(torch._lazy_clone(ones)).shape[0] == ones.numel()


def test_lazy_clone_stays_on_its_device() -> None:
    x = torch.ones(1 << 20, device="loom:1")
    clone = torch._lazy_clone(x)
    before = torch.loom.memory_allocated(0)
    clone.add_(1)
    assert clone.untyped_storage().device == torch.device("loom:1")
    assert torch.loom.memory_allocated(0) == before
    assert (clone == 2).all().item()
    assert (x == 1).all().item()


def test_library_that_allocates_on_its_own_falls_back() -> None:
    with pytest.raises(NotImplementedError, match=r"\.cpu\(\)"):
        torch.randn(4, 4, device="loom").to_mkldnn()


WAITS = {
    "empty_cache": lambda a: torch.loom.empty_cache(),
    "storage": lambda a: a.untyped_storage().cpu(),
    "item": lambda a: a.sum().item(),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS.keys())
def test_threads_run_while_one_waits(wait: Callable[[torch.Tensor], object]) -> None:
    """The other thread gets the GIL from nothing but the wait: it is never taken away by force."""
    go, ran = threading.Event(), threading.Event()

    def run() -> None:
        go.wait()
        ran.set()

    thread = threading.Thread(target=run)
    a = torch.randn(1500, 1500, device="loom")
    torch.loom.synchronize()
    interval = sys.getswitchinterval()
    thread.start()
    sys.setswitchinterval(1e6)
    try:
        for _ in range(10):
            a @ a
        torch.zeros(2**24, device="loom")  # freed while queued: empty_cache() has to wait for it
        before = torch.loom.host_waits()
        go.set()
        wait(a)
        assert torch.loom.host_waits() > before
        assert ran.is_set()
    finally:
        sys.setswitchinterval(interval)
        thread.join()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(6, 5), (4, 5, 7), (4, 5, 7, 3)])
def test_batch_norm_of_a_transposed_input(shape: tuple[int, ...], training: bool) -> None:
    x = torch.randn(shape).transpose(0, 1)
    mean, variance = torch.rand(shape[0]), torch.rand(shape[0])

    def run(device: str) -> list[torch.Tensor]:
        moved = x.T.to(device).T if x.dim() == 2 else x.transpose(0, 1).to(device).transpose(0, 1)
        moved = moved.requires_grad_()
        running = mean.to(device), variance.to(device)
        y = F.batch_norm(moved, *running, training=training)
        y.square().sum().backward()
        return [t.detach().cpu() for t in (y, moved.grad, *running)]

    torch.testing.assert_close(run("loom"), run("cpu"), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("dims", [2, 3])
def test_padding_keeps_the_memory_format(mode: str, dims: int) -> None:
    formats = {2: torch.channels_last, 3: torch.channels_last_3d}
    x = torch.randn(2, 3, *[5] * dims).contiguous(memory_format=formats[dims])
    got = F.pad(x.to("loom"), [1] * (2 * dims), mode=mode)
    wanted = F.pad(x, [1] * (2 * dims), mode=mode)
    assert got.stride() == wanted.stride()
    torch.testing.assert_close(got.cpu(), wanted)


def test_unpooling_keeps_the_memory_format() -> None:
    x = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    wanted = F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)
    got = F.max_unpool2d(*F.max_pool2d(x.to("loom"), 2, return_indices=True), 2)
    assert got.stride() == wanted.stride()
    torch.testing.assert_close(got.cpu(), wanted)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_binary_cross_entropy(reduction: str) -> None:
    p, target = torch.rand(8), torch.rand(8)
    got = F.binary_cross_entropy(p.to("loom"), target.to("loom"), reduction=reduction)
    wanted = F.binary_cross_entropy(p, target, reduction=reduction)
    torch.testing.assert_close(got.cpu(), wanted)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")  # of cpu's own path
def test_encoder_with_padding_in_evaluation_mode() -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 2).eval()
    x, mask = torch.randn(2, 5, 8), torch.zeros(2, 5, dtype=torch.bool)
    mask[1, 3:] = True
    with torch.no_grad():
        wanted = encoder(x, src_key_padding_mask=mask)
        got = encoder.to("loom")(x.to("loom"), src_key_padding_mask=mask.to("loom")).cpu()
    # What stands in the padding is nobody's: the nested path of cpu leaves zeros there.
    torch.testing.assert_close(got[~mask], wanted[~mask], rtol=1e-4, atol=1e-5)


def test_grad_scaler_does_not_wait() -> None:
    weights = [torch.randn(5, device="loom", requires_grad=True) for _ in range(3)]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    scaler = torch.amp.GradScaler("loom")
    for step in range(2):
        torch.loom.reset_fallbacks()
        loss = sum(w.square().sum() for w in weights)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        assert torch.loom.fallbacks() == {}, step
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def test_assignment_under_a_mask_does_not_wait() -> None:
    x = torch.randn(100, device="loom")
    x[x < 0] = 0.0
    torch.loom.synchronize()
    before = torch.loom.host_waits()
    x[x > 0.5] = 1.0
    assert torch.loom.host_waits() == before
    assert x.cpu().min() >= 0


def test_indexing_with_tensors_does_not_wait() -> None:
    x = torch.arange(12.0, device="loom").reshape(3, 4)
    rows = torch.tensor([2, 0], device="loom")
    x[rows], x.clone()[:, rows] = x[rows], 5.0
    torch.loom.reset_fallbacks()
    before = torch.loom.host_waits()
    picked = x[rows, 1:]
    x[:, rows] = 5.0
    assert torch.loom.host_waits() == before
    assert torch.loom.fallbacks() == {}
    assert picked.tolist() == [[9, 10, 11], [1, 2, 3]]
    assert x.tolist() == [[5, 1, 5, 3], [5, 5, 5, 7], [5, 9, 5, 11]]
