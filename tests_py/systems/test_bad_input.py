# SPDX-License-Identifier: BSD-3-Clause
"""Bad input and failure: a clear error each, nothing lost, nothing hangs."""

import pytest
import torch

pytestmark = pytest.mark.thorough

USE = 'import torch\ntorch.ones(1, device="loom")\n'


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LOOM_DEVICES", "0"),
        ("LOOM_DEVICES", "many"),
        ("LOOM_DEVICES", "99999999999999999999"),
        ("LOOM_THREADS", "-1"),
        ("LOOM_THREADS", "2.5"),
        ("LOOM_MEMORY", "shared"),
        ("LOOM_MEMORY_LIMIT", "lots"),
        ("LOOM_MEMORY_LIMIT", "-5G"),
        ("LOOM_MEMORY_LIMIT", "1"),
        ("LOOM_LAUNCH_BLOCKING", "perhaps"),
        ("LOOM_SPIN_US", "-3"),
        ("LOOM_SPIN_US", "1e99"),
        ("LOOM_FALLBACK", "never"),
        ("LOOM_DEVICE", "1"),
    ],
)
def test_nonsense_in_a_variable_is_named(run, name, value):
    done = run(USE, **{name: value})
    assert done.code == 1
    last = done.err.strip().splitlines()[-1]
    assert last.startswith("RuntimeError")
    assert name in last
    assert value in last or name == "LOOM_DEVICE"


def test_nonsense_in_a_variable_does_not_break_torch(check):
    check(
        """
        import torch
        torch.manual_seed(0)
        assert not torch.loom.is_available()
        assert torch.ones(2).sum().item() == 2
        """,
        LOOM_DEVICES="nonsense",
    )


@pytest.mark.parametrize("index", [2, 100])
@pytest.mark.parametrize(
    "use",
    [
        lambda index: torch.empty(1, device=f"loom:{index}"),
        lambda index: torch.ones(1).to(f"loom:{index}"),
        lambda index: torch.loom.set_device(index),
        lambda index: torch.loom.get_device_properties(index),
        lambda index: torch.loom.synchronize(index),
        lambda index: torch.loom.current_stream(index),
        lambda index: torch.loom.default_stream(index),
        lambda index: torch.loom.Stream(index),
        lambda index: torch.loom.memory_allocated(index),
        lambda index: torch.loom.mem_get_info(index),
        lambda index: torch.loom.manual_seed(index) or torch.loom.get_rng_state(index),
        lambda index: torch.accelerator.set_device_index(index),
        lambda index: torch.Generator(device=f"loom:{index}"),
    ],
)
def test_a_device_that_does_not_exist(use, index):
    with pytest.raises(RuntimeError, match=rf"loom|index.*{index}"):
        use(index)
    assert torch.ones(2, device="loom").sum().item() == 2


@pytest.mark.parametrize(
    "device", ["cuda:0", "cpu", torch.device("meta"), 1.5, object()], ids=lambda d: type(d).__name__
)
def test_a_device_of_another_type(device):
    with pytest.raises((ValueError, RuntimeError)):
        torch.loom.set_device(device)


def test_a_stream_of_another_device():
    side = torch.loom.Stream(1)
    x = torch.ones(4, device="loom:0")
    event = torch.loom.Event(device="loom:0")
    event.record()
    with pytest.raises(RuntimeError, match="device"):
        event.record(side)
    with torch.loom.stream(side):  # loom:0 work goes to loom:0's stream
        y = x + 1
    assert y.device == torch.device("loom", 0)
    assert y.sum().item() == 8


def test_a_stream_of_another_backend():
    with pytest.raises(ValueError, match="expected a loom stream"):
        torch.loom.set_stream(torch.Stream("cpu"))


def test_a_stream_that_loom_did_not_make():
    made_up = torch.loom.Stream(stream_id=0x7FFFFFFF, device_index=0, device_type=20)
    with pytest.raises(RuntimeError, match="stream"):
        made_up.synchronize()


def test_tensors_of_two_devices_do_not_mix():
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(2, device="loom:0") + torch.ones(2, device="loom:1")
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(2, 2, device="loom") @ torch.ones(2, 2)


