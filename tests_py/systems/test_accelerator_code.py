# SPDX-License-Identifier: BSD-3-Clause
"""Device-agnostic scripts: programs that name torch.accelerator only, and no device."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class NeuralNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.layers = nn.Sequential(
            nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)
        )

    def forward(self, x):
        return self.layers(self.flatten(x))


def choose():
    available = torch.accelerator.is_available()
    return torch.accelerator.current_accelerator().type if available else "cpu"


def pictures():
    """Pictures of 8x8 with one bright quarter, and which one it is."""
    generator = torch.Generator().manual_seed(4)
    x = 0.5 * torch.randn(256, 8, 8, generator=generator)
    y = torch.randint(4, (256,), generator=generator)
    for picture, quarter in zip(x, y.tolist(), strict=True):
        row, column = divmod(quarter, 2)
        picture[4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 0.7
    return TensorDataset(x, y)


def script(device, path):
    """The quickstart of PyTorch: train, test, save, load, classify."""
    torch.manual_seed(0)
    loader = DataLoader(pictures(), batch_size=32, pin_memory=device != "cpu")
    model = NeuralNetwork().to(device)
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(3):
        model.train()
        for x, y in loader:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            loss = loss_fn(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        model.eval()
        correct = 0.0
        with torch.no_grad():
            for x, y in loader:
                x, y = x.to(device), y.to(device)
                correct += (model(x).argmax(1) == y).type(torch.float).sum().item()
    torch.save(model.state_dict(), path)
    again = NeuralNetwork().to(device)
    again.load_state_dict(torch.load(path, weights_only=True))
    with torch.no_grad():
        classes = again(pictures()[:8][0].to(device)).argmax(1)
    return losses, correct / 256, classes


def test_the_quickstart_runs_unchanged(tmp_path):
    torch.loom.reset_fallbacks()
    losses, correct, classes = script(choose(), tmp_path / "model.pt")
    assert torch.loom.fallbacks() == {}
    assert classes.is_loom
    expected, expected_correct, expected_classes = script("cpu", tmp_path / "model.pt")
    assert losses == pytest.approx(expected, rel=1e-3, abs=1e-3)
    assert correct == pytest.approx(expected_correct, abs=0.01)
    assert correct > 0.9
    assert classes.tolist() == expected_classes.tolist()


def test_the_default_device_is_the_accelerator():
    with torch.accelerator.current_accelerator():
        model = NeuralNetwork()
        x = torch.randn(2, 8, 8)
    assert x.is_loom
    assert model(x).is_loom


def test_mixed_precision_by_the_type_of_the_accelerator():
    device = choose()
    torch.manual_seed(0)
    model = NeuralNetwork().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler(device)
    x, y = (tensor.to(device) for tensor in pictures()[:64])
    losses = []
    for _ in range(12):
        with torch.autocast(device, dtype=torch.float16):
            output = model(x)
            loss = nn.functional.cross_entropy(output, y)
        assert output.dtype == torch.float16
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_copies_overlap_with_work_on_streams_and_events():
    device = torch.accelerator.current_accelerator()
    copies, work = torch.Stream(device), torch.Stream(device)
    torch.manual_seed(0)
    model = NeuralNetwork().eval()
    twin = NeuralNetwork().eval().to(device)
    twin.load_state_dict(model.state_dict())
    twin_ready = torch.Event(device)
    twin_ready.record()
    batches = [torch.randn(16, 8, 8).pin_memory() for _ in range(4)]
    outputs = []
    work.wait_event(twin_ready)
    with torch.no_grad():
        for batch in batches:
            with copies:
                x = batch.to(device, non_blocking=True)
                arrived = torch.Event(device)
                arrived.record(copies)
            work.wait_event(arrived)
            with work:
                assert torch.accelerator.current_stream(device) == work
                outputs.append(twin(x))
            x.record_stream(work)
    work.synchronize()
    assert arrived.query()
    with torch.no_grad():
        for output, batch in zip(outputs, batches, strict=True):
            torch.testing.assert_close(output.cpu(), model(batch), rtol=1e-4, atol=1e-5)


def test_elapsed_time_of_a_region():
    device = torch.accelerator.current_accelerator()
    start, end = (torch.Event(device, enable_timing=True) for _ in range(2))
    x = torch.ones(256, 256, device=device)
    start.record()
    for _ in range(3):
        x = x @ x / 256
    end.record()
    torch.accelerator.synchronize()
    assert start.elapsed_time(end) > 0
    assert x.eq(1).all()


def test_memory_is_counted_and_given_back():
    device = torch.accelerator.current_accelerator()
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats()
    before = torch.accelerator.memory_allocated()
    x = torch.ones(1 << 20, device=device)
    assert torch.accelerator.memory_allocated() - before == 4 << 20
    assert torch.accelerator.memory_reserved() >= torch.accelerator.memory_allocated()
    statistics = torch.accelerator.memory_stats()
    assert statistics["allocated_bytes.all.current"] == torch.accelerator.memory_allocated()
    del x
    assert torch.accelerator.memory_allocated() == before
    assert torch.accelerator.max_memory_allocated() - before >= 4 << 20
    reserved = torch.accelerator.memory_reserved()
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved() < reserved
    free, total = torch.accelerator.get_memory_info()
    assert 0 < free <= total


def test_a_model_on_every_device():
    model = NeuralNetwork().eval()
    x = torch.randn(4, 8, 8)
    found = []
    for index in range(torch.accelerator.device_count()):
        with torch.accelerator.device_index(index):
            assert torch.accelerator.current_device_index() == index
            device = torch.accelerator.current_accelerator().type
            output = model.to(device)(x.to(device))
        found.append(output.device.index)
        torch.testing.assert_close(output.cpu(), model.cpu()(x), rtol=1e-4, atol=1e-5)
    assert found == [0, 1]
