# SPDX-License-Identifier: BSD-3-Clause
"""DLPack: loom tensors for other libraries and theirs for loom, with streams and lifetimes."""

import gc
import os
import threading

import numpy as np
import pytest
import torch
from torch.utils.dlpack import DLDeviceType, to_dlpack

from torch_loom._torch_features import READ_ONLY_EXPORTS

CPU = (DLDeviceType.kDLCPU, 0)
DTYPES = [
    torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64,
    torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.complex64, torch.complex128,
]  # fmt: skip
in_unified_memory = pytest.mark.skipif(
    os.environ.get("LOOM_MEMORY") == "isolated", reason="the host cannot read device memory"
)
in_isolated_memory = pytest.mark.skipif(
    os.environ.get("LOOM_MEMORY") != "isolated", reason="the host can read device memory"
)


@pytest.fixture
def x():
    return torch.arange(12.0).view(3, 4).to("loom:1")


def of_dtype(dtype):
    return torch.tensor([0, 1, 2, 3, 1, 0]).to(dtype)


def bits(tensor):
    return tensor.cpu().contiguous().view(torch.uint8)


# Between tensors of loom.


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_loom_tensor_comes_back_without_a_copy(dtype):
    source = of_dtype(dtype).to("loom:1")
    result = torch.from_dlpack(source)
    assert result.device == source.device
    assert result.dtype == dtype
    assert result.data_ptr() == source.data_ptr()
    assert torch.equal(bits(result), bits(source))


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[:, 1::2],
        lambda x: x[1].expand(5, 4),
        lambda x: x[1, 2],
        lambda x: x[:0],
        lambda x: x.as_strided((2, 3), (4, 1), 1),
    ],
    ids=["transposed", "stepped", "expanded", "scalar", "empty", "overlapping"],
)
@pytest.mark.parametrize("target", [None, "cpu"])
def test_layouts_are_kept(x, view, target):
    source = view(x)
    result = torch.from_dlpack(source, device=target)
    assert result.device == torch.device(target or "loom:1")
    assert torch.equal(result.cpu(), view(x.cpu()))
    if target is None:
        expected = torch.from_dlpack(view(x.cpu()))  # a size of 1 has no stride of its own
        assert result.stride() == expected.stride()


def test_writes_go_both_ways(x):
    y = torch.from_dlpack(x)
    y[0] = -1
    x[1] = -2
    expected = torch.arange(12.0).view(3, 4)
    expected[0], expected[1] = -1, -2
    assert torch.equal(x.cpu(), expected)
    assert torch.equal(y.cpu(), expected)


def test_the_old_capsules_work(x):
    y = torch.from_dlpack(to_dlpack(x))
    assert y.device == x.device
    assert y.data_ptr() == x.data_ptr()
    capsule = to_dlpack(x)
    torch.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match="consumed only once"):
        torch.from_dlpack(capsule)


def test_a_device_may_be_asked_for(x):
    assert torch.from_dlpack(x, device="loom:1").data_ptr() == x.data_ptr()
    moved = torch.from_dlpack(x, device="loom:0")
    assert moved.device == torch.device("loom:0")
    assert torch.equal(moved.cpu(), x.cpu())
    copied = torch.from_dlpack(x, copy=True)
    assert copied.device == x.device
    assert copied.data_ptr() != x.data_ptr()
    assert torch.equal(copied.cpu(), x.cpu())
    with pytest.raises(ValueError, match="without copying"):
        torch.from_dlpack(x, device="loom:0", copy=False)


@pytest.mark.skipif(not READ_ONLY_EXPORTS.is_there(), reason=READ_ONLY_EXPORTS.place)
@pytest.mark.parametrize("device", [None, pytest.param(CPU, marks=in_unified_memory)])
def test_a_tensor_may_be_exported_for_readers_only(x, device):
    with pytest.raises(BufferError, match="versioned"):
        x.__dlpack__(read_only=True, dl_device=device)
    capsule = x.__dlpack__(max_version=(1, 0), dl_device=device, read_only=True)
    assert torch.equal(torch._C._from_dlpack(capsule).cpu(), x.cpu())


