# SPDX-License-Identifier: BSD-3-Clause
"""Hugging Face accelerate: Accelerator, checkpoints, and models spread over devices."""

import copy
import os

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

os.environ["HF_HUB_OFFLINE"] = "1"
accelerate = pytest.importorskip("accelerate")
psutil = pytest.importorskip("psutil")  # of accelerate

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_fallback")]


@pytest.fixture(autouse=True)
def forget_the_last_accelerator():
    """accelerate keeps the device and the precision of a process for good."""
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 32)
        self.norm = nn.LayerNorm(32)
        self.last = nn.Linear(32, 3)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))))


def problem():
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    return Net(), TensorDataset(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long())


def train(accelerator, epochs=3, accumulate=1):
    model, data = problem()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
    loader = DataLoader(data, batch_size=16)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    losses = []
    for _ in range(epochs):
        for x, y in loader:
            assert x.device.type == y.device.type == accelerator.device.type
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather(loss.detach()))
    return model, torch.stack(losses)


def train_on_cpu(**options):
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()
    accelerator = accelerate.Accelerator(cpu=True, **options)
    assert accelerator.device.type == "cpu"
    return train(accelerator)


def assert_same_parameters(mine, theirs, **tolerance):
    for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p.detach().cpu(), q.detach().cpu(), **tolerance)


def test_loom_is_the_device():
    assert accelerate.Accelerator().device == torch.device("loom")
    assert accelerate.state.PartialState().device == torch.device("loom")


def test_cpu_is_the_device_for_those_who_ask():
    assert accelerate.Accelerator(cpu=True).device == torch.device("cpu")


@pytest.mark.parametrize("name", ["cpu", "loom:1"])
def test_the_variable_of_accelerate_comes_first(name, monkeypatch):
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", name)
    assert accelerate.Accelerator().device == torch.device(name)


@pytest.mark.parametrize("steps", [1, 2])
def test_training_follows_the_cpu(steps):
    torch.loom.reset_fallbacks()
    model, losses = train(accelerate.Accelerator(gradient_accumulation_steps=steps))
    assert torch.loom.fallbacks() == {}
    assert {p.device for p in model.parameters()} == {torch.device("loom", 0)}
    expected, expected_losses = train_on_cpu(gradient_accumulation_steps=steps)
    assert losses.is_loom
    assert losses[-1] < losses[0]
    torch.testing.assert_close(losses.cpu(), expected_losses, rtol=1e-4, atol=1e-4)
    assert_same_parameters(model, expected, rtol=1e-3, atol=1e-4)


def test_training_in_mixed_precision():
    accelerator = accelerate.Accelerator(mixed_precision="bf16")
    model, losses = train(accelerator)
    seen = []
    inner = accelerator.unwrap_model(model)
    inner.first.register_forward_hook(lambda _, __, output: seen.append(output.dtype))
    with accelerator.autocast():
        inner(torch.randn(2, 8, device="loom"))
    assert seen == [torch.bfloat16]
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    _, expected = train_on_cpu(mixed_precision="bf16")
    torch.testing.assert_close(losses.cpu(), expected, rtol=0.05, atol=0.03)


def test_training_in_fp16_with_a_scaler():
    accelerator = accelerate.Accelerator(mixed_precision="fp16")
    assert accelerator.scaler.is_enabled()
    model, losses = train(accelerator)
    assert accelerator.scaler.state_dict()["_growth_tracker"] == len(losses)  # scaled, and finite
    seen = []
    inner = accelerator.unwrap_model(model)
    inner.first.register_forward_hook(lambda _, __, output: seen.append(output.dtype))
    with accelerator.autocast():
        inner(torch.randn(2, 8, device="loom"))
    assert seen == [torch.float16]
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    _, expected = train_on_cpu()
    torch.testing.assert_close(losses.cpu(), expected, rtol=0.05, atol=0.03)


def test_fp16_on_the_cpu_takes_no_scaler():
    assert accelerate.Accelerator(cpu=True, mixed_precision="fp16").scaler is None


