# SPDX-License-Identifier: BSD-3-Clause
"""Streams and events: order within a stream, order between streams, time."""

import threading

import pytest
import torch

N = 1 << 18


def busy(stream, rounds=20):
    """Put some milliseconds of work on a stream and return its result."""
    with torch.loom.stream(stream):
        x = torch.full((256, 256), 1.0 / 256, device=stream.device)
        y = torch.ones(256, 256, device=stream.device)
        for _ in range(rounds):
            y = y @ x
    return y


def test_default_stream_is_current_at_first():
    assert torch.loom.current_stream() == torch.loom.default_stream()
    assert torch.loom.current_stream(1).device == torch.device("loom", 1)
    assert isinstance(torch.loom.current_stream(), torch.loom.Stream)
    assert isinstance(torch.loom.current_stream(), torch.Stream)


def test_streams_of_the_pool_differ():
    streams = {torch.loom.Stream() for _ in range(32)}
    assert len(streams) == 32
    assert torch.loom.default_stream() not in streams


def test_stream_context_brings_stream_and_device_back():
    torch.loom.set_device(0)
    side = torch.loom.Stream(device=1)
    before = torch.loom.current_stream(1)
    with torch.loom.stream(side):
        assert torch.loom.current_device() == 1
        assert torch.loom.current_stream() == side
        assert torch.loom.current_stream(0) == torch.loom.default_stream(0)
    assert torch.loom.current_device() == 0
    assert torch.loom.current_stream(1) == before
    with torch.loom.stream(None):
        assert torch.loom.current_stream() == torch.loom.default_stream()


def test_a_stream_is_a_context_manager_itself():
    side = torch.loom.Stream()
    with side:
        assert torch.loom.current_stream() == side
    assert torch.loom.current_stream() == torch.loom.default_stream()


def test_current_stream_belongs_to_the_thread():
    side = torch.loom.Stream()
    seen = []
    with torch.loom.stream(side):
        thread = threading.Thread(target=lambda: seen.append(torch.loom.current_stream()))
        thread.start()
        thread.join()
    assert seen == [torch.loom.default_stream()]


def test_priorities():
    low, high = torch.loom.Stream.priority_range()
    assert (low, high) == (0, -1)
    assert torch.loom.Stream(priority=-1).priority == -1
    assert torch.loom.Stream(priority=-7).priority == -1
    assert torch.loom.Stream(priority=3).priority == 0
    assert torch.loom.default_stream().priority == 0


def test_work_on_one_stream_runs_in_order():
    x = torch.zeros(N, device="loom")
    for step in range(100):
        x.mul_(2).add_(step % 3)
    expected = torch.zeros(1, dtype=torch.float32)
    for step in range(100):
        expected.mul_(2).add_(step % 3)
    assert torch.equal(x.cpu(), expected.expand(N))


@pytest.mark.parametrize("order", ["wait_stream", "wait_event", "event.wait"])
def test_another_stream_waits_where_told(order):
    first, second = torch.loom.Stream(), torch.loom.Stream()
    for _ in range(10):
        x = torch.zeros(N, device="loom")
        first.wait_stream(torch.loom.current_stream())
        busy(first)
        with torch.loom.stream(first):
            x.fill_(3)
        if order == "wait_stream":
            second.wait_stream(first)
        elif order == "wait_event":
            second.wait_event(first.record_event())
        else:
            first.record_event().wait(second)
        with torch.loom.stream(second):
            y = x + 1
        second.synchronize()
        assert torch.equal(y.cpu(), torch.full((N,), 4.0))


def test_streams_of_two_devices_wait_for_each_other():
    first, second = torch.loom.Stream(0), torch.loom.Stream(1)
    busy(first)
    with torch.loom.stream(first):
        x = torch.full((N,), 5.0, device="loom:0")
    second.wait_event(first.record_event())
    with torch.loom.stream(second):
        y = x.to("loom:1", non_blocking=True) * 2
    second.synchronize()
    assert torch.equal(y.cpu(), torch.full((N,), 10.0))


def test_query_tells_whether_work_is_left():
    stream = torch.loom.Stream()
    assert stream.query()
    busy(stream)
    stream.synchronize()
    assert stream.query()


def test_an_event_never_recorded_is_complete():
    event = torch.loom.Event()
    assert event.query()
    event.synchronize()
    event.wait(torch.loom.Stream())


def test_an_event_covers_what_was_submitted_before_it():
    stream = torch.loom.Stream()
    y = busy(stream)
    event = stream.record_event()
    assert isinstance(event, torch.loom.Event)
    event.synchronize()
    assert event.query()
    assert torch.allclose(y.cpu(), torch.ones(256, 256), atol=1e-3)


def test_recording_again_moves_the_mark():
    stream = torch.loom.Stream()
    event = torch.loom.Event()
    event.record(stream)
    busy(stream)
    event.record(stream)
    event.synchronize()
    assert stream.query()


