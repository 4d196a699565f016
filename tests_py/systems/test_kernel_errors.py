# SPDX-License-Identifier: BSD-3-Clause
"""Errors of kernels: they stay with the values that lack because of them, and say where from."""

import copy
import ctypes
import io
import os
import pickle
import threading
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from torch import nn

from torch_loom import _C


def bad_rows() -> torch.Tensor:
    """Rows of an embedding that does not have them; its error has been raised once already."""
    table = torch.ones(10, 4, device="loom")
    rows = nn.functional.embedding(torch.tensor([11, 3], device="loom"), table)
    with pytest.raises(IndexError):
        torch.ones(1, device="loom").item()
    return rows


LOOKS = {
    "item": lambda x: x[0, 0].item(),
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "copy_": lambda x: torch.empty(2, 4).copy_(x),
    "numpy": lambda x: x.cpu().numpy(),
    "dlpack": lambda x: torch.from_dlpack(x, device="cpu"),
    "repr": repr,
    "bool": lambda x: bool(x.sum() > 0),
    "float": lambda x: float(x.sum()),
    "format": lambda x: f"{x.sum():.2f}",
    "nonzero": lambda x: x.nonzero(),
    "masked_select": lambda x: x[x > 0],
    "unique": lambda x: x.unique(),
    "equal": lambda x: torch.equal(x, x.clone()),
    "allclose": lambda x: torch.allclose(x, x),
    "save": lambda x: torch.save(x, io.BytesIO()),
    "pickle": pickle.dumps,
    "deepcopy and look": lambda x: copy.deepcopy(x).tolist(),
    "another device": lambda x: x.to("loom:1").tolist(),
    "median": lambda x: x.median().item(),
}


@pytest.mark.parametrize("look", LOOKS)
def test_every_look_at_a_failed_value_raises(look):
    rows = bad_rows()
    for _ in range(3):
        with pytest.raises(IndexError, match="out of range"):
            LOOKS[look](rows)
    torch.loom.synchronize()  # raised once: nothing is left for others


DEPENDENTS = {
    "fused": lambda x: (x * 2 + 1).relu(),
    "product": lambda x: x @ torch.ones(4, 3, device="loom"),
    "linear and gelu": lambda x: nn.functional.gelu(x @ torch.ones(4, 3, device="loom")),
    "reduction": lambda x: x.sum(0),
    "softmax": lambda x: x.softmax(-1),
    "sort": lambda x: x.sort().values,
    "cat": lambda x: torch.cat([torch.zeros(1, 4, device="loom"), x]),
    "copy": lambda x: torch.empty(2, 4, device="loom").copy_(x),
    "transposed copy": lambda x: x.t().contiguous(),
    "index_put_": lambda x: torch.zeros(2, 4, device="loom").index_put_(
        (torch.tensor([0, 1], device="loom"),), x
    ),
    "in place": lambda x: x.add_(1),
    "foreach": lambda x: torch._foreach_mul([x, x], 2.0)[0],
    "double": lambda x: x.double(),
    "other stream": lambda x: on_side_stream(x),
    "fallback": lambda x: torch.linalg.eigvals(x @ x.t()),
    "random": lambda x: torch.bernoulli(x),
}


def on_side_stream(x: torch.Tensor) -> torch.Tensor:
    side = torch.loom.Stream()
    side.wait_stream(torch.loom.current_stream())
    with torch.loom.stream(side):
        y = x * 3
    torch.loom.current_stream().wait_stream(side)
    return y


@pytest.mark.parametrize("dependent", DEPENDENTS)
def test_what_is_made_of_a_failed_value_fails(dependent):
    rows = bad_rows()
    with pytest.raises(IndexError, match="out of range"):
        DEPENDENTS[dependent](rows).tolist()


def test_what_shares_a_program_with_a_failed_value_is_computed():
    rows = bad_rows()
    good = torch.ones(2, 4, device="loom")
    doubled, spoilt = good * 2, rows * 2
    third = doubled + 1
    assert doubled.tolist() == [[2.0] * 4] * 2
    assert third.tolist() == [[3.0] * 4] * 2
    with pytest.raises(IndexError):
        spoilt.tolist()


