# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile: each device, each stream, each kind of memory, each number of cores."""

import pytest
import torch
from compile_support import assert_equal, compile_across_devices, compile_and_compare
from torch.nn import functional as F  # noqa: N812

from torch_loom import _C

pytestmark = pytest.mark.thorough


def function(x, w):
    return F.softmax(F.gelu(x @ w), -1).sum(0)


def test_the_second_device():
    x, w = torch.randn(30, 20), torch.randn(20, 10)
    compile_and_compare(function, x, w, device=torch.device("loom", 1))
    assert torch.loom.current_device() == 0


def test_one_function_on_two_devices():
    compiled = torch.compile(function, fullgraph=True)
    x, w = torch.randn(30, 20), torch.randn(20, 10)
    for device in ("loom:0", "loom:1", "loom:0"):
        actual = compiled(x.to(device), w.to(device))
        assert str(actual.device) == device
        assert_equal(actual, function(x, w))


def test_a_graph_with_tensors_of_two_devices():
    compile_across_devices()


def test_kernels_run_on_the_current_stream():
    x = torch.randn(1000, device="loom")
    compiled = torch.compile(lambda x: x.sin() * 2, fullgraph=True)
    compiled(x)
    torch.loom.synchronize()
    hold = _C._Hold(0, 20)  # the default stream
    side = torch.loom.Stream()
    with torch.loom.stream(side):
        result = compiled(x)
    side.synchronize()
    assert not torch.loom.default_stream().query()
    with torch.loom.stream(side):
        assert_equal(result, x.sin() * 2)
    hold.release()


def test_a_launch_does_not_wait():
    x = torch.randn(1000, device="loom")
    compiled = torch.compile(lambda x: (x.sin() * 2).sum(), fullgraph=True)
    compiled(x)
    torch.loom.synchronize()
    waits = torch.loom.host_waits()
    hold = _C._Hold(0, 20)
    for _ in range(20):
        result = compiled(x)
    assert not torch.loom.current_stream().query()
    hold.release()
    assert torch.loom.host_waits() == waits
    assert_equal(result, (x.sin() * 2).sum())


@pytest.fixture
def any_number_of_cores():
    before = torch.loom.get_num_threads()
    yield
    torch.loom.set_num_threads(before)


@pytest.mark.usefixtures("any_number_of_cores")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.exp() * 3).sum(),
        lambda x: torch.var_mean(x),
        lambda x: F.layer_norm(x, x.shape[1:]).sum(0),
        lambda x: x.new_zeros(50).index_put((x.abs().long() % 50,), x, accumulate=True),
        lambda x: x.new_zeros(50).index_put((x.abs().mul(9).long() % 50,), x),
    ],
    ids=["sum", "variance", "rows_and_columns", "accumulate", "scatter"],
)
def test_results_do_not_depend_on_the_number_of_cores(function):
    x = torch.randn(700, 601, device="loom")
    compiled = torch.compile(function, fullgraph=True)
    results = []
    for cores in (1, 2, 1, 2):
        torch.loom.set_num_threads(cores)
        results.append(compiled(x))
    assert_equal(results[0], function(x), rtol=1e-3, atol=1e-3)
    for result in results[1:]:
        assert_equal(result, results[0], rtol=0, atol=0)


def test_isolated_memory(check):
    check(
        """
        import torch, torch_loom
        from torch.nn import functional as F
        def function(x, i, s):
            return F.layer_norm(x[i] * s, (64,)).relu().sum(0), x.mean()
        x, i, s = torch.randn(100, 64), torch.randint(100, (30,)), torch.tensor(2.0)
        actual = torch.compile(function, fullgraph=True)(x.to("loom"), i.to("loom"), s)
        torch.testing.assert_close([t.cpu() for t in actual], list(function(x, i, s)))
        """,
        LOOM_MEMORY="isolated",
    )
