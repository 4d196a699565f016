# SPDX-License-Identifier: BSD-3-Clause
"""DataLoader: pinned batches, worker processes, asynchronous copies, training."""

from typing import NamedTuple

import pytest
import torch
from torch import multiprocessing
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate


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


# Batches of other kinds.


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


class Batch:
    """A batch of the program's own, which says how it is pinned and moved."""

    def __init__(self, rows):
        self.x = torch.stack([x for x, _ in rows])
        self.y = torch.stack([y for _, y in rows])

    def pin_memory(self):
        self.x, self.y = self.x.pin_memory(), self.y.pin_memory()
        return self


def as_pair(rows):
    batch = Batch(rows)
    return Pair(batch.x, batch.y)


def as_dictionary(rows):
    batch = Batch(rows)
    return {"x": batch.x, "more": [batch.y, "text"]}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("collate", "parts"),
    [
        (Batch, lambda batch: (batch.x, batch.y)),
        (as_pair, lambda batch: (batch.x, batch.y)),
        (as_dictionary, lambda batch: (batch["x"], batch["more"][0])),
    ],
    ids=["class", "named tuple", "dictionary"],
)
def test_batches_of_all_kinds_are_pinned(dataset, collate, parts, workers):
    loader = DataLoader(
        dataset, batch_size=10, collate_fn=collate, pin_memory=True, num_workers=workers
    )
    total = torch.zeros((), device="loom")
    for batch in loader:
        x, y = parts(batch)
        assert type(batch).__name__ in ("Batch", "Pair", "dict")
        assert x.is_pinned()
        assert y.is_pinned()
        total += x.to("loom", non_blocking=True).sum() + y.to("loom", non_blocking=True).sum()
    assert total.item() == sum(range(40)) + sum(range(20))


def test_batches_may_be_made_on_loom(dataset):
    def on_loom(rows):
        return [part.to("loom", non_blocking=True) for part in default_collate(rows)]

    seen = [(x, y) for x, y in DataLoader(dataset, batch_size=8, collate_fn=on_loom)]
    assert all(x.is_loom and y.is_loom for x, y in seen)
    assert torch.equal(torch.cat([y for _, y in seen]).cpu(), torch.arange(20))


def test_a_dataset_may_live_on_loom():
    data = TensorDataset(torch.arange(40.0, device="loom").view(20, 2))
    rows = torch.cat([x for (x,) in DataLoader(data, batch_size=6)])
    assert rows.is_loom
    assert torch.equal(rows.cpu(), torch.arange(40.0).view(20, 2))


# Asynchrony.


def test_copies_of_pinned_batches_wait_for_nothing(dataset):
    torch.ones(2, device="loom").sum().item()
    batches = list(DataLoader(dataset, batch_size=5, pin_memory=True))
    torch.loom.synchronize()
    results = []
    before = torch.loom.host_waits()
    for x, y in batches:
        there = x.to("loom", non_blocking=True)
        results.append((there * 2, y.to("loom", non_blocking=True)))
    assert torch.loom.host_waits() == before
    assert torch.equal(torch.cat([x for x, _ in results]).cpu(), dataset.tensors[0] * 2)
    assert torch.equal(torch.cat([y for _, y in results]).cpu(), dataset.tensors[1])


# Workers.


def test_persistent_workers_serve_all_epochs(dataset):
    loader = DataLoader(
        dataset, batch_size=5, num_workers=1, persistent_workers=True, pin_memory=True
    )
    for _ in range(3):
        total = sum(x.to("loom", non_blocking=True).sum() for x, _ in loader)
        assert total.item() == sum(range(40))


class OnLoom(Dataset):
    """Makes its items on loom, in whichever process it is asked."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.full((2,), float(index), device="loom:1")


def test_a_forked_worker_that_uses_loom_is_told_how():
    torch.ones(1, device="loom")
    loader = DataLoader(OnLoom(), num_workers=1, multiprocessing_context="fork")
    with pytest.raises(RuntimeError, match=r"(?s)forked subprocess.*spawn"):
        next(iter(loader))


def test_workers_of_a_server_may_use_loom():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    loader = DataLoader(OnLoom(), batch_size=3, num_workers=1, multiprocessing_context=context)
    batches = list(loader)
    assert [batch.device for batch in batches] == [torch.device("loom:1")] * 2
    assert torch.equal(torch.cat(batches).cpu()[:, 0], torch.arange(6.0))


@pytest.mark.slow
def test_spawned_workers_may_use_loom():
    loader = DataLoader(OnLoom(), batch_size=3, num_workers=2, multiprocessing_context="spawn")
    assert torch.equal(torch.cat(list(loader)).cpu()[:, 0], torch.arange(6.0))


def test_the_device_to_pin_for_is_the_accelerator(dataset):
    loader = DataLoader(dataset, 20, pin_memory=True, pin_memory_device="loom")
    with pytest.warns(UserWarning, match="pin_memory_device is deprecated"):
        x, _ = next(iter(loader))
    assert x.is_pinned()


# Training, as the tutorial does it.


def train(device, **arguments):
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    data = TensorDataset(x, (x.sum(1) > 0).long())
    model = torch.nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    generator = torch.Generator().manual_seed(1)
    loader = DataLoader(data, 16, shuffle=True, generator=generator, **arguments)
    losses = []
    for _ in range(3):
        for inputs, labels in loader:
            there = inputs.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            loss = torch.nn.functional.cross_entropy(model(there[0]), there[1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return torch.stack(losses).cpu()


@pytest.mark.parametrize("workers", [0, 1])
def test_training_is_that_of_the_cpu(workers):
    torch.loom.reset_fallbacks()
    losses = train("loom", pin_memory=True, num_workers=workers)
    assert torch.loom.fallbacks() == {}
    torch.testing.assert_close(losses, train("cpu"))
    assert losses[-1] < losses[0]
