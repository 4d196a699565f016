# SPDX-License-Identifier: BSD-3-Clause
"""Graphs: capture and replay of inference and training, random numbers, refusals."""

import copy

import pytest
import torch
from torch import nn

from support.graphs import DEVICE, assert_same, capture, make_mlp, nothing_left  # noqa: F401


def test_replay_runs_on_what_the_inputs_hold_then():
    x = torch.zeros(1000, device=DEVICE)
    graph, y = capture(lambda: (x + 1).mul_(2).sum())
    for value in (1.0, -3.0):
        x.fill_(value)
        graph.replay()
        assert y.item() == 2000 * (value + 1)


def test_nothing_runs_at_the_capture():
    x = torch.zeros(4, device=DEVICE)
    graph, _ = capture(lambda: x.add_(1))
    assert x.sum().item() == 0
    graph.replay()
    graph.replay()
    assert x.tolist() == [2] * 4


def test_accelerator_graph_is_a_context_manager_of_its_own():
    x = torch.zeros(4, device=DEVICE)
    stream, graph = torch.Stream(DEVICE), torch.accelerator.Graph()
    with stream, graph:
        assert stream.is_capturing()
        assert torch.loom.is_current_stream_capturing()
        x += 1
    assert not stream.is_capturing()
    graph.replay()
    assert x.tolist() == [1] * 4


def test_the_default_stream_can_be_captured():
    x, graph = torch.zeros(4, device=DEVICE), torch.accelerator.Graph()
    with graph:
        x += 1
    graph.replay()
    assert x.tolist() == [1] * 4


def test_inference_equals_eager():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(128, 64),
        nn.LayerNorm(64),
        nn.Unflatten(1, (4, 16)),
        nn.TransformerEncoderLayer(16, 2, 32, batch_first=True),
    )
    model = model.to(DEVICE).eval()
    x = torch.randn(2, 3, 16, 16, device=DEVICE)
    with torch.no_grad():
        model(x)
        graph, y = capture(lambda: model(x))
        for _ in range(3):
            x.copy_(torch.randn(2, 3, 16, 16))
            graph.replay()
            assert_same(y.cpu(), model(x).cpu())


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "sgd fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, capturable=True),
    "adamw fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True, capturable=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_whole_training_step_equals_eager(name):
    model = make_mlp()
    twin = copy.deepcopy(model)
    optimizer, twins = OPTIMIZERS[name](model.parameters()), OPTIMIZERS[name](twin.parameters())
    x, target = torch.randn(4, 16, device=DEVICE), torch.randint(8, (4,), device=DEVICE)

    def step(model, optimizer):
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        step(model, optimizer)
        step(twin, twins)
    optimizer.zero_grad(set_to_none=True)
    graph, loss = capture(lambda: step(model, optimizer))
    for _ in range(4):
        x.copy_(torch.randn(4, 16))
        target.copy_(torch.randint(8, (4,)))
        graph.replay()
        assert_same(loss.detach(), step(twin, twins).detach())
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert_same(ours, theirs)


def test_an_optimizer_that_counts_on_the_host_is_refused():
    model = make_mlp()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 16, device=DEVICE)).sum().backward()
    with pytest.raises(RuntimeError, match="capturable=True"):
        capture(optimizer.step)


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_an_optimizer_that_cannot_count_on_the_device(device):
    """It has no setting for that: it steps outside captures, and is refused in one."""
    weight = torch.ones(4, 4, device=device, requires_grad=True)
    weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.Adafactor([weight])
    optimizer.step()
    assert weight.lt(1).all()
    if device != "cpu":
        with pytest.raises(RuntimeError, match="capturable=True"):
            capture(optimizer.step)


