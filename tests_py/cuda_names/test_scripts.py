# SPDX-License-Identifier: BSD-3-Clause
"""What training scripts do on CUDA: mixed precision, streams, graphs, memory, the profiler."""

import contextlib
import pickle

import pytest
import torch
from torch.profiler import ProfilerActivity


def _model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))


def _losses(device, steps=5):
    model = _model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(steps):
        x = torch.randn(4, 8, generator=data).to(device)
        loss = model(x).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_training_loop_has_the_losses_of_the_cpu():
    assert _losses("cuda") == pytest.approx(_losses("cpu"), rel=1e-5)


@pytest.mark.parametrize(
    "context",
    [
        lambda: torch.autocast("cuda"),
        lambda: torch.autocast(device_type="cuda", dtype=torch.float16),
        lambda: torch.amp.autocast("cuda"),
        lambda: torch.amp.autocast_mode.autocast("cuda", enabled=True),
        pytest.param(
            lambda: torch.cuda.amp.autocast(),
            marks=pytest.mark.filterwarnings("ignore:.*torch.cuda.amp.autocast"),
        ),
    ],
)
def test_autocast_is_float16_as_on_cuda(context):
    x = torch.ones(4, 4, device="cuda")
    with context():
        assert (x @ x).dtype == torch.float16
        assert torch.is_autocast_enabled()
        assert torch.is_autocast_enabled("cuda")
        assert torch.get_autocast_dtype("cuda") == torch.float16
        with torch.autocast("cuda", enabled=False):
            assert (x @ x).dtype == torch.float32
    assert not torch.is_autocast_enabled()


