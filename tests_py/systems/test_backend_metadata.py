# SPDX-License-Identifier: BSD-3-Clause
"""Backend metadata: names of allocations, in snapshots, in errors, through files."""

import copy
import gc
import io

import pytest
import torch

MB = 1 << 20


@pytest.fixture
def x():
    return torch.arange(12.0).view(3, 4).to("loom:1")


def reload(value, **arguments):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **arguments)


def block_of(tensor):
    blocks = [b for s in torch.loom.memory_snapshot() for b in s["blocks"]]
    return next(b for b in blocks if b["address"] == tensor.untyped_storage().data_ptr())


def test_a_name_belongs_to_the_memory():
    x = torch.empty(MB, dtype=torch.uint8, device="loom")
    assert torch.loom.memory.allocation_name(x) == ""
    torch.loom.memory.set_allocation_name(x, "weights")
    assert torch.loom.memory.allocation_name(x[10:]) == "weights"
    assert torch.loom.memory.allocation_name(x.detach()) == "weights"
    assert torch.loom.memory.allocation_name(x + 1) == ""
    assert block_of(x)["name"] == "weights"
    torch.loom.memory.set_allocation_name(x[5:], "better weights")
    assert torch.loom.memory.allocation_name(x) == "better weights"
    torch.loom.memory.set_allocation_name(x, "")
    assert torch.loom.memory.allocation_name(x) == ""


def test_the_next_owner_of_the_memory_does_not_inherit_the_name():
    x = torch.empty(MB, dtype=torch.uint8, device="loom")
    torch.loom.memory.set_allocation_name(x, "weights")
    address = x.data_ptr()
    del x
    y = torch.empty(MB, dtype=torch.uint8, device="loom")
    assert y.data_ptr() == address
    assert torch.loom.memory.allocation_name(y) == ""


def test_names_are_for_loom_tensors():
    with pytest.raises(RuntimeError, match="loom"):
        torch.loom.memory.set_allocation_name(torch.empty(1), "x")
    with pytest.raises(ValueError, match="256"):
        torch.loom.memory.set_allocation_name(torch.empty(1, device="loom"), "x" * 257)


def test_running_out_of_memory_names_the_largest_allocations(check):
    check(
        """
        import pytest, torch
        keep = [torch.empty(n << 20, dtype=torch.uint8, device="loom") for n in (3, 40, 20)]
        for tensor, name in zip(keep, ("table", "weights", "cache")):
            torch.loom.memory.set_allocation_name(tensor, name)
        with pytest.raises(torch.OutOfMemoryError) as caught:
            torch.empty(256 << 20, dtype=torch.uint8, device="loom")
        assert "weights (40.00 MiB), cache (20.00 MiB), table" in str(caught.value), caught.value
        """,
        LOOM_MEMORY_LIMIT="128M",
    )


def test_names_of_allocations_are_saved(x):
    torch.loom.memory.set_allocation_name(x, "weights")
    y = reload({"x": x}, weights_only=True)["x"]
    assert torch.loom.memory.allocation_name(y) == "weights"
    assert not reload(x, map_location="cpu").is_loom


def with_metadata(x, metadata):
    torch.loom.memory.set_allocation_name(x, "weights")
    rebuild, arguments = x.__reduce_ex__(2)
    assert arguments[-1] == {"loom.allocation_name:weights": True}
    return rebuild(*arguments[:-1], metadata)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"something": True}, "entry of another kind"),
        ({"loom.allocation_name:a": False}, "entry of another kind"),
        ({"loom.allocation_name:a": True, "loom.allocation_name:b": True}, "at most one"),
        ({"loom.allocation_name:" + 300 * "a": True}, "at most 256 bytes"),
        ({"loom.allocation_name:\n": True}, "control characters"),
    ],
    ids=["unknown", "false", "two", "long", "control"],
)
def test_metadata_of_damaged_files_is_refused(x, metadata, message):
    with pytest.raises(ValueError, match=message):
        with_metadata(x, metadata)
    assert torch.equal(with_metadata(x, {"loom.allocation_name:a": True}).cpu(), x.cpu())


def test_a_name_survives_pickling_in_a_state_dict(x):
    layer = torch.nn.Linear(3, 4).to("loom")
    torch.loom.memory.set_allocation_name(layer.weight, "first layer")
    state = reload(layer.state_dict(), map_location="loom:1")
    assert state["weight"].device == torch.device("loom:1")
    assert torch.loom.memory.allocation_name(state["weight"]) == "first layer"
    assert torch.loom.memory.allocation_name(copy.deepcopy(x)) == ""


def test_a_truncated_file_is_an_error_and_nothing_is_lost(x):
    torch.loom.memory.set_allocation_name(x, "weights")
    file = io.BytesIO()
    torch.save(x, file)
    gc.collect()  # what earlier tests left behind
    before = torch.loom.memory_allocated(1)
    for length in (10, len(file.getvalue()) // 2, len(file.getvalue()) - 10):
        with pytest.raises((RuntimeError, ValueError, EOFError)):
            torch.load(io.BytesIO(file.getvalue()[:length]))
    assert torch.loom.memory_allocated(1) == before
    assert torch.loom.memory.allocation_name(x) == "weights"
