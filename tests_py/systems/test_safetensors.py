# SPDX-License-Identifier: BSD-3-Clause
"""safetensors: files of loom tensors, straight to the device, tied weights, slices."""

import pytest
import torch

pytest.importorskip("safetensors")
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, load_file, load_model, save, save_file, save_model

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn,
]  # fmt: skip


@pytest.fixture
def tensors():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(4, 3, generator=generator).to("loom:1")
    return {"weight": weight, "bias": torch.arange(4.0, device="loom")}


@pytest.fixture
def file(tensors, tmp_path):
    save_file(tensors, tmp_path / "x.safetensors", metadata={"by": "loom"})
    return tmp_path / "x.safetensors"


# safetensors knows devices by name, and others by number: that of the accelerator.
@pytest.mark.parametrize(("device", "expected"), [("cpu", "cpu"), (0, "loom:0"), (1, "loom:1")])
def test_files_load_to_any_device(tensors, file, device, expected):
    loaded = load_file(file, device=device)
    assert set(loaded) == set(tensors)
    for name, tensor in loaded.items():
        assert tensor.device == torch.device(expected)
        assert torch.equal(tensor.cpu(), tensors[name].cpu())


@pytest.mark.parametrize("name", ["loom", "loom:1", torch.device("loom", 1)], ids=str)
def test_the_device_is_named(file, tensors, name):
    loaded = load_file(file, device=name)
    assert {tensor.device.type for tensor in loaded.values()} == {"loom"}
    assert all(tensor.get_device() == (torch.device(name).index or 0) for tensor in loaded.values())
    assert all(torch.equal(loaded[key].cpu(), value.cpu()) for key, value in tensors.items())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_survive(dtype, tmp_path):
    x = torch.tensor([0, 1, 2, 3]).to(dtype).to("loom")
    save_file({"x": x}, tmp_path / "x.safetensors")
    y = load_file(tmp_path / "x.safetensors", device=0)["x"]
    assert y.is_loom
    assert y.dtype == dtype
    assert torch.equal(y.cpu().view(torch.uint8), x.cpu().view(torch.uint8))


def test_bytes_hold_what_a_file_does(tensors, file):
    assert load(save(tensors))["weight"].tolist() == tensors["weight"].tolist()
    assert load(file.read_bytes())["bias"].tolist() == [0, 1, 2, 3]


def test_tensors_and_slices_come_one_by_one(tensors, file):
    with safe_open(file, framework="pt", device=1) as opened:
        assert set(opened.keys()) == set(tensors)
        assert opened.metadata() == {"by": "loom"}
        weight = opened.get_tensor("weight")
        part = opened.get_slice("weight")
        assert part.get_shape() == [4, 3]
        rows, columns = part[1:3], part[:, 2:]
    for found, expected in (
        (weight, tensors["weight"]),
        (rows, tensors["weight"][1:3]),
        (columns, tensors["weight"][:, 2:]),
    ):
        assert found.device == torch.device("loom:1")
        assert torch.equal(found.cpu(), expected.cpu())


def test_views_are_saved_by_value(tmp_path):
    x = torch.arange(12.0, device="loom").view(3, 4)
    save_file({"x": x.t().contiguous()}, tmp_path / "x.safetensors")
    assert torch.equal(load_file(tmp_path / "x.safetensors")["x"], x.cpu().t())
    with pytest.raises(ValueError, match="non contiguous"):
        save_file({"x": x.t()}, tmp_path / "y.safetensors")
    with pytest.raises(RuntimeError, match="share memory"):
        save_file({"x": x, "y": x.view(12)}, tmp_path / "y.safetensors")


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(5, 3)
        self.head = torch.nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.embedding(x))


@pytest.mark.parametrize("device", ["cpu", 0])
def test_tied_models_stay_tied(tmp_path, device):
    torch.manual_seed(0)
    model, twin = Tied().to("loom"), Tied().to("loom")
    save_model(model, str(tmp_path / "model.safetensors"))
    missing, unexpected = load_model(twin, tmp_path / "model.safetensors", device=device)
    assert (set(missing), unexpected) == (set(), [])
    assert twin.head.weight is twin.embedding.weight
    x = torch.arange(5, device="loom")
    assert twin(x).is_loom
    assert torch.equal(twin(x).cpu(), model(x).cpu())


def test_damaged_files_are_refused(file):
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(SafetensorError):
        load_file(file, device=0)


def test_a_device_that_does_not_exist_is_refused(file):
    with pytest.raises(RuntimeError, match="device index"):
        load_file(file, device=9)


@pytest.mark.parametrize("device", ["cpu", "loom"])
def test_open_files_are_of_the_class_that_opened_them(file, device):
    with safe_open(file, "pt", device=device) as opened:
        assert isinstance(opened, safe_open)
    assert isinstance(safe_open, type)
    assert not isinstance(file, safe_open)
