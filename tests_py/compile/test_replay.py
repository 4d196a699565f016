# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile(mode="reduce-overhead"), and compiled functions inside graphs of the user's."""

import copy
import gc
import threading

import pytest
import torch
from compile_support import assert_equal
from torch import nn

from torch_loom import _C
from torch_loom.inductor import replay as module

MODE = "reduce-overhead"


@pytest.fixture
def captures(monkeypatch):
    """The captures that are made."""
    made = []
    original = module._Capture.__init__

    def note(self, *args):
        original(self, *args)
        made.append(self)

    monkeypatch.setattr(module._Capture, "__init__", note)
    return made


def test_inference_is_replayed(captures, replays):
    model = nn.Sequential(nn.Linear(20, 30), nn.GELU(), nn.Linear(30, 5)).eval()
    on_loom = torch.compile(copy.deepcopy(model).to("loom"), mode=MODE, fullgraph=True)
    with torch.no_grad():
        for _ in range(8):
            x = torch.randn(4, 20)
            assert_equal(on_loom(x.to("loom")), model(x), rtol=1e-4, atol=1e-5)
    assert len(replays) >= 3
    assert len(captures) <= 4


def test_a_result_that_is_kept_stays_as_it_is(replays):
    function = torch.compile(lambda x: x * 2 + 1, mode=MODE, fullgraph=True)
    inputs = [torch.randn(200, 200) for _ in range(12)]  # more than what is copied
    kept = [function(x.to("loom")) for x in inputs]
    assert replays
    for x, result in zip(inputs, kept, strict=True):
        assert_equal(result, x * 2 + 1)


def test_a_view_keeps_a_result_as_it_is(replays):
    function = torch.compile(lambda x: (x * 2, x.sum()), mode=MODE, fullgraph=True)
    inputs = [torch.randn(300, 100) for _ in range(10)]
    kept = [function(x.to("loom"))[0][5:7].t() for x in inputs]
    assert replays
    for x, view in zip(inputs, kept, strict=True):
        assert_equal(view, (x * 2)[5:7].t())


def test_a_replay_on_another_stream_waits_for_readers_of_the_last_result(replays):
    function = torch.compile(lambda x: x * 2, mode=MODE, fullgraph=True)
    x = torch.ones(200, 200, device="loom")
    for _ in range(3):
        result = function(x)
    other, side = x * 5, torch.loom.Stream()
    torch.loom.synchronize()
    hold = _C._Hold(0, 20)
    read = result + 1  # not before the hold is released
    del result
    with torch.loom.stream(side):
        x.copy_(other)
        function(x)
    assert not side.query()
    hold.release()
    torch.loom.synchronize()
    assert len({id(capture) for capture in replays}) == 1
    assert_equal(read, torch.full((200, 200), 3.0))


def test_a_capture_is_dropped_while_its_replay_is_queued_on_another_stream(replays):
    function = torch.compile(lambda x: x * 2, mode=MODE, fullgraph=True)
    inputs = [torch.ones(300, 300, device="loom") for _ in range(4)]  # each at a place of its own
    for x in inputs:
        function(x)
    side = torch.loom.Stream()
    torch.loom.synchronize()
    with torch.loom.stream(side):
        hold = _C._Hold(0, 20)
        result = function(inputs[0])
    assert len(replays) == 3
    replays.clear()
    del function
    torch._dynamo.reset()
    gc.collect()
    later = [torch.full((300, 300), 7.0, device="loom") for _ in range(40)]
    torch.loom.current_stream().synchronize()
    assert not side.query()
    hold.release()
    torch.loom.synchronize()
    assert_equal(result, torch.full((300, 300), 2.0))
    assert_equal(later, [torch.full((300, 300), 7.0)] * 40)


@pytest.mark.parametrize("numbers", [(-1, -2), (2**61 - 1, 0)])  # of equal hashes
def test_numbers_are_told_apart(numbers, replays):
    function = torch.compile(lambda x, n: x + n, mode=MODE, fullgraph=True, dynamic=True)
    x = torch.ones(4, dtype=torch.int64, device="loom")
    for n in (5, 7, *(n for n in numbers for _ in range(4))):
        assert_equal(function(x, n), torch.ones(4, dtype=torch.int64) + n)
    assert replays


def test_another_thread_does_not_replay_at_the_same_time(monkeypatch, replays):
    function = torch.compile(lambda x: x * 2 + 1, mode=MODE, fullgraph=True)
    kept = [torch.full((5,), float(i), device="loom") for i in range(4)]  # at places of their own
    for x in kept:
        function(x)
    x, y = torch.full((5,), 30.0, device="loom"), torch.full((5,), 40.0, device="loom")
    results = {}

    def interrupted(original):
        """Another thread calls the function while a capture is this call's."""

        def call(self, inputs):
            if threading.current_thread() is threading.main_thread():
                other = threading.Thread(target=lambda: results.update(other=function(y)))
                other.start()
                other.join()
            return original(self, inputs)

        return call

    monkeypatch.setattr(module._Capture, "again", interrupted(module._Capture.again))
    before = len(replays)
    results["this"] = function(x)
    assert len(replays) == before + 1
    assert_equal(results, {"this": torch.full((5,), 61.0), "other": torch.full((5,), 81.0)})


