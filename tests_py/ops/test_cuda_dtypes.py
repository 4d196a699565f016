# SPDX-License-Identifier: BSD-3-Clause
"""Where CUDA's kernels take a dtype that cpu's do not, loom's take it, since libraries send what is
not on the device type "cpu" that way. The reference is cpu in a wider dtype.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")

SAMPLES = 6
WIDER = {
    torch.bool: torch.uint8,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.complex32: torch.complex64,
}
# Random numbers, whose values are compared elsewhere.
RANDOM = {"nn_functional_rrelu"}
# Internals of CUDA, which cpu has no kernel of for any dtype.
CUDA_ONLY = {
    "torch_ops_aten__flash_attention_forward",
    "torch_ops_aten__efficient_attention_forward",
}
CASES = [
    pytest.param(op, dtype, id=f"{op.formatted_name}-{str(dtype).removeprefix('torch.')}")
    for op in op_db
    if op.formatted_name not in CUDA_ONLY
    for dtype in sorted(set(op.dtypesIfCUDA) - set(op.dtypes), key=str)
]


def mapped(value: Any, change: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(each, change) for each in value)
    if isinstance(value, dict):
        return {key: mapped(each, change) for key, each in value.items()}
    return value


def wider(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    if tensor.dtype in WIDER:
        return tensor.to(WIDER[tensor.dtype])
    return tensor


def floating(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to(torch.float64) if not tensor.is_floating_point() else tensor


def check(actual: Any, expected: torch.Tensor, dtype: torch.dtype) -> None:
    actual, expected = torch.as_tensor(actual).detach().cpu(), torch.as_tensor(expected).detach()
    assert actual.shape == expected.shape
    limit = {torch.bfloat16: 2e-2, torch.bool: 0}.get(dtype, 4e-3 if dtype in WIDER else 1e-6)
    most = torch.finfo(dtype).max if dtype.is_floating_point or dtype.is_complex else None
    wide = torch.complex128 if expected.is_complex() else torch.float64
    actual, expected = actual.to(wide), expected.to(wide)
    if most is not None and expected.is_complex():  # neither part may have left the range
        expected = torch.view_as_real(expected)
        actual = torch.view_as_real(actual)
    if most is not None:
        held = expected.abs() <= most
        actual, expected = actual[held], expected[held]
    # Composites round between their steps, so errors are relative to the largest of the terms.
    size = expected[expected.isfinite()].abs().max().item() if expected.isfinite().any() else 1.0
    torch.testing.assert_close(
        actual, expected, rtol=limit, atol=limit * max(1.0, size), equal_nan=True
    )


def nansum(x: torch.Tensor, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> torch.Tensor:
    return x.masked_fill(x.isnan(), 0).sum(dim, keepdim, **kwargs)


def nanmean(x: torch.Tensor, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> torch.Tensor:
    return nansum(x, dim, keepdim, **kwargs) / x.isnan().logical_not().sum(dim, keepdim)


REFERENCES = {"nansum": nansum, "nanmean": nanmean}


def samples(op: Any, dtype: torch.dtype) -> list[Any]:
    return list(itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES))


@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_dtypes_of_cuda_are_taken(op: Any, dtype: torch.dtype) -> None:
    fallbacks = torch.loom.fallbacks()
    for sample in samples(op, dtype):
        args, kwargs = (sample.input, *sample.args), sample.kwargs
        on_loom = mapped((args, kwargs), lambda tensor: tensor.detach().to("loom"))
        found = op(*on_loom[0], **on_loom[1])
        change = floating if op.name == "histc" else wider
        on_cpu = mapped((args, kwargs), change)
        expected = REFERENCES.get(op.name, op)(*on_cpu[0], **on_cpu[1])
        many = isinstance(found, (list, tuple))
        for actual, reference in zip(
            *((found, expected) if many else ((found,), (expected,))), strict=True
        ):
            if op.formatted_name not in RANDOM:
                check(actual, reference, dtype)
    assert torch.loom.fallbacks() == fallbacks


def half_complex(*shape: int) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(*shape, dtype=torch.complex64).to(torch.complex32)


def test_results_have_the_dtypes_of_cuda() -> None:
    z, x = half_complex(4, 4).to("loom"), torch.rand(4, 4, device="loom")
    assert z.exp().dtype == (z / z).dtype == z.sum().dtype == (z**2).dtype == torch.complex32
    assert z.angle().dtype == torch.float16
    assert (z / x).dtype == (x / z).dtype == torch.complex64
    assert z.sum(dtype=torch.complex128).dtype == torch.complex128
    assert torch.fft.rfft(x.half()).dtype == torch.complex32
    assert torch.fft.irfft(z).dtype == torch.float16
    assert torch.histc(torch.arange(5, device="loom"), 3).dtype == torch.int64
    assert torch.ones(2, 2, dtype=torch.bool, device="loom").trace().dtype == torch.int64
    assert torch.ones(2, dtype=torch.bool, device="loom").abs().dtype == torch.bool


def test_out_and_in_place() -> None:
    host = half_complex(3, 5)
    z, expected = host.to("loom"), host.to(torch.complex64).exp()
    out = torch.empty(0, dtype=torch.complex32, device="loom")
    assert torch.exp(z, out=out) is out
    check(out, expected, torch.complex32)
    pointer, version = z.data_ptr(), z._version
    assert z.exp_() is z
    assert (z.data_ptr(), z._version) == (pointer, version + 1)
    check(z, expected, torch.complex32)
    angle = torch.empty(3, 5, dtype=torch.float16, device="loom")
    torch.angle(host.to("loom"), out=angle)
    check(angle, host.to(torch.complex64).angle(), torch.float16)
    counts = torch.empty(0, dtype=torch.int32, device="loom")
    torch.histc(torch.arange(10, dtype=torch.int32, device="loom"), 5, out=counts)
    assert counts.tolist() == [2] * 5
    half = torch.rand(16, dtype=torch.float16)
    spectrum = torch.empty(0, dtype=torch.complex32, device="loom")
    torch.fft.rfft(half.to("loom"), out=spectrum)
    check(spectrum, torch.fft.rfft(half.float()), torch.complex32)


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        (torch.tanh, torch.complex32),
        (torch.sqrt, torch.complex32),
        (torch.angle, torch.complex32),
        (lambda x: x / (x + 2), torch.complex32),
        (lambda x: torch.fft.rfft(x), torch.float16),
        (lambda x: torch.fft.fft2(x), torch.complex32),
        (lambda x: torch.nn.functional.avg_pool3d(x[None, None], 2), torch.bfloat16),
        (
            lambda x: torch.nn.functional.multi_margin_loss(x[0], torch.arange(4, device=x.device)),
            torch.float16,
        ),
    ],
)
def test_gradients(function: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    host = torch.randn(4, 4, 4, dtype=WIDER[dtype]).to(dtype)
    gradients = []
    for x in (host.to("loom"), wider(host)):
        x.requires_grad_()
        result = function(x)
        (gradient,) = torch.autograd.grad(result, x, torch.ones_like(result))
        assert gradient.dtype == x.dtype
        gradients.append(gradient)
    check(*gradients, dtype)


def test_other_dtypes_are_refused_as_on_cpu() -> None:
    for function in (torch.special.erfcx, torch.special.i0e, torch.special.expm1):
        messages = []
        for device in ("cpu", "loom"):
            with pytest.raises((RuntimeError, NotImplementedError)) as raised:
                function(half_complex(3).to(device))
            messages.append(str(raised.value))
        assert messages[0] == messages[1]