def test_elapsed_time_is_in_milliseconds():
    stream = torch.loom.Stream()
    start, end = (torch.loom.Event(enable_timing=True) for _ in range(2))
    clock_start, clock_end = (torch.Event("loom", enable_timing=True) for _ in range(2))
    start.record(stream)
    clock_start.record(stream)
    busy(stream, 200)
    clock_end.record(stream)
    end.record(stream)
    stream.synchronize()
    inner, outer = clock_start.elapsed_time(clock_end), start.elapsed_time(end)
    # 200 products of 256x256 are 6.7 GFLOP: between a millisecond and minutes on any host.
    assert 1.0 < inner <= outer < 120_000.0


def test_elapsed_time_needs_timing():
    a, b = torch.loom.Event(), torch.loom.Event()
    a.record()
    b.record()
    torch.loom.synchronize()
    with pytest.raises((RuntimeError, ValueError), match="timing"):
        a.elapsed_time(b)


def test_an_event_of_another_device_is_not_recorded():
    event = torch.loom.Event(device="loom:0")
    event.record(torch.loom.Stream(0))
    with pytest.raises(RuntimeError, match="device"):
        event.record(torch.loom.Stream(1))


def test_interprocess_events_are_refused():
    with pytest.raises(ValueError, match="interprocess"):
        torch.loom.Event(interprocess=True)


def test_streams_compare_and_hash_by_identity():
    stream = torch.loom.Stream()
    with stream:
        again = torch.loom.current_stream()
    assert again == stream
    assert hash(again) == hash(stream)
    assert again != torch.loom.Stream()
    assert "loom:0" in repr(stream).replace("index=", "") or "index=0" in repr(stream)


def test_synchronize_waits_for_all_streams():
    streams = [torch.loom.Stream() for _ in range(4)]
    results = [busy(stream) for stream in streams]
    torch.loom.synchronize()
    assert all(stream.query() for stream in streams)
    for result in results:
        assert torch.allclose(result.cpu(), torch.ones(256, 256), atol=1e-3)


def test_memory_of_another_stream_is_kept_until_it_has_passed():
    """Without record_stream the block would be taken and overwritten while `side` still reads."""
    side = torch.loom.Stream()
    for _ in range(20):
        x = torch.full((N,), 7.0, device="loom")
        side.wait_stream(torch.loom.current_stream())
        busy(side)
        with torch.loom.stream(side):
            y = x * 2
        x.record_stream(side)
        del x
        torch.full((N,), -1.0, device="loom")
        side.synchronize()
        assert torch.equal(y.cpu(), torch.full((N,), 14.0))


@pytest.mark.parametrize("view", ["conjugated", "negated", "conjugated and negated"])
def test_memory_of_a_lazy_view_is_kept_until_another_stream_has_passed(view):
    side = torch.loom.Stream()
    for _ in range(20):
        x = torch.full((N,), 7 + 3j, device="loom")
        lazy = {"conjugated": x.conj(), "negated": x.conj().imag}.get(view, x.conj()._neg_view())
        assert lazy.is_conj() == view.startswith("conj")
        assert lazy.is_neg() == view.endswith("negated")
        expected = lazy[0].item() * 2
        side.wait_stream(torch.loom.current_stream())
        busy(side)
        with torch.loom.stream(side):
            y = lazy * 2
        lazy.record_stream(side)
        del x, lazy
        torch.full((N,), -1.0 + 0j, device="loom")
        side.synchronize()
        assert y.eq(expected).all()


def test_a_dropped_tensor_may_still_be_in_use_by_its_own_stream():
    results = []
    for value in range(50):
        x = torch.full((N,), float(value), device="loom")
        results.append((x * 2).sum())
        del x
    assert [r.item() for r in results] == [2.0 * value * N for value in range(50)]


def test_backward_runs_on_the_streams_of_forward():
    side = torch.loom.Stream()
    x = torch.randn(64, 64, device="loom", requires_grad=True)
    side.wait_stream(torch.loom.current_stream())
    with torch.loom.stream(side):
        loss = (x @ x).relu().sum()
    torch.loom.current_stream().wait_stream(side)
    loss.backward()
    y = x.detach().cpu().requires_grad_()
    (y @ y).relu().sum().backward()
    torch.testing.assert_close(x.grad.cpu(), y.grad)


def test_capturing_is_off():
    assert not torch.loom.is_current_stream_capturing()


def test_threads_submit_side_by_side():
    results = {}

    def work(index):
        with torch.loom.stream(torch.loom.Stream()):
            x = torch.full((N,), float(index), device="loom")
            for _ in range(50):
                x = x + 1
            results[index] = x.sum().item()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {index: (index + 50.0) * N for index in range(8)}
