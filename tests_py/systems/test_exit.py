# SPDX-License-Identifier: BSD-3-Clause
"""Leaving: whatever is in flight, the process ends, with the code that it was given."""

import pytest

WORK = """
    import atexit, os, sys, threading, torch
    x = torch.full((512, 512), 1 / 512, device="loom")
    y = torch.ones(512, 512, device="loom")
    for _ in range(200):
        y = y @ x
    pinned = torch.empty(512, 512, pin_memory=True)
    pinned.copy_(y, non_blocking=True)
"""


@pytest.mark.parametrize(
    ("leave", "code"),
    [
        ("", 0),
        ("sys.exit(3)", 3),
        ("os._exit(4)", 4),
        ("raise SystemExit(5)", 5),
        ("raise ValueError('mine')", 1),
        ("torch._leaked = [x, y, pinned, torch.loom.Stream(), torch.loom.Event()]", 0),
        ("atexit.register(lambda: print((y + 1).shape))", 0),
        ("y[torch.full((1,), 600, device='loom')]", None),
    ],
)
def test_exit_with_work_in_flight(run, leave, code):
    done = run(WORK + "    " + leave + "\n")
    assert "terminate" not in done.err
    assert "Segmentation" not in done.err
    if code is None:  # an error that nobody waited for may or may not be seen
        assert done.code in (0, 1)
    else:
        assert done.code == code, done.err


def test_exit_after_threads_that_left_work(check):
    check(
        WORK
        + """
    def work():
        with torch.loom.stream(torch.loom.Stream()):
            z = torch.ones(512, 512, device="loom")
            for _ in range(50):
                z = z @ x
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
"""
    )


def test_backward_in_flight_at_exit(check):
    # Autograd's thread drops the pass after backward() has returned, and needs the GIL for that.
    check(
        """
        import torch
        x = torch.randn(256, 256, device="loom", requires_grad=True)
        y = x
        for _ in range(20):
            y = (y @ x).relu()
        y.sum().backward()
        """
    )


def test_an_interrupt_ends_the_process(run):
    # A process that was started in the background ignores the signal unless it says otherwise.
    done = run(
        WORK
        + "    import signal\n"
        + "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        + "    signal.raise_signal(signal.SIGINT)\n"
    )
    assert done.code != 0
    assert "KeyboardInterrupt" in done.err
