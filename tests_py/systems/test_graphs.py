# SPDX-License-Identifier: BSD-3-Clause
"""Graphs: capture and replay of inference and training, random numbers, memory, refusals."""

import copy
import gc
import threading

import pytest
import torch
from torch import nn

import torch_loom
from support.profiles import BOTH, on_device

DEVICE = "loom"


@pytest.fixture(autouse=True)
def nothing_left():
    """Each test ends with no capture and no error under way."""
    yield
    assert not torch.loom.is_current_stream_capturing()
    torch.accelerator.synchronize()


def capture(function, **kwargs):
    """Capture a call on a stream of its own; return the graph and what the call returned."""
    graph = torch.loom.Graph()
    with torch.loom.graph(graph, **kwargs):
        result = function()
    return graph, result


def make_mlp(width=32, dropout=0.0):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(16, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 8)
    ).to(DEVICE)


def assert_same(left, right):
    torch.testing.assert_close(left, right, rtol=0, atol=0)


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


# Streams, threads, processes


def test_streams_that_wait_for_a_captured_event_join():
    x = torch.zeros(1000, device=DEVICE)
    side, graph = torch.loom.Stream(), torch.loom.Graph()
    with torch.loom.graph(graph):
        main = torch.loom.current_stream()
        x += 1
        side.wait_stream(main)
        with torch.loom.stream(side):
            y = x * 2
        assert side.is_capturing()
        main.wait_stream(side)
        z = y + 1
    assert not side.is_capturing()
    for count in (1, 2):
        graph.replay()
        assert_same(z.cpu(), torch.full((1000,), 2.0 * count + 1))


def test_a_wait_for_work_outside_of_the_capture_is_refused():
    event = torch.loom.Stream().record_event()
    with pytest.raises(RuntimeError, match="the event was not recorded in the capture"):
        capture(lambda: torch.loom.current_stream().wait_event(event))


def test_a_captured_event_is_no_event_of_a_stream():
    _, event = capture(lambda: torch.loom.current_stream().record_event())
    for use in (event.synchronize, event.query, event.wait):
        with pytest.raises(RuntimeError, match=r"marks a place in (the|a) graph"):
            use()


def test_replays_on_two_streams_run_one_after_the_other():
    x = torch.zeros(1, device=DEVICE)

    def chain():
        for _ in range(50):
            x.add_(1)

    graph, _ = capture(chain)
    streams = [torch.loom.Stream() for _ in range(2)]
    for turn in range(20):
        with torch.loom.stream(streams[turn % 2]):
            graph.replay()
    torch.accelerator.synchronize()
    assert x.item() == 1000


def test_threads_capture_and_replay_beside_each_other():
    failures = []
    barrier = threading.Barrier(3)

    def work(seed):
        try:
            x = torch.full((64, 64), float(seed), device=DEVICE)
            stream, graph = torch.loom.Stream(), torch.accelerator.Graph()
            stream.wait_stream(torch.loom.current_stream())
            barrier.wait()
            for _ in range(5):
                with torch.loom.stream(stream):
                    graph.capture_begin()
                    y = (x @ x).relu().sum()
                    graph.capture_end()
                    for _ in range(10):
                        graph.replay()
                    assert y.item() == 64.0**3 * seed * seed
                graph.reset()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_another_thread_works_while_one_captures():
    x, graph = torch.zeros(4, device=DEVICE), torch.loom.Graph()
    seen = []

    def work():
        y = torch.ones(100, device=DEVICE).sum()
        torch.accelerator.synchronize()
        seen.append(y.item())

    with torch.loom.graph(graph):
        x += 1
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        x += 1
    assert seen == [100]
    graph.replay()
    assert x.sum().item() == 8


