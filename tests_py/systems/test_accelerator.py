# SPDX-License-Identifier: BSD-3-Clause
"""torch.accelerator is loom: code that names no device runs on it."""

import pytest
import torch


def test_loom_is_the_accelerator():
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("loom")
    assert torch.accelerator.current_accelerator(check_available=True) == torch.device("loom")
    assert torch.accelerator.device_count() == 2


def test_current_device_index():
    assert torch.accelerator.current_device_index() == 0
    torch.accelerator.set_device_index(1)
    assert torch.loom.current_device() == 1
    torch.accelerator.set_device_index(0)
    with torch.accelerator.device_index(1):
        assert torch.accelerator.current_device_index() == 1
    with torch.accelerator.device_index(None):
        assert torch.accelerator.current_device_index() == 0


def test_streams():
    assert torch.accelerator.current_stream() == torch.loom.default_stream()
    stream = torch.Stream("loom:0", priority=-1)
    torch.accelerator.set_stream(stream)
    assert torch.accelerator.current_stream() == stream == torch.loom.current_stream()
    torch.accelerator.set_stream(torch.loom.default_stream())
    with torch.Stream("loom:1") as other:
        assert torch.accelerator.current_device_index() == 1
        assert torch.accelerator.current_stream() == other
    assert torch.accelerator.current_device_index() == 0


def test_events():
    start, end = (torch.Event("loom", enable_timing=True) for _ in range(2))
    start.record()
    x = torch.ones(1000, device="loom") * 2
    end.record()
    end.synchronize()
    assert end.query()
    assert start.elapsed_time(end) >= 0
    torch.accelerator.synchronize()
    assert x.sum().item() == 2000


def test_device_less_stream_and_event_are_of_loom():
    assert torch.Stream().device.type == "loom"
    assert torch.Event().device.type == "loom"


def test_memory():
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats()
    before = torch.accelerator.memory_allocated()
    x = torch.empty(1 << 20, device="loom")
    assert torch.accelerator.memory_allocated() - before >= 4 << 20
    assert torch.accelerator.memory_reserved() >= torch.accelerator.memory_allocated()
    assert torch.accelerator.max_memory_allocated() >= 4 << 20
    assert torch.accelerator.max_memory_reserved() >= 4 << 20
    assert torch.accelerator.memory_stats()["allocation.all.current"] >= 1
    free, total = torch.accelerator.get_memory_info()
    assert 0 < free < total
    torch.accelerator.reset_accumulated_memory_stats()
    torch.accelerator.empty_host_cache()
    del x


def test_capability():
    capability = torch.accelerator.get_device_capability()
    assert {torch.float32, torch.bfloat16, torch.int64} <= set(capability["supported_dtypes"])


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.filterwarnings("ignore:Casting complex values to real discards the imaginary part")
def test_every_supported_data_type_is_made_and_converted():
    supported = torch.accelerator.get_device_capability()["supported_dtypes"]
    for dtype in supported:
        made = torch.tensor([1, 2], dtype=torch.float32).to(dtype)
        x = torch.tensor([1, 2], dtype=dtype, device="loom")
        assert x.cpu().view(torch.uint8).tolist() == made.view(torch.uint8).tolist()
        assert x.clone().dtype == torch.zeros(2, dtype=dtype, device="loom").dtype == dtype
        for other in supported:
            got = x.to(other).cpu()
            assert got.view(torch.uint8).tolist() == made.to(other).view(torch.uint8).tolist()


@pytest.mark.filterwarnings("ignore:BComplex32 support is experimental")
def test_data_types_that_are_names_only_are_not_supported():
    supported = torch.accelerator.get_device_capability()["supported_dtypes"]
    others = {x for x in vars(torch).values() if isinstance(x, torch.dtype)} - set(supported)
    assert {torch.uint1, torch.int4, torch.bits8, torch.qint8, torch.float4_e2m1fn_x2} <= others
    for dtype in others - {getattr(torch, "bcomplex32", None)}:  # can be copied
        with pytest.raises((RuntimeError, TypeError, NotImplementedError)):
            torch.tensor([1, 2], dtype=dtype, device="loom").to(torch.float32).tolist()


def test_another_device_type_is_refused():
    with pytest.raises(ValueError, match="cuda"):
        torch.accelerator.synchronize("cuda")


def test_default_device():
    with torch.device("loom"):
        assert torch.zeros(2).is_loom
    torch.set_default_device("loom:1")
    try:
        assert torch.ones(1).device == torch.device("loom", 1)
    finally:
        torch.set_default_device(None)


def test_pin_memory_is_loom_s():
    x = torch.ones(3).pin_memory()
    assert x.is_pinned()
    assert x.pin_memory() is x
