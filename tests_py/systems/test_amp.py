# SPDX-License-Identifier: BSD-3-Clause
"""Mixed precision: autocast's lists, nesting, cache, custom functions, and the gradient scaler."""

import threading

import pytest
import torch
from torch import nn
from torch.amp import custom_bwd, custom_fwd
from torch.testing._internal.autocast_test_lists import AutocastTestLists, TestAutocast

# PyTorch's own table of what autocast does on CUDA: operators, arguments, expected dtypes.
LISTS = AutocastTestLists("loom")
TABLES = [
    # name of the list, module, dtype that it runs in (None: autocast's)
    ("torch_fp16", torch, None),
    ("nn_fp16", torch._C._nn, None),
    ("linalg_fp16", torch._C._linalg, None),
    ("methods_fp16", None, None),
    ("torch_fp32", torch, torch.float32),
    ("nn_fp32", torch._C._nn, torch.float32),
    ("methods_fp32", None, torch.float32),
    ("torch_need_autocast_promote", torch, torch.float32),
    ("torch_expect_builtin_promote", torch, torch.float32),
    ("methods_expect_builtin_promote", None, torch.float32),
]
PROMOTED = ("torch_expect_builtin_promote", "methods_expect_builtin_promote")
# cuDNN's own operators; einsum, whose equation the harness takes for a list of tensors; and equal,
# which compares different dtypes on CUDA and refuses them on the CPU, and so here.
NOT_HERE = ("cudnn_convolution", "cudnn_convolution_transpose", "einsum", "equal")


def cases():
    for name, module, runs_in in TABLES:
        # The lists are about float16: PyTorch promotes no pair of float16 and bfloat16.
        dtypes = [torch.float16] if "promote" in name else [torch.bfloat16, torch.float16]
        for op, args, *rest in getattr(LISTS, name):
            if op in NOT_HERE or True in [r for r in rest if isinstance(r, bool)]:
                continue
            out_type = rest[0] if name in PROMOTED else None
            kwargs = next((r for r in rest if isinstance(r, dict)), {})
            for dtype in dtypes:
                options = (runs_in or dtype, out_type, module, kwargs, dtype)
                yield pytest.param(op, args, options, id=f"{name}-{op}-{dtype}")


@pytest.mark.filterwarnings("ignore:torch.chain_matmul is deprecated")
@pytest.mark.filterwarnings("ignore:Using torch.cross without specifying the dim")
@pytest.mark.parametrize(("op", "args", "options"), list(cases()))
def test_operators_run_in_the_dtype_that_cuda_gives_them(op, args, options):
    runs_in, out_type, module, kwargs, dtype = options
    TestAutocast()._run_autocast_outofplace(
        op, args, runs_in, "loom", out_type, module, kwargs, dtype
    )


def test_einsum_runs_in_lower_precision():
    a, b = torch.randn(2, 3, device="loom"), torch.randn(3, 4, device="loom")
    with torch.autocast("loom"):
        product = torch.einsum("ij,jk->ik", a, b)
    assert torch.equal(product, a.bfloat16() @ b.bfloat16())


def test_a_loss_that_would_overflow_says_what_to_use():
    p, y = torch.rand(4, device="loom"), torch.ones(4, device="loom")
    with torch.autocast("loom"), pytest.raises(RuntimeError, match="BCEWithLogitsLoss"):
        nn.functional.binary_cross_entropy(p, y)
    with torch.autocast("loom"), torch.autocast("loom", enabled=False):
        assert nn.functional.binary_cross_entropy(p, y).isfinite()


def test_products_agree_with_those_of_the_cpu():
    a = torch.randn(8, 8, device="loom")
    with torch.autocast("loom"), torch.autocast("cpu"):
        assert torch.equal((a @ a).cpu(), a.cpu() @ a.cpu())
        assert (a @ a).dtype == torch.bfloat16


def test_the_default_dtype_is_bfloat16_in_every_thread():
    found = []

    def look():
        with torch.autocast("loom"):
            found.append(torch.get_autocast_dtype("loom"))
            found.append((torch.ones(2, 2, device="loom") @ torch.ones(2, 2, device="loom")).dtype)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    look()
    assert found == [torch.bfloat16] * 4


def test_the_module_says_and_sets_what_autocast_does():
    assert torch.loom.get_amp_supported_dtype() == [torch.bfloat16, torch.float16]
    assert torch.loom.get_autocast_dtype() == torch.loom.amp.DEFAULT_AUTOCAST_DTYPE
    assert not torch.loom.is_autocast_enabled()
    with torch.autocast("loom"):
        assert torch.loom.is_autocast_enabled()
    a = torch.ones(2, 2, device="loom")
    torch.loom.set_autocast_dtype(torch.float16)
    torch.loom.set_autocast_enabled(True)
    try:
        assert (a @ a).dtype == torch.float16
        with torch.autocast("loom"):
            assert (a @ a).dtype == torch.float16
    finally:
        torch.loom.set_autocast_enabled(False)
        torch.loom.set_autocast_dtype(torch.bfloat16)
        torch.clear_autocast_cache()
    assert (a @ a).dtype == torch.float32
    with pytest.raises(ValueError, match="bfloat16"):
        torch.loom.set_autocast_dtype(torch.float64)


