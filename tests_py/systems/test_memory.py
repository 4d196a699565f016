# SPDX-License-Identifier: BSD-3-Clause
"""Memory: statistics, limits, snapshots, names."""

import gc
import pickle

import pytest
import torch

MB = 1 << 20


@pytest.fixture(autouse=True)
def start_from_an_empty_cache():
    gc.collect()
    torch.loom.synchronize()
    torch.loom.empty_cache()
    torch.loom.reset_peak_memory_stats()


def test_allocated_follows_live_tensors():
    before = torch.loom.memory_allocated()
    x = torch.empty(3 * MB, dtype=torch.uint8, device="loom")
    assert torch.loom.memory_allocated() - before >= 3 * MB
    assert torch.loom.memory_reserved() >= torch.loom.memory_allocated()
    del x
    assert torch.loom.memory_allocated() == before


def test_views_take_no_memory():
    x = torch.empty(MB, dtype=torch.uint8, device="loom")
    before = torch.loom.memory_allocated()
    views = [x[100:], x.view(1024, 1024), x.expand(4, MB)]
    assert torch.loom.memory_allocated() == before
    del views


def test_freed_memory_is_cached_until_the_cache_is_emptied():
    x = torch.empty(64 * MB, dtype=torch.uint8, device="loom")
    reserved = torch.loom.memory_reserved()
    del x
    assert torch.loom.memory_reserved() == reserved
    torch.loom.empty_cache()
    assert torch.loom.memory_reserved() < reserved


def test_freed_memory_is_used_again():
    x = torch.empty(8 * MB, dtype=torch.uint8, device="loom")
    address = x.data_ptr()
    del x
    assert torch.empty(8 * MB, dtype=torch.uint8, device="loom").data_ptr() == address


def test_peaks_and_their_reset():
    x = torch.empty(16 * MB, dtype=torch.uint8, device="loom")
    peak = torch.loom.max_memory_allocated()
    assert peak >= 16 * MB
    assert torch.loom.max_memory_reserved() >= peak
    del x
    assert torch.loom.max_memory_allocated() == peak
    torch.loom.reset_peak_memory_stats()
    assert torch.loom.max_memory_allocated() < peak


def test_accumulated_statistics_and_their_reset():
    torch.loom.reset_accumulated_memory_stats()
    x = torch.empty(MB, dtype=torch.uint8, device="loom")
    del x
    stats = torch.loom.memory_stats()
    assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] == 1
    assert stats["allocated_bytes.all.allocated"] >= MB
    torch.loom.reset_accumulated_memory_stats()
    assert torch.loom.memory_stats()["allocation.all.allocated"] == 0


def test_statistics_have_the_names_of_cuda():
    stats = torch.loom.memory_stats()
    for metric in (
        "active",
        "active_bytes",
        "allocated_bytes",
        "allocation",
        "inactive_split",
        "inactive_split_bytes",
        "requested_bytes",
        "reserved_bytes",
        "segment",
    ):
        for pool in ("all", "large_pool", "small_pool"):
            for what in ("current", "peak", "allocated", "freed"):
                assert stats[f"{metric}.{pool}.{what}"] >= 0
    for name in ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc"):
        assert stats[name] >= 0
    nested = torch.loom.memory_stats_as_nested_dict()
    assert nested["allocation"]["all"]["current"] == stats["allocation.all.current"]


def test_devices_are_counted_apart():
    before = torch.loom.memory_allocated(1)
    x = torch.empty(MB, dtype=torch.uint8, device="loom:0")
    assert torch.loom.memory_allocated(1) == before
    del x


def test_mem_get_info_counts_what_is_reserved():
    free, total = torch.loom.mem_get_info()
    assert 0 <= torch.loom.get_device_properties().total_memory - total < 64 * MB  # whole arenas
    scratch = torch.loom.memory_stats()["scratch_bytes.all.current"]  # may go at any time
    x = torch.empty(64 * MB, dtype=torch.uint8, device="loom")
    assert free - torch.loom.mem_get_info()[0] >= 64 * MB - scratch
    del x


def test_scratch_memory_is_counted_and_released(check):
    check("""
        import os, time, torch
        x = torch.randn(700, 600, device="loom")
        (x.t() @ x).sum().item()  # packs its operands
        stats = torch.loom.memory_stats()
        held = stats["scratch_bytes.all.current"]
        assert held > 0 and stats["scratch_bytes.all.peak"] >= held, stats
        free = torch.loom.mem_get_info()[0]

        # Threads that are awake free theirs before they sleep.
        deadline = time.monotonic() + 60
        while torch.loom.memory_stats()["scratch_bytes.all.current"] > 0:
            assert time.monotonic() < deadline
            torch.loom.empty_cache()
            os.sched_yield()
        assert torch.loom.mem_get_info()[0] >= free + held
        assert torch.loom.memory_stats()["scratch_bytes.all.peak"] >= held
        torch.loom.reset_peak_memory_stats()
        assert torch.loom.memory_stats()["scratch_bytes.all.peak"] == 0
        y = x.t() @ x
        torch.testing.assert_close(y.cpu(), x.cpu().t() @ x.cpu(), atol=1e-3, rtol=1e-4)
        assert torch.loom.memory_stats()["scratch_bytes.all.current"] > 0
    """)