def step_of(optimizer, **named):
    def step(weight, gradient):
        weight.requires_grad_().grad = gradient
        getattr(torch.optim, optimizer)([weight], lr=0.1, **named).step()

    return step


UPDATES = {
    "add_": lambda weight, gradient: weight.add_(gradient, alpha=-0.1),
    "chain": lambda weight, gradient: weight.mul_(0.9).addcmul_(gradient, gradient),
    "foreach": lambda weight, gradient: torch._foreach_add_([weight, weight], [gradient, gradient]),
    "SGD": step_of("SGD", momentum=0.9),
    "Adam": step_of("Adam"),
    "fused Adam": step_of("Adam", fused=True),
}


@pytest.mark.parametrize("update", UPDATES)
def test_what_is_not_computed_keeps_what_its_memory_held(update):
    if os.environ.get("LOOM_MEMORY") == "isolated":
        pytest.skip("nobody can read device memory past the checks")
    weight = torch.full((2, 4), 3.0, device="loom")
    gradient = bad_rows()
    UPDATES[update](weight, gradient)
    with pytest.raises(IndexError):
        weight.tolist()
    memory = (ctypes.c_char * weight.nbytes).from_address(weight.data_ptr())
    held = torch.frombuffer(bytearray(memory), dtype=torch.float32)
    before = torch.full((8,), 3.0)
    # The chain's first step does not fail, and is computed if the worker came before the second.
    computed = [before, before * 0.9] if update == "chain" else [before]
    assert any(torch.equal(held, values) for values in computed)


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.fill_(5),
        lambda x: x.zero_().add_(5),
        lambda x: x.copy_(torch.full((2, 4), 5.0)),
        lambda x: x.copy_(torch.full((2, 4), 5.0, device="loom")),
        lambda x: torch.mul(torch.full((2, 4), 2.5, device="loom"), 2, out=x),
        lambda x: torch.mm(torch.full((2, 1), 5.0).loom(), torch.ones(1, 4).loom(), out=x),
        lambda x: torch.cummax(
            torch.full((2, 4), 5.0).loom(), 0, out=(x, torch.empty(2, 4, dtype=torch.long).loom())
        ),
    ],
)
def test_memory_that_is_written_all_over_is_healthy_again(write):
    rows = bad_rows()
    write(rows)
    assert rows.tolist() == [[5.0] * 4] * 2


def test_a_mask_with_too_many_dimensions_is_refused_at_the_call():
    x, mask = torch.ones(5, device="loom"), torch.ones(5, 5, dtype=torch.bool, device="loom")
    x.masked_scatter_(mask[0], torch.ones(5, device="loom"))
    with pytest.raises(RuntimeError, match="must be greater or equal"):
        x.masked_scatter_(mask, torch.ones(5, 5, device="loom"))


def test_a_part_that_is_written_leaves_the_rest_failed():
    rows = bad_rows()
    rows[0].fill_(1)
    assert rows[0].tolist() == [1.0] * 4
    with pytest.raises(IndexError):
        rows[1].tolist()
    with pytest.raises(IndexError):
        rows.tolist()


def test_new_tensors_in_the_memory_of_failed_ones_are_healthy():
    for _ in range(20):
        bad_rows()
        fresh = torch.empty(2, 4, device="loom")
        fresh[0] = 1
        fresh[1] = 2
        assert fresh.sum().item() == 12


def new_at(address: int) -> torch.Tensor:
    made = [torch.empty(2, 4, device="loom") for _ in range(1000)]
    return next(x for x in made if x.data_ptr() == address)


@pytest.mark.parametrize("waits", ["before", "between"])
def test_another_stream_gets_the_error_of_memory_that_has_a_new_owner(waits):
    """It reads the old values after the memory is given away, in order for the new owner."""
    rows = bad_rows()
    current, side = torch.loom.current_stream(), torch.loom.Stream()
    side.wait_stream(current)
    with torch.loom.stream(side):
        hold = _C._Hold(0, 20)
        tripled = rows * 3
    address = rows.data_ptr()
    if waits == "before":
        current.wait_stream(side)
    del rows
    if waits == "between":
        current.wait_stream(side)
    kept = new_at(address)
    hold.release()
    with pytest.raises(IndexError, match="out of range"):
        tripled.tolist()
    del kept


