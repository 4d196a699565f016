# SPDX-License-Identifier: BSD-3-Clause
"""Devices: counting, choosing, describing them."""

import threading

import pytest
import torch


def test_there_are_as_many_devices_as_asked_for():
    assert torch.loom.device_count() == 2
    assert torch.loom.is_available()


def test_one_device_a_numa_node_unless_asked(check):
    done = check(
        """
        import pathlib, torch
        nodes = len(list(pathlib.Path("/sys/devices/system/node").glob("node[0-9]*"))) or 1
        print(torch.loom.device_count() == nodes)
        """,
        LOOM_DEVICES=None,
    )
    assert done.out == "True\n"


def test_device_context_brings_the_previous_one_back():
    assert torch.loom.current_device() == 0
    with torch.loom.device(1):
        assert torch.loom.current_device() == 1
        assert torch.empty(1, device="loom").device == torch.device("loom", 1)
        with torch.loom.device("loom:0"):
            assert torch.loom.current_device() == 0
        assert torch.loom.current_device() == 1
    assert torch.loom.current_device() == 0


@pytest.mark.parametrize("nothing", [None, -1])
def test_device_context_of_nothing_changes_nothing(nothing):
    with torch.loom.device(1), torch.loom.device(nothing):
        assert torch.loom.current_device() == 1


def test_device_of_follows_a_tensor():
    with torch.loom.device_of(torch.empty(1, device="loom:1")):
        assert torch.loom.current_device() == 1
    with torch.loom.device_of(torch.empty(1)):
        assert torch.loom.current_device() == 0


@pytest.mark.parametrize("device", [1, "loom:1", torch.device("loom", 1)])
def test_set_device_takes_all_spellings(device):
    torch.loom.set_device(device)
    assert torch.loom.current_device() == 1


def test_current_device_belongs_to_the_thread():
    torch.loom.set_device(1)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.loom.current_device()))
    thread.start()
    thread.join()
    assert seen == [0]


def test_properties_describe_the_host():
    properties = torch.loom.get_device_properties("loom:1")
    assert properties.name == torch.loom.get_device_name(1) != ""
    assert properties.core_count == properties.multi_processor_count >= 1
    assert len(properties.cpus) >= 1
    assert properties.total_memory > 0
    assert 0 < properties.l1_cache <= properties.l2_cache
    assert properties.simd in ("scalar", "NEON", "AVX2", "AVX-512")
    assert properties.name in repr(properties)


def test_capability_lists_data_types():
    assert torch.float32 in torch.loom.get_device_capability()["supported_dtypes"]


def test_bf16_is_supported():
    assert torch.loom.is_bf16_supported()
    assert (torch.ones(2, dtype=torch.bfloat16, device="loom") * 2).cpu().tolist() == [2, 2]


def test_repeated_initialisation_is_harmless():
    torch.loom.init()
    torch.loom.init()
    assert torch.loom.is_initialized()


def test_generated_methods():
    x = torch.ones(2, 3)
    y = x.loom()
    assert y.is_loom
    assert not x.is_loom
    assert y.device == torch.device("loom", 0)
    assert x.loom(1).device == torch.device("loom", 1)
    assert x.untyped_storage().loom().device.type == "loom"
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    assert packed.loom().is_loom
    assert torch.nn.Linear(2, 2).loom(1).weight.device == torch.device("loom", 1)


def test_the_module_is_importable_by_its_torch_name():
    import torch.loom
    import torch.loom.memory

    assert torch.loom.memory.memory_allocated is torch.loom.memory_allocated
    assert torch.get_device_module("loom") is torch.loom


def test_everything_public_is_documented():
    for name in torch.loom.__all__:
        if not name.islower() or name in ("default_generators",):
            continue
        assert getattr(torch.loom, name).__doc__, name
