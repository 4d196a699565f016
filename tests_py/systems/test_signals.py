# SPDX-License-Identifier: BSD-3-Clause
"""Signals: Ctrl-C and handlers written in Python run while the program waits for the device."""

import pytest

# The signal comes while the main thread waits: work for much longer than the test is queued.
WORK = """
    import os, signal, threading, torch
    signal.signal(signal.SIGINT, signal.default_int_handler)
    x = torch.full((1500, 1500), 1 / 1500, device="loom")
    y = torch.ones(1500, 1500, device="loom")
    def queue_minutes_of_work():
        global y
        for _ in range(3000):
            y = y @ x
    def kill_later(number):
        def kill():
            before = torch.loom.host_waits()
            while torch.loom.host_waits() == before:
                os.sched_yield()
            os.kill(os.getpid(), number)
        threading.Thread(target=kill, daemon=True).start()
"""


@pytest.mark.parametrize(
    "wait",
    [
        "torch.loom.synchronize()",
        pytest.param("torch.loom.current_stream().synchronize()", marks=pytest.mark.thorough),
        "y.sum().item()",
        pytest.param("y[0].tolist()", marks=pytest.mark.thorough),
        "y.cpu()",
        pytest.param("y.copy_(torch.ones(1500, 1500))", marks=pytest.mark.thorough),
        "event.synchronize()",
        pytest.param("y.nonzero()", marks=pytest.mark.thorough),
        pytest.param("torch.accelerator.synchronize()", marks=pytest.mark.thorough),
    ],
)
def test_an_interrupt_ends_a_wait_and_loom_works_afterwards(check, wait):
    check(
        WORK
        + f"""
    queue_minutes_of_work()
    event = torch.loom.Event()
    event.record()
    kill_later(signal.SIGINT)
    try:
        {wait}
        raise SystemExit("the wait was not interrupted")
    except KeyboardInterrupt:
        pass
    with torch.loom.stream(torch.loom.Stream()):
        assert (torch.ones(3, device="loom") * 2).tolist() == [2, 2, 2]
    os._exit(0)
"""
    )


def test_a_handler_in_python_runs_while_the_program_waits(check):
    check(
        WORK
        + """
    class Stop(Exception):
        pass
    def stop(number, frame):
        raise Stop
    signal.signal(signal.SIGTERM, stop)
    queue_minutes_of_work()
    kill_later(signal.SIGTERM)
    try:
        torch.loom.synchronize()
        raise SystemExit("the handler did not run")
    except Stop:
        os._exit(0)
"""
    )


def test_a_wait_goes_on_after_a_handler_that_raises_nothing(check):
    check(
        WORK
        + """
    calls = []
    signal.signal(signal.SIGTERM, lambda number, frame: calls.append(number))
    for _ in range(40):
        y = y @ x
    kill_later(signal.SIGTERM)
    assert abs(y[0, 0].item() - 1) < 1e-3
    assert calls == [signal.SIGTERM]
"""
    )


def test_an_interrupt_ends_a_submission_that_is_held(check):
    check(
        WORK
        + """
    kill_later(signal.SIGINT)
    try:
        for _ in range(100_000):
            y = y @ x
        raise SystemExit("the host was not held")
    except KeyboardInterrupt:
        os._exit(0)
""",
        LOOM_QUEUE_DEPTH="64",
    )


def test_the_host_is_held_when_it_is_far_ahead(check):
    check(
        """
        import torch
        x = torch.full((300, 300), 1 / 300, device="loom")
        y = torch.ones(300, 300, device="loom")
        before = torch.loom.host_waits()
        for _ in range(200):
            y = y @ x
        assert torch.loom.host_waits() > before
        assert y.isfinite().all().item()
        """,
        LOOM_QUEUE_DEPTH="16",
    )


@pytest.mark.thorough
def test_staged_copies_do_not_fill_the_hosts_memory(check):
    # Each copy holds 64 KB of host memory until it runs: 4 GB without a bound.
    check(
        """
        import resource, torch
        x = torch.full((1500, 1500), 1 / 1500, device="loom")
        y = torch.empty(16384, device="loom")
        source = torch.ones(16384)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(100):
            x = x @ x
        for _ in range(65536):
            y.copy_(source)
        torch.loom.synchronize()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 300 * 1024, grown
        """,
        LOOM_QUEUE_DEPTH="1048576",
    )


def test_a_handler_computes_as_the_program_does(check):
    # The wait is inside of an operator, which has switched autograd off for what it calls itself.
    check(
        """
        import signal, torch, torch_loom
        w = torch.ones(300, 300, device="loom", requires_grad=True)
        got = []
        def handler(*_):
            y = (w * 2).sum()
            got.append((y.requires_grad, torch.is_inference_mode_enabled()))
            if y.requires_grad:
                y.backward()
                got.append(w.grad.sum().item())
        signal.signal(signal.SIGALRM, handler)

        def outcome(wait):
            got.clear()
            w.grad = None
            torch.loom.synchronize()
            hold = torch_loom._C._Hold(-1, 0.4)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            wait()
            hold.release()
            assert (w * 2).requires_grad
            return list(got)

        waits = {
            "item": lambda: w.sum().item(),
            "cpu": lambda: w.cpu(),
            "nonzero": lambda: w.nonzero(),
            "mask": lambda: w[w > 0],
            "synchronize": torch.loom.synchronize,
            "copy to the device": lambda: w.data.copy_(torch.ones(300, 300)),
        }
        for name, wait in waits.items():
            assert outcome(wait) == [(True, False), 180_000.0], (name, got)
        assert outcome(torch.no_grad()(lambda: w.sum().item())) == [(False, False)]
        assert outcome(torch.inference_mode()(lambda: (w + 1).sum().item())) == [(False, True)]
        """
    )


def test_an_interrupt_ends_the_emptying_of_the_cache(check):
    check(
        WORK
        + """
    queue_minutes_of_work()
    torch.empty(1 << 24, device="loom")  # freed at once: it is unmapped when the queue has passed
    kill_later(signal.SIGINT)
    try:
        torch.loom.empty_cache()
        raise SystemExit("the wait was not interrupted")
    except KeyboardInterrupt:
        os._exit(0)
"""
    )


def test_an_interrupt_ends_a_wait_for_memory(check):
    check(
        WORK
        + """
    torch.loom.synchronize()
    queue_minutes_of_work()
    torch.empty(180 << 20, dtype=torch.uint8, device="loom")  # freed while the queue may use it
    kill_later(signal.SIGINT)
    try:
        with torch.loom.stream(torch.loom.Stream()):
            torch.empty(180 << 20, dtype=torch.uint8, device="loom")
        raise SystemExit("the wait was not interrupted")
    except KeyboardInterrupt:
        os._exit(0)
""",
        LOOM_DEVICES="1",
        LOOM_MEMORY_LIMIT="256M",
    )