def test_regions_nest_and_restore_what_was():
    a = torch.ones(2, 2, device="loom")
    with torch.autocast("loom", dtype=torch.bfloat16):
        with torch.autocast("loom", dtype=torch.float16):
            assert (a @ a).dtype == torch.float16
        assert (a @ a).dtype == torch.bfloat16
        with torch.autocast("loom", enabled=False):
            assert (a @ a).dtype == torch.float32
            with torch.autocast("loom", dtype=torch.float16):
                assert (a @ a).dtype == torch.float16
        with pytest.raises(ZeroDivisionError), torch.autocast("loom", dtype=torch.float16):
            raise ZeroDivisionError
        assert (a @ a).dtype == torch.bfloat16
    assert (a @ a).dtype == torch.float32


@torch.autocast("loom", dtype=torch.float16)
def decorated(a):
    return a @ a


def test_as_a_decorator():
    assert decorated(torch.ones(2, 2, device="loom")).dtype == torch.float16


@pytest.mark.parametrize("cached", [True, False])
def test_weights_are_cast_once_in_a_region(cached):
    weight = nn.Parameter(torch.randn(64, 64, device="loom"))
    x = torch.randn(4, 64, device="loom")
    with torch.autocast("loom", cache_enabled=cached):
        x @ weight
        before = torch.loom.memory_stats()["allocation.all.allocated"]
        x @ weight
        made = torch.loom.memory_stats()["allocation.all.allocated"] - before
    # The result and x in lower precision, and the weight when it is not kept.
    assert made == (2 if cached else 3)


def test_the_cache_ends_with_the_region():
    weight = nn.Parameter(torch.ones(2, 2, device="loom"))
    with torch.autocast("loom"):
        first = weight @ weight
    with torch.no_grad():
        weight.fill_(2)
    with torch.autocast("loom"):
        second = weight @ weight
    assert (first[0, 0].item(), second[0, 0].item()) == (2, 8)


class InFloat32(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="loom", cast_inputs=torch.float32)
    def forward(ctx, a, b):
        assert not torch.is_autocast_enabled("loom")
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    @custom_bwd(device_type="loom")
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return grad @ b.t(), a.t() @ grad


class InAutocast(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="loom")
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a @ a

    @staticmethod
    @custom_bwd(device_type="loom")
    def backward(ctx, grad):
        (a,) = ctx.saved_tensors
        assert torch.is_autocast_enabled("loom")  # as in the forward
        return (grad @ a.t() + a.t() @ grad).to(a.dtype)


def test_custom_functions_choose_their_precision():
    a = torch.randn(4, 4, device="loom", requires_grad=True)
    with torch.autocast("loom"):
        exact = InFloat32.apply(a, a.bfloat16())
        lower = InAutocast.apply(a)
    assert (exact.dtype, lower.dtype) == (torch.float32, torch.bfloat16)
    assert not torch.is_autocast_enabled("loom")
    (exact.sum() + lower.float().sum()).backward()
    assert a.grad.isfinite().all()


def test_gradients_have_the_dtype_of_their_leaves():
    host = torch.randn(4, 4)
    gradients = {}
    for device in ("loom", "cpu"):
        a = host.to(device, copy=True).requires_grad_()
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = (a @ a).float().sum()
        loss.backward()
        assert a.grad.dtype == torch.float32
        gradients[device] = a.grad.cpu()
    torch.testing.assert_close(gradients["loom"], gradients["cpu"])


def test_other_data_types_are_refused():
    with pytest.warns(UserWarning, match="loom"), torch.autocast("loom", dtype=torch.float64):
        assert not torch.is_autocast_enabled("loom")


def test_autocast_of_the_cpu_leaves_loom_alone():
    a = torch.randn(4, 4, device="loom")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (a @ a).dtype == torch.float32


def test_scaled_training_learns():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)).to("loom")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("loom", init_scale=2.0**10)
    x = torch.randn(64, 8, device="loom")
    y = x.sum(1, keepdim=True)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        with torch.autocast("loom", dtype=torch.float16):
            loss = nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]


def test_the_scaler_skips_infinite_gradients():
    weight = nn.Parameter(torch.ones(3, device="loom"))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("loom", init_scale=4.0, growth_interval=1)
    scaler.scale((weight * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.detach().cpu().tolist() == [1, 1, 1]
    assert scaler.get_scale() == 2.0


def test_a_step_that_overflows_is_skipped_and_training_recovers():
    torch.manual_seed(0)
    model = nn.Linear(4, 1).to("loom")
    before = model.weight.detach().clone()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("loom", init_scale=2.0**40)
    x = torch.randn(32, 4, device="loom")
    y = x.sum(1, keepdim=True)
    scales, losses = [], []
    for _ in range(60):
        optimizer.zero_grad()
        with torch.autocast("loom", dtype=torch.float16):
            loss = nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        losses.append(loss.item())
        if len(scales) == 1:
            assert torch.equal(model.weight, before)  # the first step overflowed
    assert scales[0] == 2.0**39
    assert scales[-1] == scales[-10] < 2.0**32  # it has found a scale that fits
    assert losses[-1] < 0.5 * losses[0]
    state = scaler.state_dict()
    other = torch.amp.GradScaler("loom")
    other.load_state_dict(state)
    assert other.get_scale() == scaler.get_scale()
