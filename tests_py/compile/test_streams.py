# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile: streams and events inside compiled functions, with work held back around them."""

from collections.abc import Callable, Iterator

import pytest
import torch
from compile_support import assert_equal

from torch_loom import _C

pytestmark = pytest.mark.filterwarnings(
    "ignore:The AccumulateGrad node's stream does not match:UserWarning"
)

SECONDS = 20  # after which a held stream goes on, or a broken test would hang


@pytest.fixture
def side() -> torch.Stream:
    return torch.loom.Stream()


@pytest.fixture
def hold() -> Iterator[Callable[[torch.Stream], None]]:
    """Holds a stream back; the call without one lets all go on."""
    held = []

    def hold_or_release(stream=None):
        if stream is None:
            while held:
                held.pop().release()
            return
        with torch.loom.stream(stream):
            held.append(_C._Hold(0, SECONDS))

    yield hold_or_release
    hold_or_release()


def with_streams_of_loom(side):
    def function(x, w):
        side.wait_stream(torch.loom.current_stream())
        with torch.loom.stream(side):
            y = (x @ w).sin()
            z = y.sum(0)
        u = x.cos()
        torch.loom.current_stream().wait_stream(side)
        return u * y + z

    return function


def with_streams_of_the_accelerator(side):
    def function(x, w):
        current = torch.accelerator.current_stream()
        start = current.record_event()
        side.wait_event(start)
        with side:
            y = (x @ w).relu()
            done = side.record_event()
        z = x.exp()
        current.wait_event(done)
        return y * z

    return function


def with_streams_of_its_own(side):
    def function(x, w):
        inner, done = torch.loom.Stream(), torch.loom.Event()
        inner.wait_stream(torch.loom.current_stream())
        with torch.loom.stream(inner):
            y = x @ w
            done.record()
        done.wait()
        torch.loom.synchronize()
        return y * 2 + x

    return function


def with_generic_classes(side):
    def function(x, w):
        inner, done = torch.Stream(device="loom"), torch.Event(device="loom")
        inner.wait_stream(torch.accelerator.current_stream())
        with inner:
            y = (x * 2) @ w
            done.record()
        done.synchronize()
        return y - w

    return function


PROGRAMS = [
    with_streams_of_loom,
    with_streams_of_the_accelerator,
    with_streams_of_its_own,
    with_generic_classes,
]
every_program = pytest.mark.parametrize("program", PROGRAMS, ids=[p.__name__ for p in PROGRAMS])


@every_program
def test_programs_are_one_graph(program, side):
    function = program(side)
    x, w = torch.randn(2, 64, 64, device="loom")
    compiled = torch.compile(function, fullgraph=True)
    for _ in range(3):
        assert_equal(compiled(x, w), function(x, w))
    assert torch.loom.current_stream() == torch.loom.default_stream()


@every_program
def test_gradients(program, side):
    function = program(side)
    inputs = [torch.randn(64, 64, device="loom", requires_grad=True) for _ in range(2)]
    result = torch.compile(function, fullgraph=True)(*inputs)
    grad = torch.randn_like(result)
    gradients = torch.autograd.grad(result, inputs, grad)
    expected = torch.autograd.grad(function(*inputs), inputs, grad)
    assert_equal(gradients, expected, rtol=1e-4, atol=1e-4)


@every_program
def test_from_a_stream_of_the_caller(program, side, hold):
    function, outer = program(side), torch.loom.Stream()
    x, w = torch.randn(2, 64, 64, device="loom")
    expected = function(x, w)
    compiled = torch.compile(function, fullgraph=True)
    with torch.loom.stream(outer):
        compiled(x, w)
    torch.loom.synchronize()
    hold(torch.loom.default_stream())  # which nothing below waits for
    with torch.loom.stream(outer):
        if program in (with_streams_of_loom, with_streams_of_the_accelerator):
            result = compiled(x, w)
            outer.synchronize()
            assert not torch.loom.default_stream().query()
            hold()
        else:  # the host waits for the device
            hold()
            result = compiled(x, w)
            outer.synchronize()
    assert_equal(result, expected)


def test_an_event_covers_the_work_of_its_stream(side, hold):
    def function(x):
        side.wait_stream(torch.loom.current_stream())
        with torch.loom.stream(side):
            y = x.sin()
            done = side.record_event()
        return y, done

    x = torch.randn(1000, device="loom")
    compiled = torch.compile(function, fullgraph=True)
    compiled(x)
    torch.loom.synchronize()
    hold(torch.loom.current_stream())
    y, done = compiled(x)
    assert not done.query()
    other = torch.loom.Stream()
    other.wait_event(done)
    with torch.loom.stream(other):
        z = y + 1
    hold()
    other.synchronize()
    assert_equal(z, x.sin() + 1)