def test_inputs_that_are_handed_through():
    function = torch.compile(lambda x, y: (x, y + 1, x[1:]), mode=MODE, fullgraph=True)
    kept = []
    for i in range(8):
        x = torch.full((100,), float(i), device="loom")
        kept.append(function(x, x * 2))
    for i, (x, y, rest) in enumerate(kept):
        assert_equal((x, y, rest), tuple(torch.full((n,), v) for n, v in _expected(i)))


def _expected(i):
    return ((100, float(i)), (100, 2.0 * i + 1), (99, float(i)))


def test_an_input_of_the_host_that_nothing_reads(replays):
    def double(x, host):
        (x + 1).copy_(host)
        return x * 2

    function = torch.compile(double, mode=MODE, fullgraph=True)
    hosts = [torch.ones(()) for _ in range(5)]  # each at a place of its own
    for host in hosts:
        x = torch.randn(30)
        assert_equal(function(x.to("loom"), host), x * 2)
    assert replays


def test_training_steps_are_replayed(replays):
    model = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.Tanh(), nn.Linear(64, 3))
    on_loom = copy.deepcopy(model).to("loom")
    compiled = torch.compile(on_loom, mode=MODE, fullgraph=True)
    x = torch.randn(32, 20)
    losses = {"cpu": [], "loom": []}
    for name, forward, m, data in (
        ("cpu", model, model, x),
        ("loom", compiled, on_loom, x.to("loom")),
    ):
        optimizer = torch.optim.SGD(m.parameters(), 0.1)
        for _ in range(12):
            optimizer.zero_grad()
            loss = forward(data).square().mean()
            loss.backward()
            optimizer.step()
            losses[name].append(loss.detach())
    assert len(replays) > 8
    assert_equal(torch.stack(losses["loom"]), torch.stack(losses["cpu"]), rtol=1e-3, atol=1e-4)
    assert_equal(dict(on_loom.state_dict()), dict(model.state_dict()), rtol=1e-3, atol=1e-4)


def test_two_forwards_before_the_backwards(replays):
    model = nn.Sequential(nn.Linear(50, 2000), nn.Tanh(), nn.Linear(2000, 5))
    on_loom = copy.deepcopy(model).to("loom")
    compiled = torch.compile(on_loom, mode=MODE, fullgraph=True)
    batches = [torch.randn(64, 50) for _ in range(3)]
    for _ in range(6):
        for m, forward, device in ((model, model, "cpu"), (on_loom, compiled, "loom")):
            m.zero_grad()
            losses = [forward(x.to(device)).square().sum() for x in batches]
            sum(losses).backward()
    assert replays
    for ours, theirs in zip(on_loom.parameters(), model.parameters(), strict=True):
        assert_equal(ours.grad, theirs.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("cpp", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_gradient_that_could_be_written_over_a_saved_tensor(cpp, replays):
    def function(x, n):  # the cosine that is saved is nobody else's
        return torch.sin(x.sum(0) - n).exp()

    options = {"triton.cudagraphs": True, "graph_partition": False, "cpp_wrapper": cpp}
    compiled = torch.compile(function, options=options, fullgraph=True, dynamic=True)
    kept = []  # so that what is saved moves
    for i in range(7):
        gradients = []
        for f, device in ((function, "cpu"), (compiled, "loom")):
            x = torch.full((1,), 0.5 * i, device=device, requires_grad=True)
            result = f(x, torch.tensor(1.0, device=device))
            gradients += torch.autograd.grad(result, [x], torch.full_like(result, 3.0 + i))
        assert_equal(gradients[1], gradients[0], rtol=1e-5, atol=1e-6)
        kept += gradients
    assert len(replays) > 5


def test_random_numbers_differ_between_replays(replays):
    function = torch.compile(lambda x: x + torch.rand_like(x), mode=MODE, fullgraph=True)
    x = torch.zeros(100, device="loom")
    results = {tuple(function(x).tolist()) for _ in range(9)}
    assert replays
    assert len(results) == 9


def test_a_buffer_that_the_graph_writes(replays):
    def count(x, total):
        total += x.sum()
        return total * 2

    function = torch.compile(count, mode=MODE, fullgraph=True)
    x, total = torch.ones(10, device="loom"), torch.zeros((), device="loom")
    for i in range(1, 9):
        assert function(x, total).item() == 20 * i
    assert replays
    assert total.item() == 80


def test_what_cannot_be_replayed_is_run():
    def function(x, number):
        return x * number

    compiled = torch.compile(function, mode=MODE, fullgraph=True)
    x = torch.randn(10)
    for i in range(6):
        number = torch.tensor(float(i))  # of the host: a capture would keep the first one
        assert_equal(compiled(x.to("loom"), number), function(x, number))


def test_a_compiled_function_in_a_graph_of_the_users():
    function = torch.compile(lambda x: (x.sin() * 2).sum(0), fullgraph=True)
    x = torch.randn(100, 50, device="loom")
    function(x)
    torch.loom.synchronize()
    graph = torch.loom.Graph()
    with torch.loom.graph(graph):
        result = function(x)
    for _ in range(3):
        fresh = torch.randn(100, 50)
        x.copy_(fresh)
        graph.replay()
        assert_equal(result, (fresh.sin() * 2).sum(0), rtol=1e-4, atol=1e-5)


def test_replays_on_the_second_device(replays):
    function = torch.compile(lambda x: x.sin() * 2, mode=MODE, fullgraph=True)
    for _ in range(6):
        x = torch.randn(300, 100)
        result = function(x.to("loom:1"))
        assert result.device == torch.device("loom", 1)
        assert_equal(result, x.sin() * 2)
    assert replays
    assert torch.loom.current_device() == 0
