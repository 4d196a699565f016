# SPDX-License-Identifier: BSD-3-Clause
"""torch.loom beside torch.cuda: every public name is there, or has a reason not to be."""

import subprocess
import sys
import threading
import types

import pytest
import torch
from torch.profiler import ProfilerActivity

from torch_loom import _top, monitor

_NVIDIA = "of NVIDIA's libraries or runtime, which loom has not"
_STORAGES = "typed storages, which PyTorch is about to remove"
_RAW = "raw pointers of CUDA's allocator; loom's memory has torch.empty()"
_NAME = "has another name in torch.loom: Graph"
_HARDWARE = "sensors of NVIDIA's devices"

# What torch.cuda has and torch.loom has not, and why. A name that PyTorch adds and loom lacks
# fails the test below: give it to torch.loom, or a line to this table.
NOT_APPLICABLE = {
    "BFloat16Storage": _STORAGES,
    "BoolStorage": _STORAGES,
    "ByteStorage": _STORAGES,
    "CUDAGraph": _NAME,
    "CUDAPluggableAllocator": _RAW,
    "CharStorage": _STORAGES,
    "ComplexDoubleStorage": _STORAGES,
    "ComplexFloatStorage": _STORAGES,
    "CudaError": _NVIDIA,
    "DeferredCudaCallError": _NVIDIA,
    "DoubleStorage": _STORAGES,
    "ExternalStream": _NVIDIA,
    "FloatStorage": _STORAGES,
    "GreenContext": "cores are split between devices, by LOOM_DEVICES",
    "HalfStorage": _STORAGES,
    "IntStorage": _STORAGES,
    "LongStorage": _STORAGES,
    "ShortStorage": _STORAGES,
    "caching_allocator_alloc": _RAW,
    "caching_allocator_delete": _RAW,
    "caching_allocator_disabled": _RAW,
    "caching_allocator_enable": _RAW,
    "change_current_allocator": _RAW,
    "check_error": _NVIDIA,
    "clock_rate": _HARDWARE,
    "cudaStatus": _NVIDIA,
    "cudart": _NVIDIA,
    "current_blas_handle": _NVIDIA,
    "current_solver_handle": _NVIDIA,
    "get_allocator_backend": "there is one allocator",
    "get_gencode_flags": _NVIDIA,
    "get_stream_from_external": _NVIDIA,
    "has_half": "a constant of old code: True",
    "has_magma": _NVIDIA,
    "power_draw": _HARDWARE,
    "temperature": _HARDWARE,
}
# Modules of torch.cuda.
NOT_APPLICABLE_MODULES = {
    "jiterator": "compiles CUDA C++; use torch.compile",
    "nccl": "use torch.distributed",
    "profiler": "use torch.profiler",
    "sparse": "empty",
    "tunable": _NVIDIA,
}


def _public(module):
    """Names that a module gives to programs, without what it imports for itself."""
    declared = set(module.__all__)
    own = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", "").startswith("torch.cuda")
        and (isinstance(value, type | types.FunctionType))
    }
    return declared | own


def test_every_name_of_torch_cuda_is_there_or_has_a_reason():
    missing = _public(torch.cuda) - set(dir(torch.loom)) - set(vars(torch.loom))
    modules = {n for n in missing if isinstance(getattr(torch.cuda, n), types.ModuleType)}
    left_over = {"classproperty", "DEVICE_REQUIREMENT", "PYTORCH_RELEASES_CODE_CC"}
    assert missing - modules - left_over == set(NOT_APPLICABLE) & set(dir(torch.cuda))
    assert modules == set(NOT_APPLICABLE_MODULES) & set(dir(torch.cuda))


@pytest.mark.parametrize("module", ["amp", "memory", "random", "streams", "graphs", "nvtx"])
def test_every_name_of_its_modules_is_there_or_has_a_reason(module):
    theirs, ours = getattr(torch.cuda, module), getattr(torch.loom, module)
    names = set(theirs.__all__ if hasattr(theirs, "__all__") else ())
    reasons = set(NOT_APPLICABLE) | {"amp_definitely_not_available"}
    missing = names - set(dir(ours)) - set(dir(torch.loom))
    assert missing - reasons == set()


def test_what_is_there_is_public():
    assert set(torch.loom.__all__) <= set(dir(torch.loom))
    assert torch.loom.__version__


def test_autocast_and_scaler_by_their_names_in_cuda():
    x = torch.ones(2, 2, device="loom")
    with torch.loom.amp.autocast():
        assert (x @ x).dtype == torch.bfloat16
    with torch.loom.amp.autocast(dtype=torch.float16):
        assert (x @ x).dtype == torch.float16
    with torch.loom.amp.autocast(enabled=False):
        assert (x @ x).dtype == torch.float32
    scaler = torch.loom.amp.GradScaler(init_scale=8.0)
    assert scaler.scale(torch.ones(1, device="loom")).item() == 8
    assert isinstance(scaler, torch.amp.GradScaler)


def test_custom_functions_by_their_names_in_cuda():
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.loom.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @torch.loom.amp.custom_bwd
        def backward(ctx, grad):
            return grad * 2

    x = torch.ones(2, device="loom", dtype=torch.float16, requires_grad=True)
    with torch.loom.amp.autocast():
        y = Double.apply(x)
    assert y.dtype == torch.float32
    y.sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_pools_have_memory_of_their_own():
    torch.loom.empty_cache()
    pool = torch.loom.MemPool()
    assert pool.use_count() == 1
    with torch.loom.use_mem_pool(pool):
        x = torch.ones(1 << 20, device="loom")
    assert pool.use_count() == 2
    outside = torch.ones(1 << 20, device="loom")
    (segment,) = pool.snapshot()
    begin, end = segment["address"], segment["address"] + segment["total_size"]
    assert begin <= x.data_ptr() < end
    assert not begin <= outside.data_ptr() < end
    del x
    torch.loom.empty_cache()
    assert pool.snapshot()  # kept for the pool's next use
    del pool
    torch.loom.empty_cache()
    assert not any(segment["address"] == begin for segment in torch.loom.memory_snapshot())