def test_summary_is_a_table():
    x = torch.empty(100 * MB, dtype=torch.uint8, device="loom")
    lines = torch.loom.memory_summary().splitlines()
    assert len({len(line) for line in lines}) == 1
    assert any("Allocated memory" in line and "MiB" in line for line in lines)
    assert len(torch.loom.memory_summary(abbreviated=True).splitlines()) < len(lines)
    assert "loom:1" in torch.loom.memory_summary(1)
    del x


def test_fraction_limits_the_device():
    total = torch.loom.mem_get_info()[1]
    torch.loom.set_per_process_memory_fraction(64 * MB / total)
    try:
        assert torch.loom.get_per_process_memory_fraction() == pytest.approx(64 * MB / total)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(65 * MB, dtype=torch.uint8, device="loom")
    finally:
        torch.loom.set_per_process_memory_fraction(1.0)
    torch.empty(65 * MB, dtype=torch.uint8, device="loom")


def test_a_batch_norm_that_runs_out_of_memory_changes_no_statistics():
    """A second try would update them once more."""
    images = torch.rand(16, 64, 64, 64, device="loom")
    norm = torch.nn.BatchNorm2d(64, device="loom")
    before = norm.running_mean.clone()
    total = torch.loom.mem_get_info()[1]
    limit = torch.loom.memory_reserved() + images.nbytes // 2
    torch.loom.set_per_process_memory_fraction(limit / total)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            norm(images)
    finally:
        torch.loom.set_per_process_memory_fraction(1.0)
    assert torch.equal(norm.running_mean, before)


@pytest.mark.parametrize("fraction", [0, -1, 1.5, float("nan")])
def test_fraction_out_of_range_is_refused(fraction):
    with pytest.raises(RuntimeError, match="expected"):
        torch.loom.set_per_process_memory_fraction(fraction)


def blocks_of(snapshot, tensor):
    address = tensor.untyped_storage().data_ptr()
    return [
        block
        for segment in snapshot
        for block in segment["blocks"]
        if block["address"] == address and block["state"] == "active_allocated"
    ]


def test_snapshot_lists_segments_and_their_blocks():
    x = torch.empty(3 * MB, dtype=torch.uint8, device="loom:1")
    segments = torch.loom.memory_snapshot()
    (block,) = blocks_of(segments, x)
    assert block["size"] >= block["requested_size"] == 3 * MB
    for segment in segments:
        assert segment["total_size"] == sum(block["size"] for block in segment["blocks"])
        assert segment["segment_type"] in ("small", "large")
        assert segment["allocated_size"] <= segment["active_size"] <= segment["total_size"]
    (segment,) = [s for s in segments if block in s["blocks"]]
    assert (segment["device"], segment["stream"]) == (1, torch.loom.default_stream(1).stream_id)


def test_history_knows_who_allocated():
    torch.loom.memory._record_memory_history(max_entries=1000)
    try:
        x = torch.empty(5 * MB, dtype=torch.uint8, device="loom")
        address = x.untyped_storage().data_ptr()
        snapshot = torch.loom.memory._snapshot()
        (block,) = blocks_of(snapshot["segments"], x)
        assert any("test_history_knows_who_allocated" in f["name"] for f in block["frames"])
        del x
        trace = torch.loom.memory._snapshot()["device_traces"][0]
        actions = [entry["action"] for entry in trace if entry.get("addr") == address]
        assert actions[-3:] == ["alloc", "free_requested", "free_completed"]
    finally:
        torch.loom.memory._record_memory_history(None)
    before = len(torch.loom.memory._snapshot()["device_traces"][0])
    torch.empty(10, device="loom")
    assert len(torch.loom.memory._snapshot()["device_traces"][0]) == before


def test_the_memory_visualiser_reads_the_dump(tmp_path):
    from torch.cuda import _memory_viz

    torch.loom.memory._record_memory_history(max_entries=1000)
    try:
        x = torch.empty(5 * MB, dtype=torch.uint8, device="loom")
        file = tmp_path / "snapshot.pickle"
        torch.loom.memory._dump_snapshot(str(file))
        snapshot = pickle.loads(file.read_bytes())
        assert "5.0MiB" in _memory_viz.segsum(snapshot).replace(" ", "")
        assert _memory_viz.trace(snapshot)
        assert "<html" in _memory_viz.trace_plot(snapshot).lower()
        del x
    finally:
        torch.loom.memory._record_memory_history(None, clear_history=True)


@pytest.mark.parametrize("argument", ["enabled", "context", "stacks"])
def test_history_refuses_nonsense(argument):
    with pytest.raises(ValueError, match=f"expected {argument} in"):
        torch.loom.memory._record_memory_history(**{argument: "nonsense"})


def test_pinned_memory_is_counted(check):
    check(
        """
        import torch
        before = torch.loom.host_memory_stats()["active_bytes.current"]
        x = torch.empty(1 << 20, dtype=torch.uint8, pin_memory=True)
        assert x.is_pinned() and not torch.empty(3).is_pinned()
        assert torch.loom.host_memory_stats()["active_bytes.current"] - before >= 1 << 20
        """
    )


def test_storage_resizes():
    x = torch.arange(10, device="loom")
    x.untyped_storage().resize_(160)
    assert x.tolist() == list(range(10))
    x.untyped_storage().resize_(0)
    assert x.untyped_storage().nbytes() == 0


def test_alloc_conf_is_read(check):
    check(
        """
        import torch
        x = torch.empty(1200, dtype=torch.uint8, device="loom")
        assert torch.loom.memory_stats()["max_split_size"] == 32 << 20
        """,
        PYTORCH_ALLOC_CONF="max_split_size_mb:32",
    )
