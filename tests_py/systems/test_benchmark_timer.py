# SPDX-License-Identifier: BSD-3-Clause
"""torch.utils.benchmark: the timer waits for the device; compare and fuzz."""

import pickle
import timeit

import pytest
import torch
from torch.utils import benchmark
from torch.utils.benchmark import Compare, FuzzedParameter, FuzzedTensor, Fuzzer, Timer

LOOM = "loom"


@pytest.fixture
def device_work():
    """Work that outlasts the call which starts it, and what a user times it with."""
    a = torch.randn(700, 700, device=LOOM) / 40

    def queue():
        result = a
        for _ in range(10):
            result = result @ a
        return result

    torch.loom.synchronize()
    return queue


def pending():
    return not torch.loom.current_stream().query()


def once_of(tries, happens):
    """Whether it happens at least once: a busy host may hold up the caller, but not each time."""
    return any(happens() for _ in range(tries))


def idle_when_the_clock_is_read(timer):
    """A clock like the given one, which notes whether the device was idle at its readings."""
    notes = []

    def clock():
        now = timer()
        notes.append(not pending())
        return now

    return clock, notes


def test_work_is_still_pending_when_the_call_returns(device_work):
    def is_seen():
        device_work()
        return pending()

    assert once_of(10, is_seen)  # or nothing below would say anything


def test_the_clock_waits_for_the_device(device_work):
    device_work()
    benchmark.timer()
    assert not pending()


def test_the_clock_waits_for_every_stream(device_work):
    side = torch.loom.Stream()
    with torch.loom.stream(side):
        device_work()
    benchmark.timer()
    assert side.query()


def test_the_clock_waits_for_the_current_device_as_for_cuda():
    a = torch.randn(700, 700, device="loom:1") / 40
    other = torch.loom.current_stream(1)

    def goes_on():
        for _ in range(10):
            a @ a
        benchmark.timer()
        return not other.query()

    assert once_of(10, goes_on)
    with torch.loom.device(1):
        benchmark.timer()
    assert other.query()


def test_a_timer_reads_the_clock_when_all_work_is_done(device_work):
    clock, notes = idle_when_the_clock_is_read(benchmark.timer)
    Timer("work()", globals={"work": device_work}, timer=clock).timeit(2)
    assert len(notes) >= 4  # before and after a warm-up and the measurement
    assert all(notes)


def test_a_timer_with_the_clock_of_python_does_not_wait(device_work):
    clock, notes = idle_when_the_clock_is_read(timeit.default_timer)

    def finds_work():
        Timer("work()", globals={"work": device_work}, timer=clock).timeit(2)
        return not all(notes)

    assert once_of(10, finds_work)


def test_a_measurement_spans_the_time_of_the_device(device_work):
    """Events in the stream show that the time includes all kernels, whatever the machine does."""
    start, end = (torch.loom.Event(enable_timing=True) for _ in range(2))

    def between_events():
        start.record()
        device_work()
        end.record()

    measurement = Timer("work()", globals={"work": between_events}).timeit(1)
    end.synchronize()
    assert measurement.number_per_run == 1
    assert measurement.mean * 1e3 >= start.elapsed_time(end)


@pytest.mark.parametrize(
    "method", ["blocked_autorange", pytest.param("adaptive_autorange", marks=pytest.mark.thorough)]
)
def test_autorange(method):
    x = torch.ones(1000, device=LOOM)
    timer = Timer("y = x * 2 + 1", globals={"x": x}, label="double", num_threads=2)
    measurement = getattr(timer, method)(min_run_time=0.01)
    assert measurement.median > 0
    assert measurement.task_spec.label == "double"
    assert measurement.num_threads == 2
    assert pickle.loads(pickle.dumps(measurement)).times == measurement.times


def test_setup_runs_on_loom():
    timer = Timer("y.add_(1)", setup="y = torch.zeros(3, device='loom'); assert y.is_loom")
    assert timer.timeit(3).median > 0


def test_devices_are_compared_in_a_table():
    measurements = [
        Timer(
            "torch.mm(x, x)",
            globals={"x": torch.ones(size, size, device=device)},
            label="product",
            sub_label=f"{size} x {size}",
            description=device,
        ).timeit(3)
        for device in ("cpu", LOOM)
        for size in (8, 16)
    ]
    table = Compare(measurements)
    table.colorize()
    text = str(table)
    for word in ("product", "cpu", LOOM, "8 x 8", "16 x 16"):
        assert word in text


def test_a_fuzzer_makes_tensors_for_loom():
    fuzzer = Fuzzer(
        parameters=[
            FuzzedParameter("rows", 2, 9, "uniform"),
            FuzzedParameter("columns", 2, 9, "uniform"),
        ],
        tensors=[
            FuzzedTensor(name, size=("rows", "columns"), probability_contiguous=0.5, cuda=False)
            for name in ("x", "y")
        ],
        seed=3,
    )
    for tensors, _, values in fuzzer.take(5):
        mine = {name: t.to(LOOM) for name, t in tensors.items()}
        assert mine["x"].shape == (values["rows"], values["columns"])
        measurement = Timer("z = x * y", globals=mine).timeit(2)
        assert measurement.median > 0
        torch.testing.assert_close((mine["x"] * mine["y"]).cpu(), tensors["x"] * tensors["y"])


@pytest.mark.limit("C++ snippets cannot be timed: Timer refuses them wherever torch has a device")
def test_timing_of_snippets_in_cpp_is_refused():
    with pytest.raises(NotImplementedError, match="accelerator"):
        Timer("at::ones({3});", language="cpp").timeit(1)
