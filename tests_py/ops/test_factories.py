# SPDX-License-Identifier: BSD-3-Clause
"""Tensors made from nothing on loom."""

import pytest
import torch
from ops_support import DTYPES, assert_same, same_error


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3, 4)], ids=str)
def test_zeros_ones_full(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    for make in (torch.zeros, torch.ones, lambda *a, **k: torch.full(*a, 1, **k)):
        assert_same(make(shape, dtype=dtype, device="loom"), make(shape, dtype=dtype))


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.tensor([[1, 2], [3, 4]], device=d),
        lambda d: torch.tensor(3.5, device=d),
        lambda d: torch.as_tensor([1.0, 2.0], device=d),
        lambda d: torch.arange(10, device=d),
        lambda d: torch.arange(1.0, 2.0, 0.1, device=d),
        lambda d: torch.linspace(0, 1, 7, device=d),
        lambda d: torch.logspace(0, 2, 5, device=d),
        lambda d: torch.range(1, 5, device=d),
        lambda d: torch.eye(3, 4, device=d),
        lambda d: torch.tril_indices(3, 3, device=d),
        lambda d: torch.triu_indices(3, 3, device=d),
        lambda d: torch.complex(torch.ones(2, device=d), torch.zeros(2, device=d)),
        lambda d: torch.hann_window(8, device=d),
        lambda d: torch.full_like(torch.ones(2, 3, device=d), 7),
        lambda d: torch.zeros_like(torch.ones(2, 3, device=d).t()),
        lambda d: torch.ones(2, 3, device=d).new_tensor([1, 2]),
        lambda d: torch.ones(2, 3, device=d).new_zeros(4),
        lambda d: torch.ones(2, 3, device=d).new_full((2,), 3),
        lambda d: torch.vander(torch.arange(3.0, device=d)),
    ],
)
@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
def test_values_are_those_of_cpu(make) -> None:
    assert_same(make("loom"), make("cpu"))


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.empty(2, 3, 4, 5, device=d, memory_format=torch.channels_last),
        lambda d: torch.empty_strided((2, 3), (1, 2), device=d),
        lambda d: torch.empty_strided((2, 0), (7, 9), device=d),
        lambda d: torch.empty_strided((), (), device=d),
        lambda d: torch.empty_permuted((2, 3, 4), (2, 0, 1), device=d),
        lambda d: torch.empty_like(torch.empty(2, 3, device=d).t()),
        lambda d: torch.empty_like(torch.empty(2, 1, device=d).expand(2, 3)),
        lambda d: torch.empty_like(torch.empty(4, 6, device=d)[::2, ::3]),
        lambda d: torch.empty(2, 3, device=d).new_empty_strided((2, 2), (1, 4)),
        lambda d: torch.empty(3, device=d, dtype=torch.float8_e4m3fn),
    ],
)
def test_geometry_is_that_of_cpu(make) -> None:
    ours, theirs = make("loom"), make("cpu")
    for attribute in ("shape", "dtype", "layout"):
        assert getattr(ours, attribute) == getattr(theirs, attribute)
    assert ours.stride() == theirs.stride()
    assert ours.untyped_storage().nbytes() == theirs.untyped_storage().nbytes()


@pytest.mark.parametrize(
    "call",
    [
        lambda d: torch.empty(-1, device=d),
        lambda d: torch.empty_strided((2,), (1, 1), device=d),
        lambda d: torch.empty_strided((2,), (-1,), device=d),
        lambda d: torch.empty(1 << 62, 1 << 62, device=d),
        lambda d: torch.full((2,), 300, dtype=torch.uint8, device=d),
        lambda d: torch.full((2,), 1e300, dtype=torch.float16, device=d),
        lambda d: torch.zeros(2, dtype=torch.uint8, device=d).fill_(1 << 40),
        lambda d: torch.empty(3, device=d, memory_format=torch.channels_last),
        lambda d: torch.arange(0, 10, -1, device=d),
        lambda d: torch.zeros(2, device=d).fill_(torch.zeros(2, device=d)),
        lambda d: torch.zeros(2, device=d).fill_(1j),
    ],
)
def test_errors_are_those_of_cpu(call) -> None:
    same_error(call)