def test_saved_state_goes_on_where_it_was(tmp_path):
    accelerator = accelerate.Accelerator()
    model, data = problem()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    loader = DataLoader(data, batch_size=16)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    def epoch():
        losses = []
        for x, y in loader:
            optimizer.zero_grad()
            # Random numbers of the device are part of the state.
            loss = nn.functional.cross_entropy(model(nn.functional.dropout(x, 0.2)), y)
            accelerator.backward(loss)
            optimizer.step()
            losses.append(loss.item())
        return losses

    epoch()
    accelerator.save_state(tmp_path, safe_serialization=True)
    first = epoch()
    weights = copy.deepcopy(model.state_dict())
    accelerator.load_state(tmp_path)
    assert next(model.parameters()).is_loom
    assert all(v["exp_avg"].is_loom for v in optimizer.optimizer.state.values())
    assert epoch() == first
    for name, value in model.state_dict().items():
        assert torch.equal(value, weights[name]), name


def test_gathered_objects_and_moved_batches():
    accelerator = accelerate.Accelerator()
    batch = {"x": torch.ones(2), "more": [torch.zeros(1), "text"]}
    moved = accelerate.utils.send_to_device(batch, accelerator.device)
    assert moved["x"].is_loom
    assert moved["more"][0].is_loom
    assert moved["more"][1] == "text"
    metrics = accelerator.gather_for_metrics((moved["x"], moved["more"][0]))
    assert metrics[0].is_loom
    assert accelerator.reduce(moved["x"], "sum").cpu().tolist() == [1, 1]


SPREAD = {
    "two devices": {"first": "loom:0", "norm": "loom:1", "last": "loom:1"},
    "device and cpu": {"first": "loom:0", "norm": "loom:0", "last": "cpu"},
}


def save(reference, path, form):
    if form == "safetensors":
        save_file = pytest.importorskip("safetensors.torch").save_file
        save_file(reference.state_dict(), path, {"format": "pt"})
    else:
        torch.save(reference.state_dict(), path)


@pytest.mark.parametrize("where", SPREAD)
@pytest.mark.parametrize("how", ["dispatch", "pt", "safetensors"])
def test_models_are_spread_over_devices(where, how, tmp_path):
    reference, _ = problem()
    if how == "dispatch":
        model = accelerate.dispatch_model(copy.deepcopy(reference), SPREAD[where])
    else:
        path = str(tmp_path / f"model.{how}")
        save(reference, path, how)
        with accelerate.init_empty_weights():
            model = Net()
        assert all(p.is_meta for p in model.parameters())
        model = accelerate.load_checkpoint_and_dispatch(model, path, SPREAD[where])
    seen = {}
    for name in ("first", "norm", "last"):
        model.get_submodule(name).register_forward_hook(
            lambda _, __, output, name=name: seen.update({name: str(output.device)})
        )
    x = torch.randn(4, 8)
    torch.loom.reset_fallbacks()
    output = model(x)
    assert torch.loom.fallbacks() == {}
    torch.testing.assert_close(output.cpu(), reference(x), rtol=1e-4, atol=1e-5)
    assert list(seen) == ["first", "norm", "last"]
    for name, device in seen.items():
        # What is kept on the host is computed on the first device.
        assert device == SPREAD[where][name].replace("cpu", "loom:0")


def test_memory_to_share_is_that_of_the_devices():
    held = torch.empty(2**26, device="loom:1")
    found = accelerate.utils.get_max_memory()
    host = psutil.virtual_memory().available
    assert [key for key in found if key != "cpu"] == [0, 1]
    for index in range(2):
        assert 0 < found[index] <= torch.accelerator.get_memory_info(index)[0]
    assert sum(found.values()) < host + 2**29  # counted once, give or take what others do
    assert found[1] < found[0]
    assert held.is_loom


def test_memory_given_is_kept(caplog):
    given = {"cpu": "1GB", 1: "2MB", 0: 1000}
    with caplog.at_level("WARNING"):
        found = accelerate.utils.get_max_memory(given)
    assert list(found.items()) == [(0, 1000), (1, 2_000_000), ("cpu", 1_000_000_000)]
    assert not caplog.records
    accelerate.utils.get_max_memory({7: "1GB"})
    assert "Device 7 is not available" in caplog.text
    with pytest.raises(ValueError, match="Device gpu is not recognized"):
        accelerate.utils.get_max_memory({"gpu": "1GB"})


# The memory given, and where parameters then are. Each layer takes 1088 bytes, and devices keep
# room for one more, which what waits on the cpu needs.
SHARED = {
    "memory enough": (None, {"loom:0", "loom:1"}),
    "two devices": ({0: 3300, 1: "1MB"}, {"loom:0", "loom:1"}),
    "a device and the cpu": ({0: 3300, "cpu": "1MB"}, {"loom:0", "meta"}),
    "the cpu": ({"cpu": "1MB"}, {"cpu"}),
}


