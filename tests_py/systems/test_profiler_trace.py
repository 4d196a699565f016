# SPDX-License-Identifier: BSD-3-Clause
"""torch.profiler: traces for Chrome and TensorBoard, memory, stacks, schedules."""

import json
from collections import defaultdict

import pytest
import torch
from torch.profiler import profile, record_function, schedule

from support.profiles import BOTH, average, model_and_input, on_device


def chrome_trace(prof, path):
    prof.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    by_category = defaultdict(list)
    for event in events:
        by_category[event.get("cat")].append(event)
    return by_category, events


def end(event):
    return event["ts"] + event["dur"]


def test_copies_and_fills_have_kinds_and_bytes(tmp_path):
    host = torch.ones(1000)
    pinned = torch.empty(1000, pin_memory=True)
    with profile(activities=BOTH) as prof, torch.loom.fusion(False):
        x = host.to("loom")
        y = x.clone()
        y.zero_()
        x.normal_()
        pinned.copy_(y, non_blocking=True)
    trace, _ = chrome_trace(prof, tmp_path / "trace.json")
    copies = {e["name"].split()[1]: e["args"]["bytes"] for e in trace["gpu_memcpy"]}
    assert copies == {"HtoD": 4000, "DtoD": 4000, "DtoH": 4000}
    (fill,) = trace["gpu_memset"]
    assert fill["args"]["bytes"] == 4000
    (random,) = trace["kernel"]
    assert random["name"] == "normal_"
    assert random["args"]["bytes written"] == 4000
    (linked,) = [e for e in prof.events() if e.name == "aten::normal_"]
    assert linked.device_time_total > 0


def test_each_stream_of_each_device_is_a_row(tmp_path):
    side = torch.loom.Stream(device=0)
    with profile(activities=BOTH) as prof:
        x = torch.ones(100, device="loom:0")
        with torch.loom.stream(side):
            side.wait_stream(torch.loom.default_stream(0))
            x + 1
        torch.loom.default_stream(0).wait_stream(side)
        torch.ones(100, device="loom:1")
    rows = {(e.device_index, e.device_resource_id) for e in on_device(prof)}
    assert rows == {(0, 0), (0, side.stream_id), (1, 0)}
    _, events = chrome_trace(prof, tmp_path / "trace.json")
    named = {
        (e["pid"], e["tid"]): e["args"]["name"]
        for e in events
        if e["name"] == "thread_name" and e["pid"] in (0, 1)
    }
    assert named[0, 0] == named[1, 0] == "stream 0 (default)"
    assert named[0, side.stream_id] == f"stream {side.stream_id}"
    labels = {e["pid"]: e["args"]["labels"] for e in events if e["name"] == "process_labels"}
    assert labels[0] == "loom 0"
    assert labels[1] == "loom 1"


def test_the_chrome_trace_has_arrows_and_spans_inside_the_profile(tmp_path):
    model, x = model_and_input()
    with profile(activities=BOTH) as prof:
        with record_function("outer"):
            model(x)
        torch.loom.synchronize()
    trace, events = chrome_trace(prof, tmp_path / "trace.json")
    (outer,) = [e for e in trace["user_annotation"] if e["name"] == "outer"]
    (device_outer,) = [e for e in trace["gpu_user_annotation"] if e["name"] == "outer"]
    (synchronized,) = [e for e in trace["Trace"] if e["name"].startswith("PyTorch Profiler")]
    launches = {e["args"]["correlation"]: e for e in trace["privateuse1_runtime"]}
    assert len(trace["kernel"]) == 3
    for kernel in trace["kernel"]:
        launch = launches[kernel["args"]["correlation"]]
        assert kernel["args"]["External id"] == launch["args"]["External id"]
        assert outer["ts"] <= launch["ts"] <= kernel["ts"]
        assert end(launch) <= end(outer)
        assert device_outer["ts"] <= kernel["ts"]
        assert end(kernel) <= end(device_outer)
        assert end(kernel) <= end(synchronized)
    arrows = defaultdict(dict)
    for event in events:
        if event.get("cat") == "ac2g":
            arrows[event["id"]][event["ph"]] = event
    assert len(arrows) == 3
    for number, arrow in arrows.items():
        assert arrow["s"]["ts"] == launches[number]["ts"]
        assert arrow["f"]["pid"] == 0


def test_memory_of_the_device_is_counted_by_operator(tmp_path):
    x = torch.randn(1024, 1024, device="loom")
    with profile(activities=BOTH, profile_memory=True, record_shapes=True, with_stack=True) as prof:
        y = x + x
        z = y.relu()
        del y, z
    megabytes = 4 * 1024 * 1024
    assert average(prof, "aten::add").self_device_memory_usage == megabytes
    assert average(prof, "aten::relu").device_memory_usage == megabytes
    assert "Self LOOM Mem" in prof.key_averages().table(sort_by="self_device_memory_usage")
    with pytest.warns(FutureWarning, match="export_memory_timeline"):
        prof.export_memory_timeline(str(tmp_path / "memory.json"), device="loom:0")
    times, sizes = json.loads((tmp_path / "memory.json").read_text())
    assert max(sum(size) for size in sizes) >= 2 * megabytes
    assert len(times) == len(sizes)


def test_memory_freed_outside_of_operators_is_counted_too():
    x = torch.randn(1024, 1024, device="loom")
    with profile(activities=BOTH, profile_memory=True) as prof:
        y = x + x
        del y
    (freed,) = [e for e in prof.events() if e.name == "[memory]"]
    assert freed.device_memory_usage == -4 * 1024 * 1024


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events at the end:UserWarning")
def test_the_tensorboard_tutorial_a_schedule_with_two_cycles(tmp_path):
    model, x = model_and_input()
    kernels = []

    def on_ready(prof):
        kernels.append(len(on_device(prof)))
        torch.profiler.tensorboard_trace_handler(str(tmp_path))(prof)

    with profile(
        activities=BOTH,
        schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
        on_trace_ready=on_ready,
        record_shapes=True,
        with_stack=True,
    ) as prof:
        for _ in range(8):
            model(x)
            prof.step()
    assert kernels == [2 * 3, 2 * 3]
    files = sorted(tmp_path.glob("*.pt.trace.json"))
    assert len(files) == 2
    for file in files:
        events = json.loads(file.read_text())["traceEvents"]
        assert sum(e.get("cat") == "kernel" for e in events) == 6
        steps = {e["name"] for e in events if e.get("cat") == "gpu_user_annotation"}
        assert len([name for name in steps if name.startswith("ProfilerStep#")]) == 2


def test_stacks_lead_to_the_launching_line():
    x = torch.ones(8, device="loom")
    options = torch._C._profiler._ExperimentalConfig(verbose=True)
    with profile(activities=BOTH, with_stack=True, experimental_config=options) as prof:
        x.exp()
    (exp,) = [e for e in prof.events() if e.name == "aten::exp"]
    assert any("test_stacks_lead_to_the_launching_line" in frame for frame in exp.stack)