def test_device_tensors_cannot_be_pinned() -> None:
    with pytest.raises(RuntimeError, match="pinned"):
        torch.empty(2, device="loom", pin_memory=True)


def test_device_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="99"):
        torch.empty(2, device="loom:99")


def test_default_device_and_context() -> None:
    with torch.device("loom"):
        assert torch.zeros(2).device.type == "loom"
        assert torch.nn.Linear(2, 2).weight.device.type == "loom"
    assert torch.zeros(2).device.type == "cpu"


def test_default_dtype_is_obeyed() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.empty(2, device="loom").dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_deterministic_mode_fills_new_memory() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(100, device="loom").isnan().all()
        limit = torch.iinfo(torch.int32).max
        assert (torch.empty(100, device="loom", dtype=torch.int32) == limit).all()
        grown = torch.zeros(2, device="loom").resize_(5)
        assert grown[2:].isnan().all()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fill_and_zero_on_any_layout(dtype: torch.dtype) -> None:
    for view in (lambda t: t, lambda t: t.t(), lambda t: t[1::2, ::3], lambda t: t[0, 0]):
        ours = torch.zeros(6, 9, dtype=dtype, device="loom")
        theirs = torch.zeros(6, 9, dtype=dtype)
        view(ours).fill_(1)
        view(theirs).fill_(1)
        assert_same(ours, theirs)
        view(ours).zero_()
        assert ours.count_nonzero().item() == 0


def test_zero_tensors_have_no_memory_and_act_as_zeros() -> None:
    zero = torch._efficientzerotensor((2, 3), device="loom")
    assert zero.device == torch.device("loom", 0)
    assert zero._is_zerotensor()
    assert zero.data_ptr() == 0
    assert zero.tolist() == torch.zeros(2, 3).tolist()
    x = torch.arange(6.0, device="loom").view(2, 3)
    assert torch.equal(x + zero, x)
    assert torch.equal(x.clone().copy_(zero), torch.zeros_like(x))
    assert (x * zero).clone().count_nonzero().item() == 0
    assert zero.cpu().tolist() == torch.zeros(2, 3).tolist()


def test_gradient_that_vanishes() -> None:
    x = torch.randn(3, device="loom", requires_grad=True)
    (gradient,) = torch.autograd.grad(torch.sgn(x).sum(), [x])
    assert gradient.tolist() == [0, 0, 0]


def test_large_fill_touches_every_element_and_no_other() -> None:
    x = torch.zeros(3_000_001 + 2, device="loom")
    x[1:-1].fill_(1)
    assert (x[0].item(), x[-1].item(), x.double().sum().item()) == (0, 0, 3_000_001)
    x[1:-1].zero_()
    assert x.count_nonzero().item() == 0


def test_fill_with_a_device_scalar_does_not_wait() -> None:
    value = torch.tensor(3.0, device="loom")
    waits = torch.loom.host_waits()
    x = torch.empty(4, device="loom").fill_(value)
    assert torch.loom.host_waits() == waits
    assert x.tolist() == [3.0] * 4


def test_factories_never_wait() -> None:
    torch.zeros(2, device="loom")
    waits = torch.loom.host_waits()
    torch.zeros(100, device="loom")
    torch.full((100,), 2, device="loom")
    torch.empty(100, device="loom")
    assert torch.loom.host_waits() == waits


def test_each_device_has_its_own_memory(check) -> None:
    code = """
        import torch

        a = torch.zeros(1000, device="loom:0")
        b = torch.zeros(1000, device="loom:1")
        assert (a.device.index, b.device.index) == (0, 1)
        assert torch.loom.memory_allocated(0) == torch.loom.memory_allocated(1) >= 4000
        assert torch.empty_like(b).device.index == 1
        with torch.loom.device(1):
            assert torch.zeros(1, device="loom").device.index == 1
        assert torch.zeros(1, device="loom").device.index == 0
    """
    check(code, LOOM_DEVICES="2")