@pytest.mark.parametrize("writer", ["current", "side"])
def test_another_stream_gets_the_values_of_a_new_owner(writer):
    rows = bad_rows()
    address = rows.data_ptr()
    current, side = torch.loom.current_stream(), torch.loom.Stream()
    hold = _C._Hold(0, 20)
    del rows
    fresh = new_at(address)
    if writer == "current":
        fresh[:, ::2].fill_(1)  # no command writes it all over
        fresh[:, 1::2].fill_(2)
    side.wait_stream(current)
    with torch.loom.stream(side):
        if writer == "side":
            fresh[:, ::2].fill_(1)
            fresh[:, 1::2].fill_(2)
        total = fresh.sum()
    hold.release()
    side.synchronize()
    assert total.item() == 12


WRITERS = {
    "mv": (lambda x: x.mv(x[0]), torch.float32),
    "mv of columns": (lambda x: x.t().mv(x[0]), torch.float32),
    "linear of a vector": (lambda x: nn.functional.linear(x, x[0]), torch.float32),
    "mm of a row": (lambda x: x[:1] @ x, torch.bfloat16),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_new_memory_is_healthy_that_was_dropped_before_its_command_failed(writer):
    write, dtype = WRITERS[writer]
    table, bad = torch.ones(8, 8, dtype=dtype, device="loom"), torch.tensor([8], device="loom")
    torch.loom.synchronize()
    hold = _C._Hold(0, 20)
    table.index_select(0, bad)
    written = write(table)
    hold.release()
    with pytest.raises(IndexError):
        torch.loom.synchronize()
    assert written.unique().tolist() == [8.0]


def test_the_innocent_thread_goes_on_and_the_guilty_one_gets_its_error():
    table = torch.ones(10, 4, device="loom")
    rows = nn.functional.embedding(torch.tensor([11], device="loom"), table)
    seen = []

    def innocent() -> None:
        for value in range(3):
            try:
                seen.append(torch.full((1,), value, device="loom").item())
            except IndexError:
                seen.append("raised")

    thread = threading.Thread(target=innocent)
    thread.start()
    thread.join()
    assert seen == ["raised", 1, 2]
    with pytest.raises(IndexError):
        rows.tolist()


def test_a_non_blocking_copy_of_a_failed_value_raises_at_the_next_wait():
    rows = bad_rows()
    host = torch.empty(2, 4, pin_memory=True)
    host.copy_(rows, non_blocking=True)
    with pytest.raises(IndexError):
        torch.loom.current_stream().synchronize()
    torch.loom.synchronize()


def test_replays_fail_by_command_and_recover():
    index = torch.tensor([1, 2], device="loom")
    table = torch.ones(10, 4, device="loom")
    other = torch.ones(3, device="loom")
    graph = torch.loom.Graph()
    with torch.loom.graph(graph):
        rows = torch.index_select(table, 0, index)
        total = rows.sum()
        doubled = other * 2
    graph.replay()
    assert total.item() == 8
    index.fill_(11)
    graph.replay()
    assert_raises_once()
    with pytest.raises(IndexError, match="of a graph"):
        total.item()
    assert doubled.tolist() == [2.0] * 3
    index.fill_(3)
    graph.replay()
    assert total.item() == 8


def assert_raises_once() -> None:
    with pytest.raises(IndexError):
        torch.loom.synchronize()
    torch.loom.synchronize()


def test_a_failed_step_spoils_its_parameters_until_they_are_loaded():
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 2)).to("loom")
    state = {name: value.cpu() for name, value in model.state_dict().items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    loss = model(torch.tensor([[11]], device="loom")).sum()
    loss.backward()
    optimizer.step()
    assert_raises_once()
    with pytest.raises(IndexError):
        model[1].weight.tolist()
    model.load_state_dict(state)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    optimizer.zero_grad()
    loss = model(torch.tensor([[1]], device="loom")).sum()
    loss.backward()
    optimizer.step()
    assert loss.isfinite().item()


def test_the_text_says_how_to_learn_more(run):
    done = run(
        """
        import torch
        torch.ones(3, device="loom")[torch.tensor([5], device="loom")].tolist()
        """
    )
    assert "LOOM_ERROR_STACKS=1" in done.err
    assert "set_error_stacks(True)" in done.err


def test_stacks_say_where_a_kernel_was_launched(run):
    done = run(
        """
        import torch

        def look_up(table, index):
            return torch.nn.functional.embedding(index, table)

        rows = look_up(torch.ones(3, 2, device="loom"), torch.tensor([5], device="loom"))
        for _ in range(10):
            rows = rows + 1
        rows.tolist()
        """,
        LOOM_ERROR_STACKS="1",
    )
    assert done.code == 1
    text = done.err[done.err.index("IndexError") :]
    assert "in look_up" in text
    assert "LOOM_ERROR_STACKS" not in text


def test_stacks_of_a_backward_say_where_the_forward_was():
    torch.loom.set_error_stacks(True)
    try:
        assert torch.loom.is_error_stacks_enabled()
        with pytest.raises(RuntimeError, match="the_forward") as raised:
            fail_in_backward()
        assert "the backward of what was called at" in str(raised.value)
    finally:
        torch.loom.set_error_stacks(False)


def fail_in_backward() -> None:
    x = torch.ones(2, 3, device="loom", requires_grad=True)
    index = torch.zeros(2, 3, dtype=torch.long, device="loom")

    def the_forward() -> torch.Tensor:
        return x.gather(1, index)

    y = the_forward()
    index.data.fill_(99)  # autograd does not see it: only the backward fails
    y.sum().backward()
    torch.loom.synchronize()


def test_an_error_that_nobody_sees_is_printed_at_exit(run):
    done = run(
        """
        import torch
        y = torch.ones(3, device="loom")[torch.tensor([5], device="loom")]
        event = torch.loom.Event()
        event.record()
        while not event.query():
            pass
        """
    )
    assert done.code == 0
    assert done.err.count("nobody has seen") == 1
    assert "index" in done.err


def test_an_error_that_was_seen_is_not_printed_again(run):
    done = run(
        """
        import torch
        y = torch.ones(3, device="loom")[torch.tensor([5], device="loom")]
        for _ in range(2):
            try:
                y.tolist()
            except IndexError:
                pass
        """
    )
    assert done.code == 0
    assert not done.err


def test_a_failed_value_does_not_reach_another_process():
    rows = bad_rows()
    with pytest.raises(IndexError):
        ForkingPickler.dumps(rows)


def test_each_thread_is_told_of_a_copy_to_pinned_memory_that_failed():
    rows = bad_rows()
    host = torch.full((2, 4), 5.0, pin_memory=True)
    others, told = [], []

    def wait_for(event: torch.loom.Event) -> None:
        try:
            event.synchronize()
        except IndexError:
            others.append("told")

    host.copy_(rows, non_blocking=True)
    copied = torch.loom.Event()
    copied.record()
    for _ in range(2):  # whoever else has been told first
        thread = threading.Thread(target=wait_for, args=(copied,))
        thread.start()
        thread.join()
    for _ in range(2):
        try:
            torch.loom.synchronize()
        except IndexError:
            told.append("told")
    assert others == ["told"] * 2
    assert told == ["told"]


def test_marks_go_with_the_memory():
    if os.environ.get("LOOM_MEMORY") == "isolated":
        pytest.skip("the same")
    torch.loom.synchronize()
    torch.loom.empty_cache()
    table = torch.ones(10, 1 << 21, device="loom")
    rows = torch.index_select(table, 0, torch.tensor([11], device="loom"))
    with pytest.raises(IndexError):
        rows.sum().item()
    place = rows.data_ptr()
    del rows
    torch.loom.empty_cache()
    fresh = torch.empty(1, 1 << 21, device="loom")
    assert fresh.data_ptr() == place
    fresh[0, :10] = 1
    assert fresh[0, :20].isfinite().any().item()
