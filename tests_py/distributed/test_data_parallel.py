# SPDX-License-Identifier: BSD-3-Clause
"""nn.DataParallel and torch.nn.parallel.comm on the two devices of one process."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator

import pytest
import torch
from rank_pool import RankPool
from torch import nn
from torch.nn.parallel import comm

FIRST, SECOND = (torch.device("loom", index) for index in range(2))


@pytest.fixture(scope="module")
def two_devices() -> Iterator[RankPool]:
    pool = RankPool(1, None, LOOM_DEVICES="2")
    yield pool
    pool.close()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(4, 6), nn.BatchNorm1d(6)
        self.second = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> dict[str, torch.Tensor]:
        out = self.second(self.norm(self.first(x)).relu())
        index = -1 if x.device.index is None else x.device.index
        return {"out": out * scale, "device": torch.tensor([index], device=x.device)}


def train_on(origin: str) -> None:
    torch.manual_seed(0)
    reference = Net().eval()
    model = copy.deepcopy(reference).to("loom")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel = nn.DataParallel(model)
        assert parallel.device_ids == [0, 1]
        for _ in range(3):
            x = torch.randn(7, 4)
            made = parallel(x.to(origin), scale=2.0)
            assert made["out"].device == FIRST
            assert made["device"].tolist() == [0, 1]
            losses = made["out"].square().sum(), reference(x, scale=2.0)["out"].square().sum()
            torch.testing.assert_close(losses[0].cpu(), losses[1], rtol=1e-3, atol=1e-4)
            for module, loss in zip((model, reference), losses, strict=True):
                optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("origin", ["loom", "cpu"])
def test_data_parallel_trains(two_devices: RankPool, origin: str) -> None:
    two_devices.run(train_on, origin)


def copies() -> None:
    x = torch.arange(12.0).reshape(6, 2).to(FIRST)
    here, there = comm.broadcast(x, [0, 1])
    assert here is x
    assert there.device == SECOND
    assert torch.equal(there.cpu(), x.cpu())
    out = [torch.empty_like(x), torch.empty(6, 2, device=SECOND)]
    comm.broadcast(x, out=out)
    assert all(torch.equal(each.cpu(), x.cpu()) for each in out)
    groups = comm.broadcast_coalesced([x, x[0]], [0, 1])
    assert [[each.device for each in group] for group in groups] == [[FIRST] * 2, [SECOND] * 2]
    for origin in ("cpu", FIRST):
        parts = comm.scatter(x.to(origin), [0, 1], chunk_sizes=[1, 5])
        assert [(p.device, len(p)) for p in parts] == [(FIRST, 1), (SECOND, 5)]
        whole = comm.gather(parts, destination=1)
        assert whole.device == SECOND
        assert torch.equal(whole.cpu(), x.cpu())
    out = [torch.empty(6, 1, device=FIRST), torch.empty(6, 1, device=SECOND)]
    comm.scatter(x, dim=1, out=out)
    assert torch.equal(comm.gather(out, dim=1, destination="cpu"), x.cpu())
    assert comm.gather(out, dim=1).device == FIRST
    assert torch.equal(comm.gather(out, dim=1, out=torch.empty(6, 2)), x.cpu())
    total = comm.reduce_add([x, x.to(SECOND)], destination=1)
    assert total.device == SECOND
    assert torch.equal(total.cpu(), 2 * x.cpu())
    sums = comm.reduce_add_coalesced([[x, x[0]], [x.to(SECOND), x[0].to(SECOND)]], 0)
    assert [each.device for each in sums] == [FIRST] * 2
    assert torch.equal(sums[0].cpu(), 2 * x.cpu())


def test_copies_between_devices(two_devices: RankPool) -> None:
    two_devices.run(copies)


def wrong_calls() -> None:
    x = torch.ones(4, 2, device=FIRST)
    with pytest.raises(RuntimeError, match=r"tensors on loom:1, .* got tensor 0 on loom:0"):
        comm.broadcast_coalesced([x], [1, 0])
    with pytest.raises(RuntimeError, match="gather: expected tensors on loom, got tensor 1 on cpu"):
        comm.gather([x, x.cpu()], destination=0)
    with pytest.raises(RuntimeError, match=r"out\[0\] on loom with the sizes \[4, 2\]"):
        comm.broadcast(x, out=[torch.empty(3, device=SECOND)])


def test_wrong_calls_say_what_to_do(two_devices: RankPool) -> None:
    two_devices.run(wrong_calls)