OUT_OF_MEMORY = """
    import re, torch
    x = torch.ones(4 << 20, dtype=torch.uint8, device="loom")
    try:
        torch.empty(1 << 34, dtype=torch.uint8, device="loom")
    except torch.OutOfMemoryError as error:
        print(error)
    else:
        raise SystemExit("no error")
    torch.loom.synchronize()
    assert x.sum(dtype=torch.int64).item() == 4 << 20
    y = torch.ones(8 << 20, dtype=torch.uint8, device="loom")
    assert y.sum(dtype=torch.int64).item() == 8 << 20
    assert torch.loom.memory_stats()["num_ooms"] == 1
"""


def test_out_of_memory_has_the_statistics_and_the_device_works_on(check):
    done = check(OUT_OF_MEMORY, LOOM_MEMORY_LIMIT="256M", LOOM_DEVICES="1")
    text = done.out.lower()
    for part in ("loom:0", "16.00 gib", "256.00 mib", "allocated", "reserved"):
        assert part in text, done.out


def test_memory_that_is_only_cached_is_not_out_of_memory(check):
    check(
        """
        import torch
        for size in (100, 120, 140, 160):
            x = torch.empty(size << 20, dtype=torch.uint8, device="loom")
            del x
        assert torch.loom.memory_stats()["num_ooms"] == 0
        """,
        LOOM_MEMORY_LIMIT="256M",
        LOOM_DEVICES="1",
    )


@pytest.mark.parametrize("negative", [True, False])
def test_an_index_out_of_range_found_by_a_kernel(negative):
    x = torch.arange(10, device="loom")
    index = torch.tensor([0, -11 if negative else 10], device="loom")
    with pytest.raises((IndexError, RuntimeError), match=r"index|range"):  # noqa: PT012
        x[index]
        torch.loom.synchronize()
    torch.loom.synchronize()  # reported once
    assert x.sum().item() == 45


def test_a_kernel_s_error_is_of_its_stream():
    side = torch.loom.Stream()
    table = torch.ones(4, 4, device="loom")
    index = torch.tensor([9], device="loom")
    side.wait_stream(torch.loom.current_stream())
    raised = 0
    try:
        with torch.loom.stream(side):
            torch.nn.functional.embedding(index, table)
    except (IndexError, RuntimeError):
        raised += 1
    assert (table * 2).sum().item() == 32  # another stream does not see it
    try:
        side.synchronize()
    except (IndexError, RuntimeError):
        raised += 1
    assert raised == 1


def test_launch_blocking_raises_at_the_call(check):
    check(
        """
        import pytest, torch
        x = torch.ones(4, 4, device="loom")
        with pytest.raises((IndexError, RuntimeError)):
            torch.nn.functional.embedding(torch.tensor([9], device="loom"), x)
        assert (x * 2).sum().item() == 32
        torch.loom.synchronize()
        """,
        LOOM_LAUNCH_BLOCKING="1",
    )


def test_shapes_are_checked_at_the_call():
    a, b = torch.ones(2, 3, device="loom"), torch.ones(2, 3, device="loom")
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        a @ b
    with pytest.raises(RuntimeError, match="must match the size"):
        a + torch.ones(4, device="loom")
    with pytest.raises(RuntimeError):
        torch.empty(-1, device="loom")


def test_isolated_memory_stops_a_stray_host_access(run):
    done = run(
        """
        import ctypes, torch
        x = torch.ones(1 << 20, device="loom")
        torch.loom.memory.set_allocation_name(x, "the weights")
        torch.loom.synchronize()
        ctypes.string_at(x.data_ptr(), 4)
        """,
        LOOM_MEMORY="isolated",
    )
    assert done.code < 0
    assert "loom" in done.err
    assert "the weights" in done.err


def test_unified_memory_is_readable(check):
    check(
        """
        import ctypes, torch
        x = torch.ones(4, dtype=torch.uint8, device="loom")
        torch.loom.synchronize()
        assert ctypes.string_at(x.data_ptr(), 4) == bytes([1, 1, 1, 1])
        """,
        LOOM_MEMORY="unified",
    )
