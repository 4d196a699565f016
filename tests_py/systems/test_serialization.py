# SPDX-License-Identifier: BSD-3-Clause
"""torch.save, torch.load, pickle, copy and DLPack."""

import copy
import io
import pickle

import pytest
import torch


def reload(value, **arguments):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **arguments)


@pytest.fixture
def x():
    return torch.arange(12, dtype=torch.float32).view(3, 4).to("loom:1")


@pytest.mark.parametrize("weights_only", [True, False])
def test_a_tensor_comes_back_to_its_device(x, weights_only):
    y = reload(x, weights_only=weights_only)
    assert y.device == x.device
    assert torch.equal(y.cpu(), x.cpu())


@pytest.mark.parametrize(
    ("map_location", "device"),
    [
        ("cpu", "cpu"),
        ("loom", "loom:0"),
        ("loom:0", "loom:0"),
        (torch.device("loom", 1), "loom:1"),
        ({"loom:1": "loom:0"}, "loom:0"),
        ({"loom:1": "cpu"}, "cpu"),
        (lambda storage, _: storage.cpu(), "cpu"),
    ],
)
@pytest.mark.parametrize("weights_only", [True, False])
def test_map_location_from_loom(x, map_location, device, weights_only):
    y = reload(x, map_location=map_location, weights_only=weights_only)
    assert y.device == torch.device(device)
    assert torch.equal(y.cpu(), x.cpu())


@pytest.mark.parametrize("device", ["loom:0", "loom:1"])
def test_map_location_from_cpu(x, device):
    assert reload(x.cpu(), map_location=device).device == torch.device(device)


def test_a_device_that_does_not_exist_is_named(x, check):
    file = io.BytesIO()
    torch.save(x, file)
    check(
        """
        import io, pytest, sys, torch
        file = io.BytesIO(bytes.fromhex(sys.argv[1]))
        with pytest.raises(RuntimeError, match="LOOM device 1 but torch.loom.device_count.. is 1"):
            torch.load(file)
        """,
        file.getvalue().hex(),
        LOOM_DEVICES="1",
    )


def test_views_share_their_storage_after_loading(x):
    a, b = reload([x, x[1]])
    a.zero_()
    assert b.cpu().eq(0).all()
    assert b.device == x.device


def test_strides_and_attributes_survive(x):
    y = reload(x.t())
    assert y.stride() == x.t().stride()
    assert reload(torch.nn.Parameter(x, requires_grad=False)).requires_grad is False
    assert isinstance(reload(torch.nn.Parameter(x), weights_only=True), torch.nn.Parameter)


def test_modules_and_optimizers_are_saved():
    model = torch.nn.Linear(3, 3).to("loom")
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3, device="loom")).sum().backward()
    optimizer.step()
    state = reload({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    assert state["model"]["weight"].is_loom
    twin = torch.nn.Linear(3, 3).to("loom")
    twin.load_state_dict(state["model"])
    torch.optim.Adam(twin.parameters()).load_state_dict(state["optimizer"])
    assert torch.equal(twin.weight.detach().cpu(), model.weight.detach().cpu())


def test_files_may_be_mapped(x, tmp_path):
    torch.save(x.cpu(), tmp_path / "x.pt")
    y = torch.load(tmp_path / "x.pt", map_location="loom", mmap=True)
    assert torch.equal(y.cpu(), x.cpu())


def test_pickle(x):
    y = pickle.loads(pickle.dumps(x))
    assert y.device == x.device
    assert torch.equal(y.cpu(), x.cpu())


def test_deepcopy(x):
    y = copy.deepcopy(x)
    y.zero_()
    assert y.device == x.device
    assert x.sum().item() == 66
    a, b = copy.deepcopy([x, x[0]])
    a.fill_(5)
    assert b.cpu().eq(5).all()


def test_storages_move(x):
    storage = x.cpu().untyped_storage()
    there = storage.loom()
    assert there.device.type == "loom"
    assert there.cpu().tolist() == storage.tolist()
    assert there.is_loom


def test_numpy_wants_the_cpu(x):
    with pytest.raises(TypeError, match="loom"):
        x.numpy()
    assert x.cpu().numpy().sum() == 66


def test_dlpack_device(x):
    kind, index = x.__dlpack_device__()
    assert (int(kind), index) == (12, 1)  # kDLExtDev
    assert torch.ones(1).__dlpack_device__()[0] == 1
    y = torch.from_dlpack(x)
    assert y.device == x.device
    assert y.data_ptr() == x.data_ptr()


def test_printing_shows_values_and_device(x):
    assert "device='loom:1'" in repr(x)
    assert "11." in repr(x)
