# SPDX-License-Identifier: BSD-3-Clause
"""torch.save, torch.load, pickle and copy: devices, views, files of all kinds."""

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


def test_files_of_loom_may_be_mapped(x, tmp_path):
    torch.save([x, x[1]], tmp_path / "x.pt")
    a, b = torch.load(tmp_path / "x.pt", map_location="cpu", mmap=True)
    a[1] = -1  # private to this process
    assert b.eq(-1).all()
    y, _ = torch.load(tmp_path / "x.pt", mmap=True)
    assert y.device == x.device
    assert torch.equal(y.cpu(), x.cpu())


def test_training_goes_on_from_a_checkpoint(tmp_path):
    def step(model, optimizer):
        loss = model(torch.ones(4, 3, device="loom")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    def make():
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)).to("loom")
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1)

    model, optimizer, scheduler = make()
    step(model, optimizer)
    scheduler.step()
    names = ("model", "optimizer", "scheduler")
    parts = zip(names, (model, optimizer, scheduler), strict=True)
    torch.save({name: part.state_dict() for name, part in parts}, tmp_path / "checkpoint.pt")
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    twin = make()
    for name, part in zip(names, twin, strict=True):
        part.load_state_dict(state[name])
    for _ in range(2):
        assert step(model, optimizer) == step(*twin[:2])


@pytest.mark.parametrize("form", ["zip", "old"])
@pytest.mark.parametrize("source", ["cpu", "loom:1"])
@pytest.mark.parametrize("target", ["cpu", "loom:0"])
def test_both_formats_go_to_any_device(x, form, source, target):
    file = io.BytesIO()
    there = x.to(source)
    torch.save([there, there.t()], file, _use_new_zipfile_serialization=form == "zip")
    file.seek(0)
    a, b = torch.load(file, map_location=target)
    assert a.device == torch.device(target)
    a[1, 2] = -7
    assert b[2, 1].item() == -7
    assert torch.equal(b.cpu()[0], x.cpu()[:, 0])


def test_data_may_be_left_out(x, tmp_path):
    with torch.serialization.skip_data():
        torch.save(x, tmp_path / "x.pt")
    empty = torch.load(tmp_path / "x.pt")
    assert empty.device == x.device
    assert empty.cpu().eq(0).all()
    torch.save(x, tmp_path / "y.pt")
    with torch.serialization.skip_data():
        shape = torch.load(tmp_path / "y.pt")
    assert (shape.device, shape.shape) == (x.device, x.shape)


class Settings:
    """A class of the program's own, with a tensor in it."""

    def __init__(self, scale):
        self.scale = scale


def test_classes_of_the_program_must_be_allowed(x):
    with pytest.raises(pickle.UnpicklingError, match="Settings"):
        reload(Settings(x), weights_only=True)
    with torch.serialization.safe_globals([Settings]):
        assert torch.equal(reload(Settings(x), weights_only=True).scale.cpu(), x.cpu())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.complex64, torch.uint16])
def test_dtypes_survive(x, dtype):
    y = reload(x.to(dtype))
    assert y.dtype == dtype
    assert torch.equal(y.cpu(), x.cpu().to(dtype))


def test_conjugate_and_negative_views_survive():
    x = torch.complex(torch.arange(3.0), torch.ones(3)).to("loom:1")
    for view in (x.conj(), x.conj().imag):
        y = reload(view)
        assert (y.is_conj(), y.is_neg()) == (view.is_conj(), view.is_neg())
        assert torch.equal(y.cpu().resolve_conj().resolve_neg(), view.cpu())


def test_sparse_tensors_survive():
    x = torch.eye(3, device="loom").to_sparse()
    y = reload(x)
    assert (y.layout, y.device) == (x.layout, x.device)
    assert torch.equal(y.to_dense().cpu(), torch.eye(3))


@pytest.mark.parametrize("share", [0.2, 0.6, 0.99])
@pytest.mark.parametrize("form", ["zip", "old"])
def test_truncated_files_are_refused(share, form, tmp_path):
    file = tmp_path / "x.pt"
    x = torch.arange(5000.0, device="loom")
    torch.save(x, file, _use_new_zipfile_serialization=form == "zip")
    assert torch.equal(torch.load(file).cpu(), x.cpu())
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    with pytest.raises((RuntimeError, EOFError, OSError, pickle.UnpicklingError)):
        torch.load(file)


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


def test_printing_shows_values_and_device(x):
    assert "device='loom:1'" in repr(x)
    assert "11." in repr(x)
