# SPDX-License-Identifier: BSD-3-Clause
"""torch.profiler: beginning and end of a profile, threads, forks, exit, legacy forms."""

import threading

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from support.profiles import BOTH, average, model_and_input, on_device

pytestmark = pytest.mark.thorough


def test_a_profile_of_the_cpu_alone_has_no_device_rows():
    x = torch.ones(8, device="loom")
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        x + 1
    assert not on_device(prof)
    assert not [e for e in prof.events() if e.name == "loomLaunch"]
    assert average(prof, "aten::add").device_time_total == 0


def test_a_profile_of_the_device_alone_has_nothing_else():
    x = torch.ones(8, device="loom")
    with profile(activities=[ProfilerActivity.PrivateUse1]) as prof:
        x + 1
    assert [e.name for e in on_device(prof)] == ["add"]
    assert not [e for e in prof.events() if e.name.startswith("aten::")]


def test_work_from_before_is_not_in_it_and_work_in_flight_is():
    x = torch.full((256, 256), 1.0 / 256, device="loom:1")
    for _ in range(20):
        x.exp()
    with profile(activities=BOTH) as prof, torch.loom.fusion(False):
        for _ in range(20):
            x.sin()
    assert [e.name for e in on_device(prof)] == ["sin"] * 20


def test_two_profiles_one_after_the_other():
    x = torch.ones(8, device="loom")
    for name in ("exp", "sin"):
        with profile(activities=BOTH) as prof:
            getattr(x, name)()
        assert [e.name for e in on_device(prof)] == [name]
        assert average(prof, f"aten::{name}").self_device_time_total > 0


def test_a_fused_program_is_one_row_that_names_its_operators():
    x = torch.ones(1000, device="loom")
    with profile(activities=BOTH) as prof:
        y = torch.relu(x * 2 + 1)
        torch.loom.synchronize()
    rows = [e.name for e in on_device(prof)]
    assert y.sum().item() == 3000
    assert ", ".join(row.removeprefix("fused: ") for row in rows) == "mul, add, relu"


def test_launches_of_other_threads_are_rows_of_theirs():
    x = torch.ones(8, device="loom")

    def launch():
        with torch.loom.fusion(False):
            for _ in range(50):
                x.cos()

    with profile(activities=BOTH) as prof:
        threads = [threading.Thread(target=launch) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        x.sin()
    names = [e.name for e in on_device(prof)]
    assert names.count("cos") == 100
    assert len({e.device_resource_id for e in prof.events() if e.name == "loomLaunch"}) == 3
    assert average(prof, "aten::sin").device_time_total > 0


def test_the_legacy_profiler_times_operators_by_events():
    model, x = model_and_input()
    with torch.autograd.profiler.profile(use_device="loom", use_kineto=False) as prof:
        model(x).sum().backward()
    assert average(prof, "aten::addmm").device_time_total > 0
    assert average(prof, "AddmmBackward0").device_time_total > 0


def test_the_autograd_profiler_may_use_kineto():
    model, x = model_and_input()
    with torch.autograd.profiler.profile(use_device="loom", use_kineto=True) as prof:
        model(x)
    assert average(prof, "aten::addmm").self_device_time_total > 0
    assert average(prof, "addmm", DeviceType.PrivateUse1).count == 2


def test_a_failing_command_is_shown_and_still_raises():
    table = torch.ones(4, device="loom")
    index = torch.tensor([9]).to("loom")
    with profile(activities=BOTH) as prof:
        torch.index_select(table, 0, index)
        with pytest.raises(IndexError, match="index_select"):
            torch.loom.synchronize()
        table + 1
    assert [e.name for e in on_device(prof)] == ["index_select", "add"]


def test_a_profile_may_be_stopped_by_an_exit_handler(check):
    check("""
        import atexit, torch
        from torch.profiler import ProfilerActivity, profile
        prof = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.LOOM])
        prof.start()
        atexit.register(prof.stop)
        x = torch.full((512, 512), 1.0 / 512, device="loom")
        for _ in range(50):
            x = x @ x
    """)


def test_a_fork_while_profiling_is_clean(check):
    done = check("""
        import os, torch
        from torch.autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.LOOM]) as prof:
            x = torch.ones(8, device="loom") + 1
            child = os.fork()
            if child == 0:
                try:
                    x + 1
                except RuntimeError as error:
                    os._exit(0 if "forked subprocess" in str(error) else 1)
                os._exit(2)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        print([e.key for e in prof.key_averages() if e.device_type == DeviceType.PrivateUse1])
    """)
    assert "add" in done.out


def test_a_full_buffer_warns_with_the_number_of_missing_commands(run, tmp_path):
    config = tmp_path / "kineto.conf"
    config.write_text("ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB=1\n")
    done = run(
        """
        import torch
        from torch.profiler import ProfilerActivity, profile
        x = torch.ones(1, device="loom")
        with profile(activities=[ProfilerActivity.LOOM]) as prof:
            with torch.loom.fusion(False):
                for _ in range(20000):
                    x.add_(1)
        kernels = [e for e in prof.events() if e.name == "add_" or e.name == "add"]
        assert 1000 < len(kernels) < 20000, len(kernels)
        assert x.item() == 20001
        """,
        KINETO_CONFIG=str(config),
    )
    assert done.code == 0, done.err
    assert "commands; the last" in done.err
