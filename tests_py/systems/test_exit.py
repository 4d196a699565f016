# SPDX-License-Identifier: BSD-3-Clause
"""Leaving: whatever is in flight, the process ends, with the code that it was given."""

import shutil
import subprocess
from pathlib import Path

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
        pytest.param("sys.exit(3)", 3, marks=pytest.mark.thorough),
        ("os._exit(4)", 4),
        pytest.param("raise SystemExit(5)", 5, marks=pytest.mark.thorough),
        pytest.param("raise ValueError('mine')", 1, marks=pytest.mark.thorough),
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


def test_a_daemon_thread_that_waits_for_the_device_at_exit(run):
    # The wait ends with the process; nobody may take the GIL of an interpreter that has ended.
    done = run(
        WORK
        + """
    for _ in range(2000):  # more than is run while the interpreter ends
        y = y @ x
    from torch_loom import _C
    waits = _C._host_waits()
    threads = [
        threading.Thread(target=lambda: y.sum().item(), daemon=True),
        threading.Thread(target=torch.loom.synchronize, daemon=True),
        threading.Thread(target=lambda: y.cpu(), daemon=True),
    ]
    for thread in threads:
        thread.start()
    while _C._host_waits() < waits + len(threads):
        pass
"""
    )
    assert (done.code, done.err) == (0, "")


THREADS_AT_EXIT = """
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void look(void) {
  DIR* tasks = opendir("/proc/self/task");
  for (struct dirent* task; (task = readdir(tasks)) != NULL;) {
    char path[300], name[16] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
    FILE* file = fopen(path, "r");
    if (file == NULL) continue;
    if (fgets(name, sizeof name, file) != NULL && strncmp(name, "loom", 4) == 0) _exit(17);
    fclose(file);
  }
}

void look_at_exit(void) { atexit(look); }
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_no_thread_runs_when_static_objects_made_after_the_first_use_are_destroyed(
    check, tmp_path: Path
):
    source, library = tmp_path / "look.c", tmp_path / "look.so"
    source.write_text(THREADS_AT_EXIT)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    check(WORK + f"    import ctypes; ctypes.CDLL({str(library)!r}).look_at_exit()\n")