def test_pools_are_of_the_thread_that_uses_them():
    pool = torch.loom.MemPool()
    made = []
    with torch.loom.use_mem_pool(pool, device=1):
        thread = threading.Thread(
            target=lambda: made.append(torch.ones(1 << 20, device="loom:1").data_ptr())
        )
        thread.start()
        thread.join()
    assert pool.snapshot() == []
    with pytest.raises(ValueError, match="expected allocator=None"):
        torch.loom.MemPool(allocator=object())


def test_sync_debug_mode_finds_what_waits():
    x = torch.ones(4, device="loom")
    assert torch.loom.get_sync_debug_mode() == 0
    try:
        torch.loom.set_sync_debug_mode("error")
        assert torch.loom.get_sync_debug_mode() == 2
        for wait in (lambda: x.sum().item(), lambda: x.cpu(), lambda: x.nonzero()):
            with pytest.raises(RuntimeError, match="called a synchronizing loom operation"):
                wait()
        torch.loom.synchronize()  # what a program asks for
        y = x * 2
        torch.loom.set_sync_debug_mode(1)
        with pytest.warns(UserWarning, match="called a synchronizing loom operation"):
            assert y.tolist() == [2] * 4
        with pytest.raises(ValueError, match="expected one of"):
            torch.loom.set_sync_debug_mode("loud")
    finally:
        torch.loom.set_sync_debug_mode("default")
    assert x.sum().item() == 4


def test_types_of_tensors():
    x = torch.loom.FloatTensor(2, 3)
    assert x.shape == (2, 3)
    assert x.type() == "torch.loom.FloatTensor"
    assert isinstance(x, torch.loom.FloatTensor)
    assert not isinstance(x, torch.loom.LongTensor)
    assert not isinstance(x.cpu(), torch.loom.FloatTensor)
    assert torch.loom.LongTensor([3, 4]).tolist() == [3, 4]
    assert repr(torch.loom.HalfTensor) == "<class 'torch.loom.HalfTensor'>"


def test_old_names_of_memory():
    x = torch.ones(1000, device="loom")
    assert torch.loom.memory_cached() == torch.loom.memory_reserved() >= x.nbytes
    assert torch.loom.max_memory_cached() == torch.loom.max_memory_reserved()
    del x
    torch.loom.reset_max_memory_allocated()
    assert torch.loom.max_memory_allocated() == torch.loom.memory_allocated()


def test_statistics_of_pinned_memory_are_reset():
    x = torch.ones(1 << 16).pin_memory()
    assert torch.loom.host_memory_stats()["allocated_bytes.current"] >= x.nbytes
    nested = torch.loom.host_memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["current"] >= x.nbytes
    torch.loom.reset_accumulated_host_memory_stats()
    assert torch.loom.host_memory_stats()["allocations.allocated"] == 0
    torch.loom.reset_peak_host_memory_stats()
    stats = torch.loom.host_memory_stats()
    assert stats["allocated_bytes.peak"] == stats["allocated_bytes.current"]


def test_ranges_are_in_profiles():
    with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as profile:
        with torch.loom.nvtx.range("step {}", 3):
            assert torch.loom.nvtx.range_push("inner") == 1
            assert torch.loom.nvtx.range_pop() == 1
        torch.loom.nvtx.range_end(torch.loom.nvtx.range_start("loose"))
        torch.loom.nvtx.mark("point")
    assert torch.loom.nvtx.range_pop() == -2
    assert {"step 3", "inner", "loose", "point"} <= {e.key for e in profile.key_averages()}


def test_this_process_is_among_those_that_use_loom():
    import os

    x = torch.randn(256, 256, device="loom")
    (x @ x).sum().item()
    use = next(use for use in monitor.processes() if use.pid == os.getpid())
    assert use.streams[0] >= 1
    assert use.resident_bytes > 1 << 20
    assert str(os.getpid()) in torch.loom.list_gpu_processes()
    assert "loom:0" in torch.loom.list_gpu_processes()
    assert 0 <= torch.loom.utilization() <= 100
    assert 0 <= torch.loom.memory_usage() <= 100
    assert torch.loom.device_memory_used() >= torch.loom.memory_reserved()


def test_the_table_counts_what_ran_in_between():
    def use(pid, busy):
        return monitor.ProcessUse(pid, "python train.py", {0: 2}, {0: busy}, 3 << 20)

    text = _top.table([use(7, 5.0), use(8, 1.0)], [use(7, 4.0)], seconds=2.0, width=60)
    lines = text.splitlines()
    assert lines[1].split() == ["7", "loom:0", "2", "0.50", "3", "MB", "python", "train.py"]
    assert lines[2].split()[3] == "0.00"  # it is new
    assert _top.table([], [], 1.0, 60).splitlines()[1] == "no process uses loom"


def test_top_prints_one_table():
    done = subprocess.run(
        [sys.executable, "-m", "torch_loom", "top", "--once", "--interval", "0.1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith("     PID")


def test_what_cuda_has_and_loom_has_not():
    assert not torch.loom.is_tf32_supported()
    assert torch.loom.get_arch_list()
