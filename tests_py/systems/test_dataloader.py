# SPDX-License-Identifier: BSD-3-Clause
"""DataLoader: pinned batches, worker processes, asynchronous copies."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset


@pytest.fixture
def dataset():
    return TensorDataset(torch.arange(40.0).view(20, 2), torch.arange(20))


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_pinned(dataset, workers):
    torch.ones(1, device="loom")
    loader = DataLoader(dataset, batch_size=5, pin_memory=True, num_workers=workers)
    seen = []
    for x, y in loader:
        assert x.is_pinned()
        assert y.is_pinned()
        there = x.to("loom", non_blocking=True)
        seen.append(there.sum())
    assert sum(value.item() for value in seen) == sum(range(40))


def test_forked_workers_after_the_device_was_used(dataset):
    torch.ones(1, device="loom")
    loader = DataLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context="fork")
    total = sum(x.to("loom").sum().item() for x, _ in loader)
    assert total == sum(range(40))


def test_the_pin_thread_uses_the_current_device(dataset):
    with torch.loom.device(1):
        for x, _ in DataLoader(dataset, batch_size=20, pin_memory=True):
            assert x.is_pinned()
            assert x.to("loom", non_blocking=True).device == torch.device("loom", 1)


def test_a_generator_of_loom_is_not_needed(dataset):
    torch.manual_seed(0)
    first = [y.tolist() for _, y in DataLoader(dataset, batch_size=20, shuffle=True)]
    torch.manual_seed(0)
    assert first == [y.tolist() for _, y in DataLoader(dataset, batch_size=20, shuffle=True)]


def test_pinned_memory_may_be_dropped_while_it_is_copied():
    results = []
    for value in range(50):
        source = torch.full((1 << 16,), float(value)).pin_memory()
        results.append(source.to("loom", non_blocking=True))
        del source  # the pool may hand the block out only after the copy
    for value, result in enumerate(results):
        assert result.cpu().eq(value).all()


def test_copies_to_pinned_memory_are_complete_after_synchronize():
    x = torch.arange(1 << 16, device="loom")
    y = torch.empty(1 << 16, dtype=torch.int64, pin_memory=True)
    y.copy_(x, non_blocking=True)
    torch.loom.synchronize()
    assert torch.equal(y, torch.arange(1 << 16))