def test_the_device_is_an_extension_device(x):
    assert x.__dlpack_device__() == (DLDeviceType.kDLExtDev, 1)
    assert torch.ones(1).__dlpack_device__() == CPU


# Lifetimes.


def test_the_memory_lives_as_long_as_its_last_user(x):
    gc.collect()  # what earlier tests left behind
    before = torch.loom.memory_allocated(1)
    source = torch.full((1 << 16,), 3.0, device="loom:1")
    result = torch.from_dlpack(source)
    del source
    assert torch.loom.memory_allocated(1) >= before + (4 << 16)
    assert result.sum().item() == 3 << 16
    del result
    assert torch.loom.memory_allocated(1) == before


def test_a_capsule_that_nobody_takes_gives_its_memory_back():
    gc.collect()  # what earlier tests left behind
    before = torch.loom.memory_allocated(0)
    capsule = torch.ones(1 << 16, device="loom:0").__dlpack__()
    assert torch.loom.memory_allocated(0) > before
    del capsule
    gc.collect()
    assert torch.loom.memory_allocated(0) == before


def test_use_on_another_stream_may_be_announced():
    stream = torch.loom.Stream()
    taken = torch.from_dlpack(torch.full((1 << 18,), 2.0, device="loom"))
    torch.loom.current_stream().synchronize()
    with torch.loom.stream(stream):
        for _ in range(20):
            result = taken * 2
        taken.record_stream(stream)
        del taken
    torch.full((1 << 18,), 7.0, device="loom")  # may not take the block yet
    stream.synchronize()
    assert result.cpu().eq(4).all()


# Streams.


@pytest.mark.parametrize("name", ["number", "default"])
def test_the_consumers_stream_waits_for_the_producers(name):
    producer, consumer = torch.loom.Stream(0), torch.loom.Stream(0)
    if name == "default":
        consumer = torch.loom.default_stream(0)
    big = torch.ones(256, 256, device="loom:0")
    torch.loom.synchronize(0)
    with torch.loom.stream(producer):
        for _ in range(30):
            big = big @ big / 256
        result = big + 1
        number = None if name == "default" else consumer.stream_id
        capsule = result.__dlpack__(stream=number)
    with torch.loom.stream(consumer):
        taken = torch.from_dlpack(capsule)
        doubled = taken * 2
        taken.record_stream(consumer)
    consumer.synchronize()
    assert doubled.cpu().eq(4).all()


def test_streams_are_numbers(x):
    with pytest.raises(TypeError, match="stream must be"):
        x.__dlpack__(stream=torch.loom.current_stream())
    with pytest.raises(RuntimeError, match="stream"):
        x.__dlpack__(stream=12345)
    assert torch.from_dlpack(x.__dlpack__(stream=-1)).data_ptr() == x.data_ptr()


# Memory for the host.


@in_unified_memory
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_host_gets_a_view_when_it_forbids_a_copy(dtype):
    source = of_dtype(dtype).to("loom:1")
    result = torch.from_dlpack(source, device="cpu", copy=False)
    assert result.device == torch.device("cpu")
    assert result.dtype == dtype
    assert result.data_ptr() == source.data_ptr()
    assert torch.equal(bits(result), bits(of_dtype(dtype)))


@in_unified_memory
def test_a_view_for_the_host_is_one(x):
    y = torch.from_dlpack(x.t(), device="cpu", copy=False)
    assert y.stride() == x.t().stride()
    y[2, 1] = -5
    assert x[1, 2].item() == -5
    x.mul_(2)
    torch.loom.synchronize(1)
    assert y[2, 1].item() == -10


@in_unified_memory
def test_a_view_for_the_host_keeps_the_memory():
    gc.collect()  # what earlier tests left behind
    before = torch.loom.memory_allocated(0)
    y = torch.from_dlpack(torch.full((1 << 16,), 3.0, device="loom:0"), device="cpu", copy=False)
    z = torch.full((1 << 16,), 5.0, device="loom:0")
    torch.loom.synchronize(0)
    assert y.eq(3).all()
    del y, z
    assert torch.loom.memory_allocated(0) == before