@pytest.mark.parametrize("memory", SHARED)
@pytest.mark.parametrize("how", ["auto", "balanced", "sequential"])
def test_device_maps_are_made_of_loom(how, memory, tmp_path):
    reference = nn.Sequential(*(nn.Linear(16, 16) for _ in range(6)))
    path = str(tmp_path / "model.pt")
    save(reference, path, "pt")
    with accelerate.init_empty_weights():
        model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(6)))
    given, devices = SHARED[memory]
    if memory == "memory enough" and how == "sequential":
        devices = {"loom:0"}
    model = accelerate.load_checkpoint_and_dispatch(model, path, how, max_memory=given)
    assert {str(p.device) for p in model.parameters()} == devices
    x = torch.randn(4, 16)
    # A model that is whole on one device does not fetch its input.
    output = model(x.to(next(iter(devices))) if len(devices) == 1 else x)
    torch.testing.assert_close(output.cpu(), reference(x), rtol=1e-4, atol=1e-5)


def test_unused_memory_is_given_back():
    torch.empty(2**20, device="loom").sum().item()
    assert torch.accelerator.memory_reserved() > torch.accelerator.memory_allocated()
    accelerate.utils.release_memory()
    assert torch.accelerator.memory_reserved() == 0 or torch.accelerator.memory_allocated() > 0


def test_a_batch_that_is_too_large_is_made_smaller():
    tried = []

    @accelerate.utils.find_executable_batch_size(starting_batch_size=64)
    def work(batch_size):
        tried.append(batch_size)
        torch.empty(batch_size, 2**20, device="loom").fill_(1).sum().item()

    accelerate.utils.release_memory()
    free, total = torch.accelerator.get_memory_info()
    used = total - free
    torch.loom.set_per_process_memory_fraction((used + 200 * 2**20) / total)
    try:
        work()
    finally:
        torch.loom.set_per_process_memory_fraction(1.0)
    assert tried[0] == 64
    assert 40 <= tried[-1] < 64  # of 4 MiB each


@pytest.mark.parametrize("how", ["dispatch", "pt", "safetensors"])
def test_a_whole_model_goes_to_one_device(how, tmp_path):
    reference, _ = problem()
    if how == "dispatch":
        model = accelerate.dispatch_model(copy.deepcopy(reference), {"": "loom:1"})
    else:
        path = str(tmp_path / f"model.{how}")
        save(reference, path, how)
        with accelerate.init_empty_weights():
            model = Net()
        model = accelerate.load_checkpoint_and_dispatch(model, path, {"": "loom:1"})
    assert {p.device for p in model.parameters()} == {torch.device("loom", 1)}
    x = torch.randn(4, 8)
    expected = reference(x)
    torch.testing.assert_close(model(x.to("loom:1")).cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", ["loom", "loom:1", torch.device("loom", 1)])
def test_safetensors_are_read_onto_loom(device, tmp_path):
    safetensors = pytest.importorskip("safetensors")
    reference, _ = problem()
    path = tmp_path / "model.safetensors"
    save(reference, path, "safetensors")
    where = torch.empty(0, device=device).device
    for name, tensor in safetensors.torch.load_file(path, device=device).items():
        assert tensor.device == where
        assert torch.equal(tensor.cpu(), reference.state_dict()[name])
    with safetensors.safe_open(path, "pt", device=device) as file:
        assert set(file.keys()) == set(reference.state_dict())
        part = file.get_slice("first.weight")
        assert part.get_shape() == [32, 8]
        assert part[:4].device == file.get_tensor("last.bias").device == where
        assert torch.equal(part[:4].cpu(), reference.first.weight[:4])


def test_weights_wait_on_the_host_until_they_are_needed():
    reference, _ = problem()
    model = accelerate.cpu_offload(copy.deepcopy(reference), execution_device="loom:0")
    assert all(p.is_meta for p in model.parameters())
    seen = []
    model.first.register_forward_hook(lambda _, __, output: seen.append(output.device))
    x = torch.randn(4, 8)
    torch.testing.assert_close(model(x).cpu(), reference(x), rtol=1e-4, atol=1e-5)
    assert seen == [torch.device("loom", 0)]