def test_a_transformer_is_trained_under_autocast():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True).to(DEVICE)
    twin = copy.deepcopy(layer)
    x = torch.randn(2, 8, 32, device=DEVICE)

    def gradients(model):
        for parameter in model.parameters():
            parameter.grad = None
        with torch.autocast(DEVICE, cache_enabled=False):
            loss = model(x).float().square().mean()
        loss.backward()
        return [p.grad for p in model.parameters()]

    gradients(layer)
    graph, captured = capture(lambda: gradients(layer))
    x.copy_(torch.randn(2, 8, 32))
    graph.replay()
    for ours, theirs in zip(captured, gradients(twin), strict=True):
        assert_same(ours, theirs)


# Random numbers


def test_each_replay_draws_new_numbers():
    graph, x = capture(lambda: torch.randn(100, device=DEVICE))
    seen = []
    for _ in range(3):
        graph.replay()
        seen.append(x.cpu())
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])


def random_step():
    x = torch.rand(1000, device=DEVICE)
    y = nn.functional.dropout(x, 0.5)
    return y + torch.randn(1000, device=DEVICE) + torch.randperm(1000, device=DEVICE)


def test_replays_draw_what_the_captured_code_would_have_drawn():
    torch.manual_seed(5)
    expected = [random_step().cpu(), random_step().cpu(), torch.rand(10, device=DEVICE).cpu()]
    graph, x = capture(random_step)
    torch.manual_seed(5)
    for wanted in expected[:2]:
        graph.replay()
        assert_same(x.cpu(), wanted)
    assert_same(torch.rand(10, device=DEVICE).cpu(), expected[2])


def test_a_capture_takes_no_numbers():
    torch.manual_seed(5)
    expected = torch.rand(10, device=DEVICE).cpu()
    torch.manual_seed(5)
    capture(random_step)
    assert_same(torch.rand(10, device=DEVICE).cpu(), expected)


def test_generators_of_ones_own():
    first, second = (torch.Generator(DEVICE).manual_seed(seed) for seed in (1, 2))

    def draw():
        a = torch.rand(8, device=DEVICE, generator=first)
        b = torch.rand(8, device=DEVICE, generator=second)
        return torch.stack([a, b, torch.rand(8, device=DEVICE, generator=first)])

    expected = [draw().cpu() for _ in range(2)]
    graph, x = capture(draw)
    first.manual_seed(1)
    second.manual_seed(2)
    for wanted in expected:
        graph.replay()
        assert_same(x.cpu(), wanted)


def test_dropout_in_training_and_its_gradient_use_one_mask():
    x = torch.ones(64, 64, device=DEVICE, requires_grad=True)

    def step():
        y = nn.functional.dropout(x, 0.5)
        return y, torch.autograd.grad(y.sum(), x)[0]

    step()
    graph, (y, grad) = capture(step)
    masks = []
    for _ in range(2):
        graph.replay()
        assert_same(y.detach(), grad)
        masks.append(grad.cpu())
    assert not torch.equal(*masks)


@pytest.mark.parametrize(
    "touch",
    [
        lambda: torch.loom.get_rng_state(),
        lambda: torch.manual_seed(1),
        lambda: torch.loom.set_rng_state(torch.zeros(16, dtype=torch.uint8)),
    ],
    ids=["get", "seed", "set"],
)
def test_the_state_of_a_generator_is_refused_in_a_capture(touch):
    torch.rand(1, device=DEVICE)
    with pytest.raises(RuntimeError, match="how often the graph is replayed"):
        capture(touch)


# What cannot be captured