def test_autocast_takes_bfloat16():
    x = torch.ones(4, 4, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
        with torch.autocast("cuda"):  # the region outside has chosen
            assert (x @ x).dtype == torch.bfloat16
    assert torch.get_autocast_dtype("cuda") == torch.float16


def test_custom_functions_under_autocast():
    class Multiply(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            return grad @ b.T, a.T @ grad

    a = torch.ones(2, 2, device="cuda", dtype=torch.float16, requires_grad=True)
    with torch.autocast("cuda"):
        result = Multiply.apply(a, a)
    assert result.dtype == torch.float32
    result.sum().backward()
    assert a.grad is not None


def test_grad_scaler_skips_a_step_with_infinities():
    model = _model().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", init_scale=4.0)
    before = model[0].weight.detach().clone()
    with torch.autocast("cuda"):
        loss = model(torch.ones(2, 8, device="cuda")).sum()
    scaler.scale(loss * float("inf")).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(model[0].weight, before)
    assert scaler.get_scale() == 2.0
    optimizer.zero_grad()
    with torch.autocast("cuda"):
        loss = model(torch.ones(2, 8, device="cuda")).sum()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(model[0].weight, before)


def test_streams_and_events_order_work():
    side = torch.cuda.Stream()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    x = torch.ones(1000, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() == side
        start.record()
        y = x * 2
        end.record()
        x.record_stream(side)
    torch.cuda.current_stream().wait_event(end)
    assert y.sum().item() == 2000
    end.synchronize()
    assert end.query()
    assert start.elapsed_time(end) >= 0
    assert isinstance(side, torch.cuda.Stream)
    assert isinstance(start, torch.cuda.Event)
    assert side.cuda_stream == side.stream_id
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_sleep_keeps_a_stream_from_later_work():
    side = torch.cuda.Stream()
    done = torch.cuda.Event()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        done.record()
    assert not done.query()
    done.synchronize()
    assert done.query()


def test_graph_takes_cuda_s_arguments():
    x = torch.ones(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    pool = torch.cuda.graph_pool_handle()
    with torch.cuda.graph(cuda_graph=graph, pool=pool, stream=torch.cuda.Stream()):
        y = x * 3
    assert tuple(graph.pool()) == tuple(pool)
    x.fill_(5)
    graph.replay()
    assert y.tolist() == [15] * 4
    graph.reset()


def test_graph_is_captured_by_hand():
    x = torch.ones(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        graph.capture_begin(capture_error_mode="thread_local")
        assert torch.cuda.is_current_stream_capturing()
        y = x + 1
        graph.capture_end()
    x.fill_(2)
    graph.replay()
    torch.cuda.synchronize()
    assert y.tolist() == [3] * 4


def test_graphed_callables():
    model = _model().cuda()
    expected = model(torch.ones(2, 8, device="cuda")).detach()
    graphed = torch.cuda.make_graphed_callables(model, (torch.randn(2, 8, device="cuda"),))
    result = graphed(torch.ones(2, 8, device="cuda"))
    torch.testing.assert_close(result, expected)
    result.sum().backward()
    assert model[0].weight.grad.is_cuda


def test_memory_is_counted():
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    x = torch.empty(1 << 20, device="cuda")
    assert torch.cuda.memory_allocated() - before >= 4 << 20
    del x
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() - before >= 4 << 20
    assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] >= 4 << 20
    assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total
    assert "cuda:0" in torch.cuda.memory_summary()


def test_memory_that_is_not_there():
    with pytest.raises(torch.cuda.OutOfMemoryError, match="cuda"):
        torch.empty(1 << 45, device="cuda")
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 45, device="cuda")


def test_memory_history(tmp_path):
    torch.cuda.memory._record_memory_history(max_entries=1000)
    try:
        x = torch.ones(1000, device="cuda")
        path = tmp_path / "snapshot.pickle"
        torch.cuda.memory._dump_snapshot(str(path))
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    snapshot = pickle.loads(path.read_bytes())
    assert any(entry["size"] >= x.nbytes for entry in snapshot["device_traces"][0])
    assert torch.cuda.memory_snapshot()


def test_random_numbers():
    torch.manual_seed(3)
    assert torch.cuda.initial_seed() == 3
    state = torch.cuda.get_rng_state()
    a = torch.rand(5, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.rand(5, device="cuda"), a)
    torch.cuda.manual_seed_all(4)
    assert torch.cuda.initial_seed() == 4
    generator = torch.Generator("cuda").manual_seed(1)
    assert generator.device.type == "cuda"
    first = torch.rand(3, device="cuda", generator=generator)
    generator.manual_seed(1)
    assert torch.equal(torch.rand(3, device="cuda", generator=generator), first)
    with torch.random.fork_rng(devices=[0]):
        torch.rand(2, device="cuda")
    assert len(torch.cuda.get_rng_state_all()) == 2
    assert torch.cuda.default_generators[1].device == torch.device("cuda:1")


def test_profiler_has_cuda_s_columns():
    x = torch.randn(64, 64, device="cuda")
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        (x @ x).relu_().sum().item()
    events = profile.key_averages()
    mm = next(event for event in events if event.key == "aten::mm")
    assert mm.device_time_total > 0
    table = events.table(sort_by="cuda_time_total", row_limit=5)
    assert "Self CUDA" in table
    assert "LOOM" not in table
    kinds = {event.device_type for event in profile.events()}
    assert torch.autograd.DeviceType.CUDA in kinds
    assert activities == [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    assert ProfilerActivity.CUDA in torch.profiler.supported_activities()


@pytest.mark.parametrize("kineto", [False, True])
@pytest.mark.parametrize("device", ["cuda", None])
def test_the_older_profiler_has_cuda_s_columns(kineto, device):
    x = torch.randn(64, 64, device="cuda")
    how = {"use_device": device} if device else {"use_cuda": True}
    with torch.autograd.profiler.profile(use_kineto=kineto, **how) as profile:
        (x @ x).sum().item()
    table = profile.key_averages().table(sort_by="self_cuda_time_total")
    assert "Self CUDA" in table
    assert sum(event.device_time_total for event in profile.key_averages()) > 0


def test_recurrent_layers_ask_for_no_cudnn():
    layer = torch.nn.LSTM(4, 4).cuda()
    layer.flatten_parameters()
    x = torch.randn(3, 2, 4)
    expected = layer.cpu()(x)[0]
    torch.testing.assert_close(layer.cuda()(x.cuda())[0].cpu(), expected)


def test_nvtx_ranges_are_the_profiler_s():
    with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as profile:
        with torch.cuda.nvtx.range("outer"):
            assert torch.cuda.nvtx.range_push("inner") == 1
            torch.cuda.nvtx.mark("point")
            torch.cuda.nvtx.range_pop()
        handle = torch.cuda.nvtx.range_start("loose")
        torch.cuda.nvtx.range_end(handle)
    assert {"outer", "inner", "point", "loose"} <= {event.key for event in profile.key_averages()}


def test_profiler_of_the_runtime_is_accepted():
    with torch.cuda.profiler.profile():
        torch.ones(1, device="cuda")
    torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStart())
    with pytest.raises(AttributeError, match="loom has no CUDA runtime"):
        torch.cuda.cudart().cudaHostRegister(0, 0, 0)


def test_pinned_memory_and_workers():
    data = torch.utils.data.TensorDataset(torch.arange(8.0).reshape(8, 1))
    loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True, num_workers=1)
    total = 0.0
    for (batch,) in loader:
        assert batch.is_pinned()
        total += batch.cuda(non_blocking=True).sum().item()
    assert total == 28


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_has_the_same_dropout_in_both_passes(reentrant):
    from torch.utils.checkpoint import checkpoint

    x = torch.ones(1000, device="cuda", requires_grad=True)
    y = checkpoint(lambda t: torch.dropout(t, 0.5, True) * t, x, use_reentrant=reentrant)
    y.sum().backward()
    # 2 x / (1 - p) where y is not 0
    assert torch.equal(x.grad == 0, y.detach() == 0)


@pytest.mark.parametrize(
    "backend", ["MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"]
)
def test_attention_takes_backends(backend):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q = torch.randn(1, 2, 8, 16)
    expected = torch.nn.functional.scaled_dot_product_attention(q, q, q)
    with sdpa_kernel(getattr(SDPBackend, backend)):
        result = torch.nn.functional.scaled_dot_product_attention(q.cuda(), q.cuda(), q.cuda())
    torch.testing.assert_close(result.cpu(), expected)


def test_settings_of_backends_can_be_set(settable_backends):
    with contextlib.ExitStack() as stack:
        stack.callback(setattr, torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)
        torch.backends.cudnn.benchmark = True
        before = torch.backends.cuda.matmul.allow_tf32
        stack.callback(setattr, torch.backends.cuda.matmul, "allow_tf32", before)
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cuda.enable_flash_sdp(True)
    assert not torch.backends.cudnn.is_available()


def test_data_parallel():
    model = torch.nn.DataParallel(_model().cuda(), device_ids=[0, 1])
    x = torch.randn(4, 8)
    torch.testing.assert_close(model(x.cuda()).cpu(), _model()(x))


def test_comm():
    import torch.cuda.comm

    x = torch.arange(4.0, device="cuda:0")
    copies = torch.cuda.comm.broadcast(x, [0, 1])
    assert [copy.device.index for copy in copies] == [0, 1]
    parts = torch.cuda.comm.scatter(x, [0, 1])
    assert torch.cuda.comm.gather(parts, destination=0).tolist() == x.tolist()


def test_kernels_for_cuda_are_registered_for_loom():
    library = torch.library.Library("loom_cuda_names", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CUDA")
    assert torch.ops.loom_cuda_names.twice(torch.ones(1, device="cuda")).item() == 2

    @torch.library.custom_op("loom_cuda_names::thrice", mutates_args=(), device_types="cuda")
    def thrice(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    assert thrice(torch.ones(1, device="cuda")).item() == 3


def test_torchscript_sees_the_name():
    @torch.jit.script
    def on_cuda(x: torch.Tensor):
        return x.device.type == "cuda"

    assert on_cuda(torch.ones(1, device="cuda"))
    assert not on_cuda(torch.ones(1))
    traced = torch.jit.trace(lambda x: x + torch.ones(1, device="cuda"), torch.ones(1).cuda())
    assert traced(torch.ones(1, device="cuda")).item() == 2
