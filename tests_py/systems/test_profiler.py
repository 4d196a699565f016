# SPDX-License-Identifier: BSD-3-Clause
"""torch.profiler: device time of operators, backward passes, launches, annotations."""

import itertools

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from support.profiles import BOTH, average, model_and_input, on_device


def test_the_activity_has_the_devices_name():
    assert ProfilerActivity.PrivateUse1 == ProfilerActivity.LOOM
    assert ProfilerActivity.PrivateUse1 in torch.profiler.supported_activities()


def test_the_recipe_operators_have_device_time_and_results_do_not_change():
    model, x = model_and_input()
    expected = model(x).cpu()
    with profile(activities=BOTH, record_shapes=True) as prof, record_function("inference"):
        y = model(x)
    assert torch.equal(y.cpu(), expected)
    linear = average(prof, "aten::linear")
    addmm = average(prof, "aten::addmm")
    assert linear.count == addmm.count == 2
    assert addmm.self_device_time_total > 0
    assert linear.self_device_time_total == 0
    assert linear.device_time_total == addmm.device_time_total
    kernel = average(prof, "addmm", DeviceType.PrivateUse1)
    assert kernel.count == 2
    assert kernel.self_device_time_total == pytest.approx(addmm.self_device_time_total)
    assert [[32, 64], [64, 128]] in [
        e.input_shapes[1:3] for e in prof.events() if e.name == "aten::addmm"
    ]
    table = prof.key_averages(group_by_input_shape=True).table(sort_by="self_device_time_total")
    assert "Self LOOM" in table
    assert "Self LOOM time total" in table


@pytest.mark.parametrize("prefix", ["self_", ""])
@pytest.mark.parametrize("unit", ["loom", "cuda"])
def test_tables_are_sorted_by_the_columns_own_name(prefix, unit):
    model, x = model_and_input()
    with profile(activities=BOTH) as prof:
        model(x)
    averages = prof.key_averages()
    expected = averages.table(sort_by=f"{prefix}device_time_total")
    assert averages.table(sort_by=f"{prefix}{unit}_time_total") == expected


def test_every_kernel_is_linked_to_its_operator_and_follows_its_launch():
    model, x = model_and_input()
    with profile(activities=BOTH) as prof:
        for _ in range(5):
            model(x)
    operators = {e.id: e for e in prof.events() if e.name.startswith("aten::")}
    launches = {
        e.id: e for e in prof.events() if e.name == "loomLaunch" and e.linked_correlation_id
    }
    kernels = on_device(prof)
    assert len(kernels) == 5 * 3
    for kernel in kernels:
        operator = operators[kernel.linked_correlation_id]
        assert operator.name in ("aten::addmm", "aten::clamp_min", "aten::relu")
        launch = launches[kernel.id]
        assert launch.linked_correlation_id == operator.id
        assert launch.thread == operator.thread
        assert kernel.time_range.start >= launch.time_range.start
    ordered = sorted(kernels, key=lambda e: e.time_range.start)
    for before, after in itertools.pairwise(ordered):
        assert before.time_range.end <= after.time_range.start


@pytest.mark.parametrize("own_thread", [False, True], ids=["caller", "device thread"])
def test_backward_and_the_optimizer_have_device_time(own_thread):
    model, x = model_and_input()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with profile(activities=BOTH) as prof:
        loss = model(x).square().mean()
        with torch.autograd.set_multithreading_enabled(own_thread):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert average(prof, "AddmmBackward0").device_time_total > 0
    backward_mm = average(prof, "aten::mm")
    assert backward_mm.self_device_time_total > 0
    (step,) = [
        e
        for e in prof.key_averages()
        if e.key == "Optimizer.step#SGD.step" and e.device_type == DeviceType.CPU
    ]
    assert step.device_time_total > 0
    forward, backward = (
        {e.thread for e in prof.events() if e.name == name} for name in ("aten::addmm", "aten::mm")
    )
    assert forward.isdisjoint(backward) == own_thread


def test_annotations_are_not_counted_as_work():
    model, x = model_and_input()
    with profile(activities=BOTH) as prof, record_function("outer"), record_function("inner"):
        model(x)
    spans = [e.name for e in prof.events() if e.is_user_annotation]
    assert spans.count("inner") == 2
    total = sum(e.self_device_time_total for e in on_device(prof))
    averages = prof.key_averages()
    assert averages.total_average().count > 0
    operators = sum(e.self_device_time_total for e in averages if e.key.startswith("aten::"))
    assert operators == pytest.approx(total)


def test_the_deferred_and_the_fallback_are_in_it():
    x = torch.rand(64, device="loom")
    with profile(activities=BOTH) as prof:
        torch.special.bessel_j0(x)
        torch.unique(x)
    assert average(prof, "aten::special_bessel_j0").self_device_time_total > 0
    assert average(prof, "aten::_unique2").cpu_time_total > 0
