# SPDX-License-Identifier: BSD-3-Clause
"""The edges of a process: signals, forks, affinity, allocator settings, foreign variables."""

import os
import signal

import pytest
import torch

pytestmark = pytest.mark.thorough


def test_device_synchronise_takes_one_error_and_leaves_the_next() -> None:
    x, bad = torch.ones(3, device="loom"), torch.tensor([7], device="loom")
    side = torch.loom.Stream()
    torch.loom.synchronize()
    x.index_select(0, bad)
    with torch.loom.stream(side):
        x.index_select(0, bad)
    with pytest.raises(IndexError):
        torch.loom.synchronize()
    with pytest.raises(IndexError):
        torch.loom.synchronize()
    torch.loom.synchronize()


def test_child_may_drop_pinned_memory(check) -> None:
    check("""
        import os, torch, torch_loom
        x = torch.randn(10**6).pin_memory()
        x.to("loom", non_blocking=True)
        torch.loom.synchronize()
        child = os.fork()
        if child == 0:
            del x
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """)


FORK_WHILE_LOCKS_ARE_HELD = """
    import os, signal, sys, threading, torch, torch_loom

    def churn(rounds):
        for i in range(rounds):
            torch.empty(1000, device="loom").add_(1)
            torch.empty(1000 + i, pin_memory=True)

    x = torch.ones(1000, device="loom")
    pinned = torch.ones(1000).pin_memory()
    event = torch.loom.Event()
    event.record()
    torch.loom.synchronize()
    going = True

    def keep_churning():
        while going:
            churn(100)

    threads = [threading.Thread(target=keep_churning) for _ in range(2)]
    for thread in threads:
        thread.start()

    def use(x, pinned):
        USE

    codes = []
    for _ in range(10):
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                use(x, pinned)
                os._exit(0)
            except RuntimeError as error:
                os._exit(1 if "forked subprocess" in str(error) and "spawn" in str(error) else 2)
            except BaseException:
                os._exit(3)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        if codes[-1] < 0:
            break
    going = False
    for thread in threads:
        thread.join()
    print(codes)
"""


@pytest.mark.parametrize(
    "use",
    [
        "torch.loom.memory_stats()",
        "torch.loom.get_device_properties()",
        "torch.loom.get_device_name()",
        "torch.loom.memory_allocated()",
        "torch.loom.mem_get_info()",
        "torch.loom.memory_snapshot()",
        "torch.ones(1000).pin_memory()",
        "event.record()",
        "event.query()",
        "torch.loom.Event().record()",
        "torch.loom.Stream()",
        "torch.loom.synchronize()",
        "torch.loom.current_stream().synchronize()",
        "torch.loom.empty_cache()",
        "torch.loom.get_rng_state()",
    ],
)
def test_child_is_refused_and_never_hangs(check, use: str) -> None:
    assert check(FORK_WHILE_LOCKS_ARE_HELD.replace("USE", use)).out == f"{[1] * 10}\n"


@pytest.mark.parametrize(
    "use",
    [
        "assert not pinned.is_pinned()",  # the child inherits the values, not the locked pages
        "x = torch.ones(1)",
        "pinned = torch.ones(1)",
        "torch.manual_seed(1)",
    ],
)
def test_child_may_use_what_needs_no_lock(check, use: str) -> None:
    assert check(FORK_WHILE_LOCKS_ARE_HELD.replace("USE", use)).out == f"{[0] * 10}\n"


def test_bound_first_thread_does_not_bind_the_device(check) -> None:
    program = """
        import torch, torch_loom
        torch.ones(2, device="loom").sum().item()
        print(torch.loom.get_device_properties().multi_processor_count)
    """
    variables = {"LOOM_DEVICES": "1", "LOOM_THREADS": None}
    free = check(program, **variables).out
    assert check(program, OMP_PROC_BIND="true", **variables).out == free


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_places_of_openmp_outside_of_a_later_affinity_mask(check) -> None:
    program = """
        import os, torch, torch_loom
        torch.ones(2).sum()
        os.sched_setaffinity(0, {max(CPUS)})
        print(torch.loom.get_device_properties().cpus)
    """
    cpus = os.sched_getaffinity(0)
    variables = {"LOOM_DEVICES": "1", "OMP_PROC_BIND": "close", "OMP_PLACES": "threads"}
    done = check(program.replace("CPUS", repr(cpus)), **variables)
    assert done.out.strip() == str([max(cpus)])


@pytest.mark.parametrize("mode", ["unified", "isolated"])
def test_sent_segmentation_fault_ends_the_process(run, mode: str) -> None:
    done = run(
        """
        import os, signal, torch, torch_loom
        torch.ones(2, device="loom").sum().item()
        os.kill(os.getpid(), signal.SIGSEGV)
        print("alive")
        """,
        LOOM_MEMORY=mode,
    )
    assert done.code == -signal.SIGSEGV
    assert "alive" not in done.out


def test_smallest_split_size_that_torch_takes(check) -> None:
    check(
        'import torch; assert torch.ones(30 << 18, device="loom").sum().item() == 30 << 18',
        PYTORCH_ALLOC_CONF="max_split_size_mb:20",
    )


def test_non_split_rounding_lets_a_larger_block_serve(check) -> None:
    program = """
        import torch
        a = torch.empty(100 << 20, dtype=torch.uint8, device="loom")
        del a
        b = torch.empty(40 << 20, dtype=torch.uint8, device="loom")
        print(torch.loom.memory_reserved() >> 20)
    """
    strict = check(program, PYTORCH_ALLOC_CONF="max_split_size_mb:30").out
    assert int(strict) == 140
    relaxed = "max_split_size_mb:30,max_non_split_rounding_mb:100"
    assert int(check(program, PYTORCH_ALLOC_CONF=relaxed).out) == 100


def test_variables_of_others_do_not_matter(check) -> None:
    program = "import torch, torch_loom; assert torch.loom.is_available()"
    check(program, LOOM_API_KEY="x", LOOM_VISIBLE_DEVICES="0")


def test_unavailable_device_says_why(check) -> None:
    done = check(
        "import torch, torch_loom; assert not torch.loom.is_available()", LOOM_DEVICES="many"
    )
    assert "LOOM_DEVICES: expected a whole number" in done.err


def test_names_of_cuda_that_programs_use() -> None:
    assert torch.loom.OutOfMemoryError is torch.OutOfMemoryError
    assert torch.loom.can_device_access_peer(0, 1)
    assert not torch.loom.can_device_access_peer(0, 0)
    torch.loom.ipc_collect()