def test_a_graph_within_a_graph():
    x = torch.zeros(4, device=DEVICE)
    inner, noise = capture(lambda: torch.rand(4, device=DEVICE) + x.add_(1))

    def twice():
        inner.replay()
        first = noise.clone()
        inner.replay()
        return first, noise.clone()

    outer, (first, second) = capture(twice)
    torch.manual_seed(3)
    outer.replay()
    torch.manual_seed(3)
    expected = [torch.rand(4, device=DEVICE) + number for number in (1, 2)]
    assert_same(torch.stack([first, second]), torch.stack(expected))


def test_a_graph_dropped_while_its_replay_is_queued_still_runs():
    x, one = torch.zeros(256, 256, device=DEVICE), torch.eye(256, device=DEVICE)

    def chain():
        y = one.clone()
        for _ in range(100):
            y = y @ y
        x.add_(y)

    graph, _ = capture(chain)
    for _ in range(3):
        graph.replay()
    del graph
    gc.collect()
    torch.accelerator.empty_cache()
    assert x.sum().item() == 3 * 256


def test_exit_with_replays_queued(run):
    done = run("""
        import torch
        x = torch.eye(512, device="loom")
        graph = torch.accelerator.Graph()
        with graph:
            for _ in range(500):
                x = x @ x
        for _ in range(100):
            graph.replay()
    """)
    assert (done.code, done.err) == (0, "")


def test_exit_in_the_middle_of_a_capture(run):
    done = run("""
        import torch
        x = torch.ones(4, device="loom")
        graph = torch.accelerator.Graph()
        graph.capture_begin()
        x += 1
    """)
    assert (done.code, done.err) == (0, "")


def test_a_forked_child_cannot_use_a_graph_and_ends_cleanly(run):
    done = run("""
        import os, torch
        x = torch.ones(4, device="loom")
        graph = torch.accelerator.Graph()
        with graph:
            x += 1
        graph.replay()
        pid = os.fork()
        if pid == 0:
            for use in (graph.replay, torch.accelerator.Graph().capture_begin):
                try:
                    use()
                except RuntimeError as error:
                    assert "forked subprocess" in str(error), error
                else:
                    os._exit(3)
            del graph
            raise SystemExit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        graph.replay()
        assert x.sum().item() == 12
    """)
    assert done.code == 0, done.err


def test_launch_blocking(run):
    done = run(
        """
        import torch
        table = torch.arange(4.0, device="loom")
        index = torch.zeros(2, dtype=torch.long, device="loom")
        graph = torch.accelerator.Graph()
        with graph:
            rows = table.index_select(0, index)
        graph.replay()
        assert rows.tolist() == [0, 0]
        index.fill_(9)
        try:
            graph.replay()
        except IndexError as error:
            assert "index_select" in str(error), error
        else:
            raise SystemExit("no error")
        """,
        LOOM_LAUNCH_BLOCKING="1",
    )
    assert done.code == 0, done.err


# Memory


def test_memory_of_a_graph_is_counted_kept_and_given_back():
    torch.accelerator.synchronize()
    gc.collect()
    torch.loom.empty_cache()
    x = torch.zeros(1 << 20, device=DEVICE)
    allocated, reserved = torch.loom.memory_allocated(), torch.loom.memory_reserved()
    graph, y = capture(lambda: ((x + 1) * 2) - 3)
    assert torch.loom.memory_allocated() == allocated + (4 << 20)  # the result
    held = torch.loom.memory_reserved()
    assert held >= reserved + (8 << 20)  # and the intermediate ones
    del y
    torch.loom.empty_cache()
    assert torch.loom.memory_reserved() == held  # replays write there
    graph.replay()
    torch.accelerator.synchronize()
    graph.reset()
    torch.loom.empty_cache()
    assert torch.loom.memory_allocated() == allocated
    assert torch.loom.memory_reserved() == reserved


