# SPDX-License-Identifier: BSD-3-Clause
"""torch.loom.set_num_threads: on how many cores a kernel runs."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = torch.loom.get_num_threads()
    yield
    torch.loom.synchronize()
    torch.loom.set_num_threads(before)


def test_at_first_it_is_what_the_device_has() -> None:
    assert torch.loom.get_num_threads() == torch.loom.get_device_properties().core_count


def test_it_is_kept() -> None:
    torch.loom.set_num_threads(1)
    assert torch.loom.get_num_threads() == 1


@pytest.mark.parametrize("number", [0, -1, 10_000])
def test_numbers_that_there_are_not_are_refused(number: int) -> None:
    most = torch.loom.get_device_properties().core_count
    with pytest.raises(RuntimeError, match=f"expected 1 to {most} cores, got {number}"):
        torch.loom.set_num_threads(number)
    assert torch.loom.get_num_threads() == most


@pytest.mark.parametrize("number", [1.0, "2", None, True])
def test_what_is_no_number_is_refused(number: object) -> None:
    with pytest.raises(TypeError, match="expected an int, got"):
        torch.loom.set_num_threads(number)  # type: ignore[arg-type]


def test_that_of_torch_has_no_effect() -> None:
    before, ours = torch.get_num_threads(), torch.loom.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert torch.loom.get_num_threads() == ours
        torch.loom.set_num_threads(1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_results_do_not_depend_on_it() -> None:
    def compute() -> list[torch.Tensor]:
        torch.loom.manual_seed(0)
        x = torch.randn(512, 512, device="loom")
        y = (x @ x).relu().softmax(1)
        return [y, y.sum(), torch.cumsum(y, 0), x.sort().values, torch.rand_like(x)]

    with_all = compute()
    torch.loom.set_num_threads(1)
    with_one = compute()
    for all_cores, one in zip(with_all, with_one, strict=True):
        assert torch.equal(all_cores, one)


def test_a_change_counts_for_work_that_is_queued(run) -> None:
    # A helper shares the work with the worker, or the host thread that waits. The system counts
    # in steps of 10 ms, and both cores are busy for some 200 ms.
    done = run(
        """
        import pathlib, torch, torch_loom

        def helped():
            ticks = 0
            for task in pathlib.Path("/proc/self/task").iterdir():
                if not (task / "comm").read_text().startswith("loom0/q"):
                    fields = (task / "stat").read_text().rsplit(")")[1].split()
                    ticks += int(fields[11]) + int(fields[12])
            return ticks

        def work(count):
            x = torch.full((1024, 1024), 1e-3, device="loom")
            for _ in range(count):
                x = x @ x

        work(40)
        torch.loom.set_num_threads(1)
        torch.loom.synchronize()
        before = helped()
        work(40)
        torch.loom.synchronize()
        alone = helped() - before
        torch.loom.set_num_threads(2)
        before = helped()
        work(40)
        torch.loom.synchronize()
        print(alone, helped() - before)
        """,
        LOOM_THREADS="2",
        LOOM_DEVICES="1",
    )
    alone, both = map(int, done.out.split())
    assert both > 4 * alone


def test_more_threads_than_processors_are_warned_of(check):
    source = """
        import os, torch, warnings
        count = len(os.sched_getaffinity(0))
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            torch.ones(2, device="loom")
        messages = [str(each.message) for each in given]
        more = int(os.environ["LOOM_THREADS"]) > count
        assert len(messages) == more, messages
        if more:
            assert f"LOOM_THREADS: expected at most {count}," in messages[0], messages
            assert "got 99" in messages[0], messages
    """
    check(source, LOOM_THREADS="99", LOOM_DEVICES="1")
    check(source, LOOM_THREADS="1", LOOM_DEVICES="1")
