# SPDX-License-Identifier: BSD-3-Clause
"""Inference of small batches is replayed where nobody asked for it, and what is not."""

import copy
import os
import subprocess
import sys
import threading
import weakref

import pytest
import torch
from compile_support import assert_equal
from torch import nn

from torch_loom.inductor import replay as module, unasked_replays

CALLS = 6


def network(width=20):
    layers = (nn.Linear(width, 30), nn.GELU(), nn.Linear(30, 30), nn.GELU(), nn.Linear(30, 5))
    return nn.Sequential(*layers).eval()


def run(model, make_input=lambda: torch.randn(4, 20), **options):
    """Calls of the compiled model, compared with the cpu."""
    on_loom = torch.compile(copy.deepcopy(model).to("loom"), **options)
    kept = [make_input() for _ in range(CALLS)]
    for x in kept:
        assert_equal(on_loom(x.to("loom")), model(x), rtol=1e-4, atol=1e-5)


def test_inference_is_replayed(replays):
    with torch.no_grad():
        run(network())
    assert len(replays) >= 2


@pytest.mark.thorough
def test_weights_that_change_in_place_are_read(replays):
    model = network()
    on_loom = copy.deepcopy(model).to("loom")
    compiled = torch.compile(on_loom)
    x = torch.randn(4, 20)
    with torch.no_grad():
        for _ in range(CALLS):
            for weights in (model, on_loom):
                for parameter in weights.parameters():
                    parameter.mul_(1.25)
            assert_equal(compiled(x.to("loom")), model(x), rtol=1e-4, atol=1e-4)
    assert replays


def test_training_is_not_replayed(replays):
    run(network())
    assert not replays


@pytest.mark.thorough
def test_sizes_that_are_symbols_are_not_replayed(replays):
    with torch.no_grad():
        run(network(), dynamic=True)
    assert not replays


@pytest.mark.thorough
def test_a_few_operators_are_not_replayed(replays):
    with torch.no_grad():
        run(network()[:3])
    assert not replays


@pytest.mark.thorough
@pytest.mark.parametrize(
    "options", [{"triton.cudagraph_trees": False}, {"max_autotune": True}], ids=["off", "autotune"]
)
def test_options_that_choose_no_replays(options, replays):
    with torch.no_grad():
        run(network(), options=options)
    assert not replays


@pytest.mark.thorough
def test_large_inputs_are_not_copied(replays):
    kept = []

    def somewhere_else():
        kept.append(torch.randn(1000, 20))
        return kept[-1]

    model = network()
    on_loom = torch.compile(copy.deepcopy(model).to("loom"))
    inputs = [somewhere_else().to("loom") for _ in range(CALLS)]
    with torch.no_grad():
        for host, x in zip(kept, inputs, strict=True):
            assert_equal(on_loom(x), model(host), rtol=1e-4, atol=1e-5)
    assert not replays


@pytest.mark.thorough
@pytest.mark.parametrize("limit", ["_MOST_BYTES_KEPT", "_MOST_BYTES_KEPT_BY_ALL"])
def test_captures_keep_little_memory(limit, replays, monkeypatch):
    of_others = torch.accelerator.Graph()
    x = torch.ones(5, device="loom")
    with torch.loom.graph(of_others):
        x += 1
        y = x * 2
    monkeypatch.setattr(unasked_replays, limit, 0)
    with torch.no_grad():
        run(network())
    assert not replays
    of_others.replay()
    assert_equal(y, torch.full((5,), 4.0))


def test_operators_of_others_are_called_each_time(replays):
    calls = []

    @torch.library.custom_op("loom_test_unasked::noted", mutates_args=())
    def noted(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x + 1

    noted.register_fake(torch.empty_like)
    layers = network().to("loom")
    compiled = torch.compile(lambda x: noted(layers(x)))
    with torch.no_grad():
        for _ in range(CALLS):
            compiled(torch.randn(4, 20, device="loom"))
    assert len(calls) >= CALLS
    assert not replays


@pytest.mark.thorough
def test_graphs_from_the_caches_are_replayed(tmp_path):
    program = """
import torch, torch_loom
from torch import nn
from torch_loom.inductor import replay
done = []
original = replay._Capture.again
replay._Capture.again = lambda self, inputs: done.append(1) or original(self, inputs)
torch.manual_seed(0)
model = nn.Sequential(*[nn.Linear(20, 20) for _ in range(4)]).to("loom").eval()
compiled = torch.compile(model)
with torch.no_grad():
    for _ in range(6):
        compiled(torch.randn(4, 20, device="loom"))
counters = torch._dynamo.utils.counters
print(bool(done), counters["aot_autograd"]["autograd_cache_hit"])
"""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", program]
    for hits in (0, 1):
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.stdout.split() == ["True", str(hits)], done.stderr


@pytest.mark.thorough
def test_large_results_are_not_lent(replays):
    model = network()
    on_loom = torch.compile(copy.deepcopy(model).to("loom"))
    x = torch.randn(5000, 20)
    with torch.no_grad():
        for _ in range(CALLS):
            assert_equal(on_loom(x.to("loom")), model(x), rtol=1e-4, atol=1e-5)
    assert not replays


@pytest.mark.thorough
def test_captures_are_dropped_before_kernels_run_one_by_one(monkeypatch):
    captures = []
    left = []
    original = module._Capture.__init__

    def note(self, model, *args):
        original(self, model, *args)
        captures.append(weakref.ref(self))

    monkeypatch.setattr(module._Capture, "__init__", note)
    compiled = torch.compile(network().to("loom"))
    inputs = [torch.randn(4, 20, device="loom") for _ in range(CALLS + 1)]
    with torch.no_grad():
        for _ in range(CALLS):
            compiled(inputs[0])
        assert captures[0]() is not None
        monkeypatch.setattr(module, "_MOST_RECAPTURES", 0)
        for kernel in (torch.mm, torch.addmm):
            monkeypatch.setattr(
                torch._inductor.select_algorithm.extern_kernels,
                kernel.__name__,
                _counting(kernel, captures, left),
                raising=False,
            )
        compiled(inputs[1])
    assert left
    assert not any(left)


def _counting(kernel, captures, left):
    def call(*args, **named):
        left.append(sum(capture() is not None for capture in captures))
        return kernel(*args, **named)

    return call


@pytest.mark.thorough
def test_a_capture_of_another_thread_is_waited_for(replays):
    model = network()
    on_loom = torch.compile(copy.deepcopy(model).to("loom"))
    x = torch.randn(4, 20)
    stream = module._Capture._streams.setdefault(0, torch.loom.Stream(0))
    other = torch.accelerator.Graph()
    results = []

    @torch.no_grad()  # a mode of the thread
    def call(count):
        results.extend(on_loom(x.to("loom")) for _ in range(count))

    with torch.loom.graph(other, stream=stream):
        thread = threading.Thread(target=call, args=(CALLS,))
        thread.start()
        thread.join()
    assert not replays
    call(2)
    assert replays
    with torch.no_grad():
        for result in results:
            assert_equal(result, model(x), rtol=1e-4, atol=1e-5)