def test_eager_work_never_gets_a_graphs_memory():
    x = torch.ones(1 << 18, device=DEVICE)
    stream = torch.loom.Stream()
    graph, y = capture(lambda: (x + 1) * 2, stream=stream)
    with torch.loom.stream(stream):
        others = [torch.full((1 << 18,), 7.0, device=DEVICE) for _ in range(8)]
        graph.replay()
        assert all(other.eq(7).all().item() for other in others)
        assert y.eq(4).all().item()


@pytest.mark.parametrize("way", ["handle", "graph"])
def test_graphs_share_a_pool(way):
    x = torch.ones(1 << 20, device=DEVICE)
    torch.loom.empty_cache()
    pool = torch.loom.graph_pool_handle() if way == "handle" else None
    first, a = capture(lambda: (x + 1).mul(2).sum(), pool=pool)
    reserved = torch.loom.memory_reserved()
    second, b = capture(lambda: (x + 2).mul(2).sum(), pool=first.pool())
    assert second.pool() == first.pool()
    assert torch.loom.memory_reserved() == reserved
    for graph in (first, second):
        graph.replay()
    assert (a.item(), b.item()) == (4 << 20, 6 << 20)
    first.reset()
    torch.loom.empty_cache()
    second.replay()
    assert b.item() == 6 << 20


def test_a_graph_is_captured_again_after_a_reset():
    graph, x = torch.loom.Graph(), torch.ones(4, device=DEVICE)
    for factor in (2, 3):
        with torch.loom.graph(graph):
            y = x * factor
        graph.replay()
        assert y.sum().item() == 4 * factor
        graph.reset()


def test_small_host_tensors_are_captured_by_value_and_pinned_ones_by_address():
    small = torch.arange(4.0)
    pinned = torch.zeros(100_000).pin_memory()
    x = torch.zeros(100_000, device=DEVICE)

    def copies():
        y = small.to(DEVICE)
        x.copy_(pinned, non_blocking=True)
        back = torch.empty(100_000, pin_memory=True)
        back.copy_(x, non_blocking=True)
        return y, back

    graph, (y, back) = capture(copies)
    small.fill_(9)
    pinned.fill_(5)
    graph.replay()
    assert y.tolist() == [0, 1, 2, 3]
    assert back.eq(5).all()
    pinned = pinned.data_ptr()
    others = [torch.full((100_000,), 1.0).pin_memory() for _ in range(4)]
    assert pinned not in [other.data_ptr() for other in others]
    graph.replay()
    torch.accelerator.synchronize()
    assert back.eq(5).all()


def test_dump_lists_the_commands(tmp_path):
    x = torch.ones(4, device=DEVICE)
    graph, _ = capture(lambda: x.mul(2).cumsum(0).relu())
    graph.enable_debug_mode()
    graph.debug_dump(str(tmp_path / "graph.dot"))
    text = (tmp_path / "graph.dot").read_text()
    assert "mul" in text
    assert "relu" in text
    assert "n0 -> n1" in text


def test_a_profile_shows_the_commands_of_a_replay():
    x = torch.ones(64, 64, device=DEVICE)
    graph, _ = capture(lambda: (x @ x).relu())
    with torch.profiler.profile(activities=BOTH) as profile:
        with torch.profiler.record_function("replayed"):
            graph.replay()
        torch.accelerator.synchronize()
    assert [event.name for event in on_device(profile)] == ["mm", "relu"]
    assert "replayed" in [event.key for event in profile.key_averages()]


# make_graphed_callables


def assert_trains_alike(graphed, eager, batches, accumulate=1, set_to_none=True):
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (graphed, eager)]
    for batch in batches:
        for model, optimizer in zip((graphed, eager), optimizers, strict=True):
            optimizer.zero_grad(set_to_none=set_to_none)
            for part in range(accumulate):
                model(batch + part).square().sum().backward()
            optimizer.step()
        for ours, theirs in zip(graphed.parameters(), eager.parameters(), strict=True):
            assert_same(ours.grad, theirs.grad)
            assert_same(ours, theirs)


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_graphed_module_trains_as_the_eager_one(accumulate, set_to_none):
    model = make_mlp()
    eager = copy.deepcopy(model)
    graphed = torch_loom.make_graphed_callables(model, (torch.randn(4, 16, device=DEVICE),))
    assert graphed is model
    batches = [torch.randn(4, 16, device=DEVICE) for _ in range(4)]
    assert_trains_alike(graphed, eager, batches, accumulate, set_to_none)


