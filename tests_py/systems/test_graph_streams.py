# SPDX-License-Identifier: BSD-3-Clause
"""Graphs of several streams and threads: they join, end with the process, share memory."""

import gc
import threading

import pytest
import torch

import torch_loom
from support.graphs import DEVICE, assert_same, capture, nothing_left  # noqa: F401
from support.profiles import BOTH, on_device

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


COPIES = {
    "pinned": lambda: torch.ones(20_000_000).pin_memory(),  # 80 MB, by address
    "staged": lambda: torch.ones(16384),  # 64 KiB, by value
}


@pytest.mark.parametrize("kind", COPIES)
def test_what_a_graph_keeps_does_not_hold_up_the_program(kind):
    # What queued commands hold is bounded (64 MiB); a graph's commands are not queued.
    source = COPIES[kind]()
    target = torch.empty(source.shape, device=DEVICE)
    copies = 1 if kind == "pinned" else 1100
    graph, _ = capture(lambda: [target.copy_(source, non_blocking=True) for _ in range(copies)])
    x = torch.zeros(1000, device=DEVICE)
    torch.loom.synchronize()
    hold = torch_loom._C._Hold(-1, 3.0)
    waits = torch.loom.host_waits()
    for _ in range(50):
        x = x + 1
        torch.loom.current_stream().record_event()  # each is a command of its own
    assert torch.loom.host_waits() == waits
    hold.release()
    assert x.sum().item() == 50_000
    graph.reset()


def test_programs_that_a_graph_keeps_do_not_hold_up_the_program():
    x = torch.zeros(8, device=DEVICE)

    def programs():
        for _ in range(8300):  # 8 KB each
            x.add_(1)
            torch.loom.current_stream().record_event()

    graph, _ = capture(programs)
    torch.loom.synchronize()
    hold = torch_loom._C._Hold(-1, 3.0)
    waits = torch.loom.host_waits()
    y = x + 1
    torch.loom.current_stream().record_event()
    z = y + 1
    assert torch.loom.host_waits() == waits
    hold.release()
    assert z.sum().item() == 16
    graph.reset()


def test_a_worker_does_not_free_what_belongs_to_python(check):
    # The graph goes with its last replay, on a worker, while this thread keeps the GIL: whoever
    # frees the memory of numpy wants it.
    check(
        """
        import gc, threading, torch, torch_loom
        pinned = torch.ones(100_000).pin_memory()
        freed = []

        class Owner:
            def __init__(self, tensor):
                self.tensor = tensor
                self.__array_interface__ = tensor.numpy().__array_interface__

            def __del__(self):
                freed.append(threading.current_thread() is threading.main_thread())

        import numpy
        source = torch.from_numpy(numpy.asarray(Owner(pinned)))
        assert source.is_pinned()
        target = torch.empty(100_000, device="loom")
        graph = torch.loom.Graph()
        with torch.loom.graph(graph):
            target.copy_(source, non_blocking=True)
        hold = torch_loom._C._Hold(-1, 60.0)
        graph.replay()
        del graph, source
        gc.collect()
        event = torch.loom.Event()
        event.record()
        hold.release()
        while not event.query():
            pass
        torch.loom.synchronize()
        assert target.sum().item() == 100_000
        gc.collect()
        assert freed == [True], freed
        """
    )
