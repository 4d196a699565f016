# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile: errors of kernels come later, name the kernel, and stay with their values."""

import pytest
import torch
from compile_support import assert_equal


def pick(x, i):
    return x[i] * 2 + 1


def test_a_bad_index_is_raised_at_the_next_synchronisation():
    compiled = torch.compile(pick, fullgraph=True)
    x, good, bad = torch.randn(10), torch.arange(5), torch.tensor([1, 2, 99, 3, 4])
    compiled(x.to("loom"), good.to("loom"))
    result = compiled(x.to("loom"), bad.to("loom"))
    with pytest.raises(RuntimeError, match=r"index out of bounds(.|\n)*raised by 'cpp_fused_"):
        torch.loom.synchronize()
    del result
    torch.loom.synchronize()
    assert_equal(compiled(x.to("loom"), good.to("loom")), pick(x, good))


def test_a_failed_result_spreads_through_compiled_kernels_and_heals():
    compiled = torch.compile(pick, fullgraph=True)
    more = torch.compile(lambda x: x.sin() + 3, fullgraph=True)
    x, bad = torch.randn(10, device="loom"), torch.full((5,), 77, device="loom")
    failed = more(compiled(x, bad))
    healthy = more(x)
    with pytest.raises(RuntimeError, match="index out of bounds"):
        failed.cpu()
    assert_equal(healthy, x.cpu().sin() + 3)
    with pytest.raises(RuntimeError, match="index out of bounds"):
        failed.cpu()  # again: the value is still missing
    failed.fill_(1)
    assert_equal(failed, torch.ones(5))


def divide(x, y):
    return x // y


@pytest.mark.parametrize("count", [7, 100000], ids=["one_block", "many_blocks"])
def test_integer_division_by_zero(count):
    compiled = torch.compile(divide, fullgraph=True)
    x, y = torch.arange(count), torch.ones(count, dtype=torch.int64)
    assert_equal(compiled(x.to("loom"), y.to("loom")), x)
    y[count // 2] = 0
    result = compiled(x.to("loom"), y.to("loom"))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        result.cpu()
    torch.loom.synchronize()
    y.fill_(3)
    assert_equal(compiled(x.to("loom"), y.to("loom")), x // 3)


def test_integer_division_beside_kernels_of_the_cpu():
    # Both note a division by zero in PyTorch's own way, on different threads.
    on_cpu, on_loom = torch.compile(divide, fullgraph=True), torch.compile(divide, fullgraph=True)
    x, zero = torch.arange(1000), torch.zeros(1000, dtype=torch.int64)
    three = torch.full((1000,), 3)
    for _ in range(30):
        failed = on_loom(x.to("loom"), zero.to("loom"))
        assert_equal(on_cpu(x, three), x // 3)
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            failed.cpu()
        assert_equal(on_loom(x.to("loom"), three.to("loom")), x // 3)


@pytest.mark.thorough
def test_blocking_launches_raise_at_the_call(check):
    check(
        """
        import pytest, torch, torch_loom
        compiled = torch.compile(lambda x, i: x[i] + 1, fullgraph=True)
        x = torch.randn(10, device="loom")
        compiled(x, torch.arange(3, device="loom"))
        with pytest.raises(RuntimeError, match="index out of bounds"):
            compiled(x, torch.full((3,), 10, device="loom"))
        """,
        LOOM_LAUNCH_BLOCKING="1",
    )