REFUSED = {
    "item": (lambda x: x.sum().item(), "_local_scalar_dense"),
    "if": (lambda x: bool(x.sum() > 0), "_local_scalar_dense"),
    "nonzero": (lambda x: x.nonzero(), "aten::nonzero"),
    "mask": (lambda x: x[x > 0], "aten::nonzero"),
    "unique": (lambda x: x.unique(), "aten::_unique2"),
    "to host": (lambda x: x.cpu(), "aten::copy_.*pinned"),
    "from host": (lambda _: torch.zeros(100_000).to(DEVICE), "aten::copy_.*pinned"),
    "numpy": (lambda x: x.tolist(), "aten::copy_"),
    "other device": (lambda x: x.to("loom:1"), "aten::copy_.*another device"),
    "synchronize": (lambda _: torch.accelerator.synchronize(), "synchronize"),
    "stream synchronize": (lambda _: torch.loom.current_stream().synchronize(), "synchronize"),
    "stream query": (lambda _: torch.loom.current_stream().query(), "Stream.query"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_operator_and_the_reason_and_all_goes_on(name):
    refused, pattern = REFUSED[name]
    x = torch.ones(4, device=DEVICE)
    graph, stream = torch.loom.Graph(), torch.loom.Stream()
    with (
        pytest.raises(RuntimeError, match="the capture is invalid.*" + pattern) as caught,
        torch.loom.graph(graph, stream=stream),
    ):
        refused(x)
    first = caught.value.__context__
    assert "cannot be captured in a graph: " in str(first), first
    with pytest.raises(RuntimeError, match="expected a graph that has been captured"):
        graph.replay()
    # Stream and graph are as new.
    assert not stream.is_capturing()
    with torch.loom.stream(stream):
        assert x.add(1).sum().item() == 8
    with torch.loom.graph(graph, stream=stream):
        y = x * 3
    graph.replay()
    assert y.sum().item() == 12


def test_a_refusal_that_the_program_catches_still_makes_the_capture_invalid():
    x = torch.ones(4, device=DEVICE)

    def catch():
        with pytest.raises(RuntimeError, match=r"aten::nonzero cannot be captured.*host"):
            x.nonzero()

    with pytest.raises(RuntimeError, match=r"capture is invalid.*aten::nonzero"):
        capture(catch)


def test_an_exception_of_the_programs_own_leaves_a_graph_of_what_came_before():
    x, graph = torch.zeros(4, device=DEVICE), torch.loom.Graph()

    def fail():
        x.add_(1)
        raise KeyError

    with pytest.raises(KeyError), torch.loom.graph(graph):
        fail()
    graph.replay()
    assert x.sum().item() == 4


def test_a_missing_or_doubled_step_is_an_error():
    graph = torch.accelerator.Graph()
    for call, text in [
        (graph.capture_end, "capture_begin"),
        (graph.replay, "an empty one"),
        (graph.pool, "an empty one"),
        (graph.instantiate, "an empty one"),
    ]:
        with pytest.raises(RuntimeError, match=text):
            call()
    with torch.loom.graph(graph):
        with pytest.raises(RuntimeError, match="has been captured"):
            graph.capture_begin()
        with pytest.raises(RuntimeError, match="captured in another graph"):
            torch.accelerator.Graph().capture_begin()
    with pytest.raises(RuntimeError, match="keep_graph"):
        graph.instantiate()


def test_a_kept_graph_is_instantiated_by_its_first_replay_or_before():
    x = torch.zeros(4, device=DEVICE)
    for explicitly in (True, False):
        graph = torch.accelerator.Graph(keep_graph=True)
        with torch.loom.graph(graph):
            x += 1
        if explicitly:
            graph.instantiate()
            graph.instantiate()
        graph.replay()
    assert x.sum().item() == 8


def test_an_error_in_a_replay_names_its_operator_and_the_rest_runs():
    table, index = torch.arange(4.0, device=DEVICE), torch.zeros(2, dtype=torch.long, device=DEVICE)
    graph, (rows, count) = capture(lambda: (table.index_select(0, index), index + 1))
    index.fill_(9)
    graph.replay()
    with pytest.raises(IndexError, match=r"'index_select \(command 1 of 2 of a graph\)'"):
        torch.accelerator.synchronize()
    assert count.tolist() == [10, 10]
    index.fill_(3)
    graph.replay()
    assert rows.tolist() == [3, 3]
