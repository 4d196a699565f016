# SPDX-License-Identifier: BSD-3-Clause
"""Settings of the process and of a thread: work has those of its submission, however late it runs.

Work is queued behind something long, and the setting is changed while it waits.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from support.graphs import capture
from torch_loom._patches import settings

pytestmark = pytest.mark.usefixtures("settable_backends")

Compute = Callable[[], torch.Tensor]
TINY = 1e-40  # a denormal number of float32


def _keep_busy() -> None:
    x = torch.full((512, 512), 1e-3, device="loom", dtype=torch.float32)
    for _ in range(20):
        x = x @ x


def _data(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to("loom", dtype)


@contextmanager
def _set(setter: Callable[..., object], value: object, before: object) -> Iterator[None]:
    setter(value)
    try:
        yield
    finally:
        setter(before)


def _attribute(owner: object, name: str, value: object) -> AbstractContextManager[None]:
    return _set(lambda new: setattr(owner, name, new), value, getattr(owner, name))


SETTINGS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "mkldnn": lambda: torch.backends.mkldnn.flags(enabled=False, allow_tf32=False),
    "mkldnn enabled": lambda: _attribute(torch.backends.mkldnn, "enabled", False),
    "mkldnn deterministic": lambda: _attribute(torch.backends.mkldnn, "deterministic", True),
    "precision": lambda: _attribute(torch.backends, "fp32_precision", "bf16"),
    "precision flags": lambda: torch.backends.flags(fp32_precision="bf16"),
    "precision of products": lambda: _attribute(
        torch.backends.mkldnn.matmul, "fp32_precision", "bf16"
    ),
    "precision of convolutions": lambda: _attribute(
        torch.backends.mkldnn.conv, "fp32_precision", "bf16"
    ),
    "precision of recurrent layers": lambda: _attribute(
        torch.backends.mkldnn.rnn, "fp32_precision", "bf16"
    ),
    "matmul precision": lambda: _set(torch.set_float32_matmul_precision, "medium", "highest"),
    "nnpack": lambda: torch.backends.nnpack.flags(enabled=False),
    "deterministic": lambda: _set(torch.use_deterministic_algorithms, True, False),
    "fill": lambda: _attribute(torch.utils.deterministic, "fill_uninitialized_memory", False),
    "default dtype": lambda: _set(torch.set_default_dtype, torch.float64, torch.float32),
    "default tensor type": lambda: _set(
        torch.set_default_tensor_type, torch.DoubleTensor, torch.FloatTensor
    ),
    "sparse invariants": lambda: torch.sparse.check_sparse_tensor_invariants(True),
    "autocast": lambda: torch.autocast("loom"),
    "inference": torch.inference_mode,
    "no gradients": torch.no_grad,
    "attention by its formula": lambda: sdpa_kernel(SDPBackend.MATH),
    "flushed denormals": lambda: _set(torch.set_flush_denormal, True, False),
    "threads": lambda: _set(torch.set_num_threads, 1, torch.get_num_threads()),
}


def _operators() -> dict[str, Compute]:
    """Kernels of loom's own and of ATen's, and what ATen decides by a setting."""
    square, narrow = _data(192, 192), _data(256, 256, dtype=torch.bfloat16)
    half, batch = _data(128, 128, dtype=torch.float16), _data(3, 64, 64)
    image, weight = _data(4, 16, 20, 20), _data(16, 16, 3, 3)
    part = weight[:, :4].contiguous()
    query, steps, layer = _data(2, 2, 128, 32), _data(20, 8, 32), torch.nn.LSTM(32, 32).to("loom")
    whole = torch.arange(1, 900, device="loom")
    values, places = _data(10_000), torch.arange(10_000, device="loom") % 7
    tiny = torch.full((70_000,), TINY, device="loom")
    none = torch.zeros(7, device="loom")
    return {
        "product": lambda: square @ square,
        "bfloat16 product": lambda: narrow @ narrow,
        "float16 vector product": lambda: half @ half[0],
        "batch of products": lambda: torch.bmm(batch, batch),
        "convolution": lambda: functional.conv2d(image, weight),
        "grouped convolution": lambda: functional.conv2d(image, part, groups=4),
        "bfloat16 convolution": lambda: functional.conv2d(image.bfloat16(), weight.bfloat16()),
        "attention": lambda: functional.scaled_dot_product_attention(query, query, query),
        "integers": lambda: torch.special.i0e(whole),
        "integer quotients": lambda: whole / 7,
        "sums at indices": lambda: none.index_put((places,), values, accumulate=True),
        "denormals": lambda: tiny * 2,
        "denormals in order": lambda: torch.cumsum(tiny[:700], 0),
        "lstm": lambda: layer(steps)[0],
    }


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("setting", SETTINGS)
def test_queued_work_has_the_settings_of_its_submission(setting: str) -> None:
    computes = _operators()

    def compute() -> dict[str, torch.Tensor]:
        return {name: call() for name, call in computes.items()}

    def on_host(made: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: tensor.cpu() for name, tensor in made.items()}

    without = on_host(compute())
    with SETTINGS[setting]():
        wanted = on_host(compute())
        _keep_busy()
        late = compute()
    later = on_host(compute())
    for name, tensor in on_host(late).items():
        assert torch.equal(tensor, wanted[name]), name
        assert torch.equal(later[name], without[name]), name


def _of_denormals() -> dict[str, Compute]:
    """A fused program, one that cores share, a kernel of ATen's, a product and a sum."""
    few, many = torch.full((64,), TINY), torch.full((70_000,), TINY)
    few, many, ones = few.to("loom"), many.to("loom"), torch.ones(64, 64, device="loom")
    return {
        "program": lambda: few * 2,
        "large program": lambda: many * 2,
        "in order": lambda: torch.cumsum(few, 0),
        "product": lambda: ones @ (ones * few),
        "sum": lambda: many.view(7, -1).sum(0),
    }