def test_a_part_of_a_network_is_graphed():
    body, head = make_mlp(), nn.Linear(8, 3).to(DEVICE)
    first = nn.Linear(16, 16).to(DEVICE)
    eager = copy.deepcopy(nn.Sequential(first, body, head))
    sample = torch.randn(4, 16, device=DEVICE, requires_grad=True)
    graphed = nn.Sequential(first, torch.loom.make_graphed_callables(body, (sample,)), head)
    assert_trains_alike(graphed, eager, [torch.randn(4, 16, device=DEVICE) for _ in range(3)])


def test_several_callables_share_a_pool():
    parts = (make_mlp(), nn.Linear(8, 8).to(DEVICE))
    eager = copy.deepcopy(nn.Sequential(*parts))
    samples = (
        (torch.randn(4, 16, device=DEVICE),),
        (torch.randn(4, 8, device=DEVICE, requires_grad=True),),
    )
    graphed = nn.Sequential(*torch.loom.make_graphed_callables(parts, samples))
    assert_trains_alike(graphed, eager, [torch.randn(4, 16, device=DEVICE) for _ in range(3)])


def test_a_graphed_function_takes_and_returns_trees_and_integers():
    def function(pair, scale):
        total = pair["a"] * scale + pair["b"]
        return {"total": total, "best": total.argmax()}

    sample = {"a": torch.ones(3, device=DEVICE), "b": torch.ones(3, device=DEVICE)}
    scale = torch.ones(3, device=DEVICE, requires_grad=True)
    graphed = torch.loom.make_graphed_callables(function, (sample, scale))
    real = {"a": torch.tensor([1.0, 5, 2], device=DEVICE), "b": torch.zeros(3, device=DEVICE)}
    factor = torch.full((3,), 2.0, device=DEVICE, requires_grad=True)
    result = graphed(real, factor)
    assert result["total"].tolist() == [2, 10, 4]
    assert result["best"].item() == 1
    assert not result["best"].requires_grad
    result["total"].sum().backward()
    assert factor.grad.tolist() == [1, 5, 2]


def test_a_graphed_module_drops_out_anew_and_runs_eagerly_in_evaluation():
    model = make_mlp(dropout=0.5)
    x = torch.ones(4, 16, device=DEVICE)
    eager = copy.deepcopy(model).eval()
    torch.loom.make_graphed_callables(model, (x,))
    first, second = model(x).detach().cpu(), model(x).detach().cpu()
    assert not torch.equal(first, second)
    model.eval()
    assert_same(model(x), eager(x))


def test_graphed_callables_refuse_what_they_cannot_do():
    x = torch.ones(4, 16, device=DEVICE)
    hooked = make_mlp()
    hooked.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="without hooks"):
        torch.loom.make_graphed_callables(hooked, (x,))
    with pytest.raises(TypeError, match="tensors only"):
        torch.loom.make_graphed_callables(torch.add, (x, 1))
    with torch.autocast(DEVICE), pytest.raises(RuntimeError, match="cache_enabled=False"):
        torch.loom.make_graphed_callables(make_mlp(), (x,))
    with pytest.raises(RuntimeError, match="aten::nonzero"):
        torch.loom.make_graphed_callables(torch.nonzero, (x,))
    graphed = torch.loom.make_graphed_callables(make_mlp(), (x,))
    with pytest.raises(ValueError, match=r"shape \(4, 16\), got \(5, 16\)"):
        graphed(torch.ones(5, 16, device=DEVICE))