def test_a_graph_waits_for_what_is_on_its_side_streams(side, hold):
    def function(x):
        with torch.loom.stream(side):
            y = x * 2
            done = side.record_event()
        torch.loom.current_stream().wait_event(done)
        return y + 1

    x = torch.zeros(1000, device="loom")
    compiled = torch.compile(function, fullgraph=True)
    compiled(x)
    torch.loom.synchronize()
    hold(side)
    with torch.loom.stream(side):
        x.fill_(3)
    y = compiled(x)
    assert not torch.loom.current_stream().query()
    hold()
    assert_equal(y, torch.full((1000,), 7.0))


def test_a_graph_waits_for_events_of_others(side, hold):
    def function(x, done):
        torch.loom.current_stream().wait_event(done)
        return x + 1

    x, done = torch.zeros(1000, device="loom"), torch.loom.Event()
    done.record()
    compiled = torch.compile(function, fullgraph=True)
    compiled(x, done)
    torch.loom.synchronize()
    hold(side)
    with torch.loom.stream(side):
        x.fill_(3)
        done.record()
    y = compiled(x, done)
    hold()
    assert_equal(y, torch.full((1000,), 4.0))


def test_what_comes_before_and_after_a_record_stays_there(side):
    def function(x):
        y = x.sin()
        middle = torch.loom.Event()
        middle.record()
        return y.cos() * 2 + 1

    x = torch.randn(1000, device="loom")
    compiled = torch.compile(function, fullgraph=True)
    _, (code, *_) = torch._inductor.utils.run_and_get_code(compiled, x)
    lines = [line.strip() for line in code.partition("def call")[2].splitlines()]
    begins = ("loom_fused_", "stream_calls.")
    calls = [line.split("(")[0] for line in lines if line.startswith(begins)]
    assert calls == ["loom_fused_sin_0", "stream_calls.record_event", "loom_fused_add_cos_mul_1"]


def test_functions_without_streams_do_not_look_for_the_current_one(monkeypatch):
    compiled = torch.compile(lambda x: x.sin() + 1, fullgraph=True)
    x = torch.randn(100, device="loom")
    compiled(x)
    asked = []
    original = torch.accelerator.current_stream

    def current_stream(*args):
        asked.append(args)
        return original(*args)

    monkeypatch.setattr(torch.accelerator, "current_stream", current_stream)
    assert_equal(compiled(x), x.sin() + 1)
    assert not asked


def test_the_current_stream_of_the_call_is_returned(side):
    def function(x):
        return x.sin(), torch.accelerator.current_stream()

    compiled = torch.compile(function)
    x = torch.randn(100, device="loom")
    assert compiled(x)[1] == torch.accelerator.current_stream()
    with torch.loom.stream(side):
        assert compiled(x)[1] == side


def test_side_streams_go_on_after_the_graph(side, hold):
    def function(x):
        with torch.loom.stream(side):
            return x.sin()

    x = torch.randn(1000, device="loom")
    compiled = torch.compile(function, fullgraph=True)
    compiled(x)
    torch.loom.synchronize()
    hold(torch.loom.current_stream())
    y = compiled(x)
    with torch.loom.stream(side):
        z = y + 1
    assert not side.query()
    hold()
    side.synchronize()
    assert_equal(z, x.sin() + 1)


def test_results_of_side_streams_may_be_dropped_there(side, hold):
    def function(x):
        with torch.loom.stream(side):
            return x.sin()

    x = torch.randn(5000, device="loom")
    compiled = torch.compile(function, fullgraph=True)
    compiled(x)
    torch.loom.synchronize()
    y = compiled(x)
    hold(side)
    with torch.loom.stream(side):
        z = y + 1
    del y  # its memory is in use until `side` has come here
    others = [torch.full((5000,), 7.0, device="loom") for _ in range(8)]
    torch.loom.current_stream().synchronize()
    hold()
    side.synchronize()
    assert_equal(z, x.sin() + 1)
    assert len(others) == 8


def test_current_streams_of_other_devices_end_a_graph():
    def function(x):
        stream = torch.loom.current_stream("loom:1")
        return x + 1, stream

    x = torch.zeros(3, device="loom")
    y, stream = torch.compile(function)(x)
    assert stream == torch.loom.current_stream("loom:1")
    assert_equal(y, torch.ones(3))


def test_graphs_with_events_are_not_replayed(side, replays):
    function = with_streams_of_loom(side)
    x, w = torch.randn(2, 64, 64, device="loom")
    compiled = torch.compile(function, fullgraph=True, mode="reduce-overhead")
    for _ in range(5):
        result = compiled(x, w)
    assert replays == []
    assert_equal(result, function(x, w))