def test_denormals_are_flushed_where_the_submission_says_so() -> None:
    computes = _of_denormals()
    _keep_busy()
    before = {name: compute() for name, compute in computes.items()}
    with _set(torch.set_flush_denormal, True, False):
        flushed = {name: compute() for name, compute in computes.items()}
    after = {name: compute() for name, compute in computes.items()}
    for name in computes:
        assert flushed[name].cpu().count_nonzero() == 0, name
        assert before[name].cpu().all(), name
        assert torch.equal(before[name], after[name]), name


def test_denormals_of_two_threads_on_one_stream() -> None:
    computes = _of_denormals()
    together = threading.Barrier(2)
    results: dict[bool, list[torch.Tensor]] = {False: [], True: []}

    def submit(flush: bool) -> None:
        torch.set_flush_denormal(flush)
        together.wait()
        for _ in range(20):
            results[flush] += [compute() for compute in computes.values()]

    threads = [threading.Thread(target=submit, args=(flush,)) for flush in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(kept.cpu().all() for kept in results[False])
    assert not any(flushed.cpu().any() for flushed in results[True])


def test_a_replay_flushes_denormals_as_its_capture_did() -> None:
    tiny = torch.full((64,), TINY, device="loom")
    with _set(torch.set_flush_denormal, True, False):
        flushing, flushed = capture(lambda: tiny * 2)
    keeping, kept = capture(lambda: tiny * 2)
    with _set(torch.set_flush_denormal, True, False):
        flushing.replay()
        keeping.replay()
    assert flushed.cpu().count_nonzero() == 0
    assert kept.cpu().all()
    flushed.fill_(1)
    flushing.replay()
    assert flushed.cpu().count_nonzero() == 0


# Setters of torch._C that need no care: only the thread that submits looks at what they set, other
# devices do, or nobody does who computes.
LOOKED_AT_BY_CALLERS = {
    "_set_autograd_fallback_mode",
    "_set_backcompat_broadcast_warn",
    "_set_backcompat_keepdim_warn",
    "_set_cached_tensors_enabled",
    "_set_conj",
    "_set_default_mobile_cpu_allocator",
    "_set_dispatch_mode",
    "_set_dtensor_allow_implicit_replication",
    "_set_fwd_grad_enabled",
    "_set_generator_metaclass",
    "_set_grad_enabled",
    "_set_grad_layout_enforcement_enabled",
    "_set_graph_exec_group",
    "_set_graph_executor_optimize",
    "_set_math_sdp_allow_fp16_bf16_reduction",
    "_set_meta_in_tls_dispatch_include",
    "_set_multithreading_enabled",
    "_set_neg",
    "_set_only_lift_cpu_tensors",
    "_set_override_stale_capture_stream",
    "_set_print_stack_traces_on_fatal_signal",
    "_set_sdp_priority_order",
    "_set_sdp_use_flash",
    "_set_sdp_use_math",
    "_set_sdp_use_mem_efficient",
    "_set_sdp_use_overrideable",
    "_set_should_use_format_with_string_table",
    "_set_skip_next_torch_function",
    "_set_tensor_metadata",
    "_set_thread_name",
    "_set_throw_on_mutable_data_ptr",
    "_set_torch_function_state",
    "_set_tracing_state",
    "_set_value_trace",
    "_set_view_replay_enabled",
    "_set_warnAlways",
    "_set_storage_access_error_msg",
    "_set_storage_data_ptr_access_error_msg",
    "_set_warn_deprecated_on_mutable_data_ptr",
    "_set_warn_on_accumulate_grad_stream_mismatch",
    "_set_worker_pids",
    "_set_worker_signal_handlers",
}
OTHER_DEVICES = {
    "_set_blas_preferred_backend",
    "_set_cublaslt_prefer_grouped_gemm",
    "_set_cublas_allow_bf16_reduced_precision_reduction",
    "_set_cublas_allow_fp16_accumulation",
    "_set_cublas_allow_fp16_reduced_precision_reduction",
    "_set_cublas_allow_tf32",
    "_set_cudnn_allow_tf32",
    "_set_cudnn_benchmark",
    "_set_cudnn_depthwise_kernel",
    "_set_cudnn_deterministic",
    "_set_cudnn_enabled",
    "_set_linalg_preferred_backend",
    "_set_miopen_immediate",
    "_set_rocm_fa_preferred_backend",
    "_set_sdp_use_cudnn",
    "_set_sdp_use_fa3",
    "_set_sm_carveout_experimental",
}


def test_every_setting_of_torch_has_been_thought_of() -> None:
    setters = {name for name in dir(torch._C) if name.startswith("_set_")}
    assert setters <= {*settings._SETTERS, *LOOKED_AT_BY_CALLERS, *OTHER_DEVICES}


def test_setters_keep_their_names() -> None:
    assert torch._C._set_mkldnn_enabled.__name__ == "_set_mkldnn_enabled"


def test_a_replay_runs_its_products_when_onednn_is_off() -> None:
    x = _data(256, 256, dtype=torch.bfloat16)
    expected = (x @ x).cpu()
    graph, y = capture(lambda: x @ x)
    with _attribute(torch.backends.mkldnn, "enabled", False):
        graph.replay()
        torch.loom.synchronize()
    torch.testing.assert_close(y.cpu(), expected, rtol=2e-2, atol=2e-1)


@pytest.mark.parametrize("inner", [64, 1024, 1100])
@pytest.mark.parametrize("columns", [1, 40, 200])
def test_products_run_when_somebody_else_switches_onednn_off(inner: int, columns: int) -> None:
    # As C++ can: without waiting for the queue.
    switch = torch._C._set_mkldnn_enabled.__wrapped__
    x, y = (_data(*sizes, dtype=torch.bfloat16) for sizes in ((100, inner), (inner, columns)))
    expected = (x @ y).cpu()
    _keep_busy()
    product = x @ y
    switch(False)
    try:
        torch.testing.assert_close(product.cpu(), expected, rtol=2e-2, atol=5e-1)
    finally:
        switch(True)


def test_a_setting_changed_by_a_command_does_not_wait_for_itself() -> None:
    changed = threading.Event()

    def hook(_: torch.Tensor) -> None:
        with _attribute(torch.backends.mkldnn, "deterministic", True):
            changed.set()

    x = torch.ones(3, device="loom", requires_grad=True)
    x.register_hook(hook)
    (x * 2).sum().backward()
    assert changed.is_set()
