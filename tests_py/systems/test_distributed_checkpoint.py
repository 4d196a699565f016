# SPDX-License-Identifier: BSD-3-Clause
"""Distributed checkpoints: written beside training, read by other numbers of ranks and by none."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from training import make_model, train

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
]


def sharded(seed=0):
    from torch.distributed.fsdp import fully_shard

    model = make_model().to("loom")
    torch.manual_seed(seed)
    for layer in (model[0], model[2], model):
        fully_shard(layer)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def state_of(model, optimizer):
    from torch.distributed.checkpoint.state_dict import get_state_dict

    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments}


def whole(state):
    """All tensors of a state, by name, on the host."""
    flat = {}

    def visit(name, value):
        if isinstance(value, dict):
            for key, each in value.items():
                visit(f"{name}.{key}", each)
        elif isinstance(value, torch.Tensor):
            full = value.full_tensor() if hasattr(value, "full_tensor") else value
            flat[name] = full.detach().cpu().clone()

    visit("", state)
    return flat


def save(folder, how):
    model, optimizer = sharded()
    train(model, optimizer)
    state = state_of(model, optimizer)
    saved = whole(state)
    if how == "save":
        dcp.save(state, checkpoint_id=folder)
    else:
        kind = dcp.state_dict_saver.AsyncCheckpointerType[how]
        written = dcp.async_save(state, checkpoint_id=folder, async_checkpointer_type=kind)
        train(model, optimizer)  # goes on, and what is written is from before
        written.result()
        later = whole(state_of(model, optimizer))
        assert not torch.equal(later[".model.0.weight"], saved[".model.0.weight"])
    return saved


def load(folder):
    from torch.distributed.checkpoint.state_dict import set_state_dict

    model, optimizer = sharded(seed=5)
    train(model, optimizer)  # the optimiser has its state then
    state = state_of(model, optimizer)
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )
    return whole(state_of(model, optimizer))


def check_equal(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), name


@pytest.mark.parametrize("how", ["save", "THREAD"])
def test_other_numbers_of_ranks(two, four, tmp_path, how):
    saved = two.run(save, str(tmp_path), how)[0]
    for loaded in four.run(load, str(tmp_path)):
        check_equal(loaded, saved)


def test_one_process_without_a_group(four, tmp_path):
    saved = four.run(save, str(tmp_path), "save")[0]
    model = make_model().to("loom")
    state = {"model": {name: torch.zeros_like(p) for name, p in model.state_dict().items()}}
    dcp.load(state, checkpoint_id=str(tmp_path))
    model.load_state_dict(state["model"])
    for name, value in model.state_dict().items():
        assert value.device.type == "loom"
        assert torch.equal(value.cpu(), saved[f".model.{name}"])


def to_a_file(folder):
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    if dist.get_rank() == 0:
        dcp_to_torch_save(folder, f"{folder}/whole.pt")
    dist.barrier()


def test_becomes_a_file_of_torch_save(two, tmp_path):
    saved = two.run(save, str(tmp_path), "save")[0]
    two.run(to_a_file, str(tmp_path))
    file = torch.load(tmp_path / "whole.pt", map_location="loom")
    assert torch.equal(file["model"]["0.weight"].cpu(), saved[".model.0.weight"])
