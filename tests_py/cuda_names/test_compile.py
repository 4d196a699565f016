# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile and torch.export: graphs see cuda, compilers see loom."""

import pytest
import torch
import torch._dynamo
import torch._inductor.config
from torch._dynamo.utils import counters

import torch_loom
from torch_loom import _C


@pytest.fixture(autouse=True)
def new_graphs():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1))


def test_a_model_trains_as_on_the_cpu():
    losses = {}
    for device in ("cpu", "cuda"):
        model = _model().to(device)
        step = torch.compile(model, fullgraph=True) if device == "cuda" else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = torch.Generator().manual_seed(1)
        losses[device] = []
        for _ in range(3):
            loss = step(torch.randn(4, 8, generator=data).to(device)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[device].append(loss.item())
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=1e-5)


def test_a_branch_on_the_device_takes_that_of_cuda():
    @torch.compile(fullgraph=True, backend="aot_eager")
    def f(x):
        if x.is_cuda and x.device.type == "cuda" and torch.cuda.is_available():
            return x + torch.ones(1, device="cuda")
        return x

    assert f(torch.ones(1, device="cuda")).item() == 2
    assert f(torch.ones(1)).item() == 1


def test_the_compiler_sees_loom_in_its_own_thread_only():
    seen = []

    def backend(graph, inputs):
        seen.append(inputs[0].device.type)
        return graph.forward

    x = torch.ones(2, device="cuda")
    torch.compile(lambda t: t + 1, backend=backend)(x)
    assert seen == ["cuda"]
    with _C._HushedName():
        assert x.device.type == "loom"
        assert torch.device("cuda") == torch.device("loom")
    assert x.device.type == "cuda"


def test_reduce_overhead_replays():
    compiled = torch.compile(lambda a: (a @ a).softmax(-1).sin(), mode="reduce-overhead")
    for seed in range(4):
        torch.manual_seed(seed)
        a = torch.randn(16, 16)
        expected = (a @ a).softmax(-1).sin()
        torch.testing.assert_close(compiled(a.cuda()).cpu(), expected)


def test_streams_are_followed():
    @torch.compile(backend="aot_eager")
    def f(x):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x * 2
        torch.cuda.current_stream().wait_stream(side)
        return y + 1

    assert f(torch.ones(3, device="cuda")).tolist() == [3, 3, 3]


def test_autocast_is_followed():
    @torch.compile(fullgraph=True, backend="aot_eager")
    def f(x):
        with torch.autocast("cuda"):
            return x @ x

    assert f(torch.ones(2, 2, device="cuda")).dtype == torch.float16


@pytest.mark.usefixtures("loom_names")
def test_both_names_share_compiled_kernels(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def f(x):
        return (x * 3.25).sin() + 1

    torch.compile(f)(torch.ones(100, device="loom"))
    counters.clear()
    with torch_loom.as_cuda():
        result = torch.compile(f)(torch.ones(100, device="cuda"))
        assert counters["inductor"]["fxgraph_cache_hit"] == 1
        assert counters["inductor"]["fxgraph_cache_miss"] == 0
        torch.testing.assert_close(result.cpu(), f(torch.ones(100)))


def test_a_program_is_exported():
    model = _model().cuda()
    x = torch.randn(4, 8, device="cuda")
    program = torch.export.export(model, (x,))
    torch.testing.assert_close(program.module()(x), model(x))
    assert "cuda" in str(next(iter(program.state_dict.values())).device)
