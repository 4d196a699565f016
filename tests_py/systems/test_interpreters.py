# SPDX-License-Identifier: BSD-3-Clause
"""Second interpreters in the process, as some servers make them: loom waits as before."""

import sys

MODULE = "_xxsubinterpreters" if sys.version_info < (3, 13) else "_interpreters"

PROGRAM = f"""
    import threading, torch, torch_loom
    import {MODULE} as interpreters
    x = torch.ones(100_000, device="loom")
    other = interpreters.create()  # PyGILState_Check() says yes for good from here on
"""


WAITS = """
        assert x.sum().item() == 100_000
        assert x.cpu().sum() == 100_000
        assert x.nonzero().shape == (100_000, 1)
        torch.loom.synchronize()
        torch.loom.empty_cache()
        torch.linalg.svdvals(x[:100].view(10, 10))
        assert "loom" in repr(x)
"""


def test_waits_release_the_interpreter_once(check):
    check(
        PROGRAM
        + f"""
    def wait():
        for _ in range(20):
            y = x.sort().values
{WAITS}
    wait()
    interpreters.destroy(other)
    wait()
    """
    )


def test_other_threads_run_on_while_one_waits(check):
    check(
        PROGRAM
        + """
    hold = torch_loom._C._Hold(-1, 60.0)
    y = x + 1
    waits = torch.loom.host_waits()
    def release():
        while torch.loom.host_waits() == waits:
            pass
        hold.release()  # the wait has let this thread have the GIL
    thread = threading.Thread(target=release)
    thread.start()
    assert y.sum().item() == 200_000
    thread.join()
    """
    )


def test_code_of_another_interpreter_runs_beside_loom(check):
    check(
        PROGRAM
        + """
    hold = torch_loom._C._Hold(-1, 60.0)
    y = x.cumsum(0)
    interpreters.run_string(other, "assert sum(range(10)) == 45")
    hold.release()
    assert y[-1].item() == 100_000
    interpreters.destroy(other)
    assert y[0].item() == 1
    """
    )