@pytest.mark.parametrize("copy", [None, True])
def test_numpy_sees_finished_work(copy):
    big = torch.ones(256, 256, device="loom")
    for _ in range(30):
        big = big @ big / 256
    array = np.from_dlpack(big + 1, device="cpu", copy=copy)
    assert (array == 2).all()


@in_unified_memory
def test_numpy_shares_the_memory(x):
    for array in (np.from_dlpack(x, device="cpu"), np.from_dlpack(x, device="cpu", copy=False)):
        assert array.__array_interface__["data"][0] == x.data_ptr()
        assert np.array_equal(array, x.cpu().numpy())
    copied = np.from_dlpack(x, device="cpu", copy=True)
    assert copied.__array_interface__["data"][0] != x.data_ptr()


@in_unified_memory
def test_errors_of_kernels_reach_the_consumer():
    table, row = torch.ones(3, 2, device="loom"), torch.tensor([7], device="loom")
    bad = table.index_select(0, row)
    with pytest.raises((IndexError, RuntimeError), match="index"):
        torch.from_dlpack(bad, device="cpu", copy=False)


@in_isolated_memory
def test_isolated_memory_is_copied_or_refused(x):
    array = np.from_dlpack(x, device="cpu")
    assert np.array_equal(array, x.cpu().numpy())
    for from_dlpack in (np.from_dlpack, torch.from_dlpack):
        with pytest.raises(ValueError, match=r"cannot move .*loom:1 to cpu without copying"):
            from_dlpack(x, device="cpu", copy=False)


def test_a_consumer_that_only_knows_the_cpu_must_ask_for_it(x):
    # The device of a tensor is its producer's to say; numpy asks for none by default.
    with pytest.raises((BufferError, RuntimeError), match="Unsupported device"):
        np.from_dlpack(x)


def test_moving_to_the_cpu_copies_unless_it_is_forbidden(x):
    y = torch.from_dlpack(x, device="cpu")
    y.zero_()
    assert x.sum().item() == 66


# What comes from others.


@pytest.mark.parametrize("make", [torch.tensor, np.array], ids=["torch", "numpy"])
@pytest.mark.parametrize("device", ["loom", "loom:1"])
def test_host_memory_moves_to_loom(make, device):
    source = make([[1.0, 2.0], [3.0, 4.0]])
    result = torch.from_dlpack(source, device=device)
    assert result.device == torch.device("loom", 1 if device == "loom:1" else 0)
    source[0, 0] = 9  # the program's own again: the copy is a finished one
    assert result.tolist() == [[1.0, 2.0], [3.0, 4.0]]


@in_unified_memory
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_loom_gets_a_view_of_host_memory_when_a_copy_is_forbidden(dtype):
    source = of_dtype(dtype)
    result = torch.from_dlpack(source, device="loom:1", copy=False)
    assert result.device == torch.device("loom:1")
    assert result.dtype == dtype
    assert result.data_ptr() == source.data_ptr()
    assert torch.equal(bits(result), bits(source))


@in_unified_memory
def test_both_sides_of_a_view_see_what_the_other_writes():
    array = np.arange(12.0).reshape(3, 4)
    view = torch.from_dlpack(array[:, 1:3], device="loom", copy=False)
    view.mul_(10).add_(1)
    torch.loom.synchronize()
    assert array[:, 1:3].tolist() == [[11, 21], [51, 61], [91, 101]]
    array[0, 1] = -1
    assert view[0, 0].item() == -1


@in_unified_memory
def test_host_memory_outlives_the_work_that_is_queued_on_it():
    side = torch.loom.Stream()
    big = torch.ones(1000, 1000, device="loom")
    source = torch.ones(1000, 1000)
    torch.loom.synchronize()
    view = torch.from_dlpack(source, device="loom", copy=False)
    with torch.loom.stream(side):
        for _ in range(10):
            big = big @ big / 1000
        result = view + big
    waits = torch.loom.host_waits()
    del view, source  # whoever gets the memory next may write it at once
    assert torch.loom.host_waits() > waits
    assert side.query()
    assert result.eq(2).all().item()


@in_isolated_memory
def test_isolated_memory_is_not_lent():
    with pytest.raises(ValueError, match="without copying"):
        torch.from_dlpack(torch.ones(3), device="loom", copy=False)


def test_pinned_memory_is_host_memory():
    source = torch.arange(4.0).pin_memory()
    assert np.from_dlpack(source).tolist() == [0, 1, 2, 3]
    assert torch.from_dlpack(source, device="loom").tolist() == [0, 1, 2, 3]


# What cannot be exported, on loom as on the cpu.


@pytest.mark.parametrize("device", ["cpu", "loom"])
@pytest.mark.parametrize("arguments", [{}, {"dl_device": CPU}], ids=["own", "cpu"])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda device: torch.ones(2, device=device, requires_grad=True), "require gradient"),
        (lambda device: torch.ones(2, dtype=torch.cfloat, device=device).conj(), "conjugate bit"),
        (lambda device: torch.eye(2, device=device).to_sparse(), "layout other than"),
        (lambda device: torch.ones(2, device=device).view(torch.bits8), "Bit types"),
    ],
    ids=["requires_grad", "conj", "sparse", "bits"],
)
def test_what_dlpack_cannot_say_is_refused(device, arguments, make, message):
    with pytest.raises(BufferError, match=message):
        make(device).__dlpack__(**arguments)


# Errors of kernels that write into memory of the host.


def failing_write(view):
    source = torch.arange(10.0, device=view.device)
    rows = torch.tensor([0, 1, 2, 3, 4, 99], device=view.device)
    torch.index_select(source, 0, rows, out=view)
    with pytest.raises(IndexError):
        torch.loom.synchronize(view.device)


@in_unified_memory
@pytest.mark.parametrize(
    "look",
    [
        lambda view: view.cpu(),
        lambda view: view[1:3].cpu(),
        lambda view: view.sum().item(),
        lambda view: (view * 2).tolist(),
        repr,
        lambda view: torch.from_dlpack(view).tolist(),
        lambda view: torch.from_dlpack(view, device="cpu", copy=False),
        lambda view: view.to("loom:0").tolist(),
    ],
    ids=["cpu", "part", "item", "made of it", "repr", "dlpack", "host view", "another device"],
)
def test_a_failed_write_into_memory_of_the_host_stays_failed(look):
    view = torch.from_dlpack(torch.arange(6.0), device="loom:1", copy=False)
    failing_write(view)
    for _ in range(2):
        with pytest.raises(IndexError):
            look(view)
    torch.loom.synchronize(1)  # raised once: nothing is left for others
    torch.loom.synchronize(0)


@in_unified_memory
def test_memory_of_the_host_is_healthy_when_it_is_written_or_given_again():
    host = torch.arange(6.0)
    view = torch.from_dlpack(host, device="loom:1", copy=False)
    failing_write(view)
    view.fill_(3)
    assert view.tolist() == [3.0] * 6
    failing_write(view)
    del view
    host.fill_(7)
    assert torch.from_dlpack(host, device="loom:1", copy=False).tolist() == [7.0] * 6
    assert host.loom(1).tolist() == [7.0] * 6


@in_unified_memory
def test_a_view_on_the_host_of_memory_that_fails_later_is_told_to_each_thread(x):
    view = torch.from_dlpack(x, device="cpu", copy=False)
    told = []

    def wait():
        try:
            event.synchronize()
            told.append(None)
        except IndexError as error:
            told.append(error)

    rows = torch.tensor([0, 1, 99], device=x.device)
    torch.index_select(x.clone(), 0, rows, out=x)
    event = torch.loom.Event()
    event.record(torch.loom.current_stream(x.device))
    for _ in range(2):
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
    with pytest.raises(IndexError):
        torch.loom.synchronize(x.device)
    torch.loom.synchronize(x.device)
    assert len(told) == 2
    assert None not in told
    assert view.shape == x.shape
