// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/allocator.h"
#include "loom/backend/device_state.h"
#include "loom/backend/host_allocator.h"
#include "loom/backend/serialization.h"
#include "loom/backend/stream.h"
#include "loom/device/device.h"
#include "loom/device/scratch.h"
#include "loom/memory/caching_allocator.h"

#include <torch/csrc/profiler/combined_traceback.h>

#include "bindings.h"
#include "gil.h"
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace py = pybind11;

namespace torch {
// As declared by torch/csrc/profiler/python/combined_traceback.h, which includes a JSON library
// that the torch wheel does not carry.
TORCH_API std::vector<py::object> py_symbolize(std::vector<CapturedTraceback*>& to_symbolize);
}  // namespace torch

namespace loom::python {
namespace {

using torch::CapturedTraceback;

/// Stacks of a snapshot: collected while its dictionaries are made, symbolised together at the end.
class Frames {
 public:
  /// Sets `owner["frames"]` when finish() is called; an empty list without a stack.
  void attach(py::dict owner, const std::shared_ptr<void>& context) {
    if (context == nullptr) {
      owner["frames"] = py::list();
      return;
    }
    stacks_.push_back(static_cast<CapturedTraceback*>(context.get()));
    owners_.push_back(std::move(owner));
  }

  void finish() {
    if (stacks_.empty()) return;
    const std::vector<py::object> symbolized = torch::py_symbolize(stacks_);
    for (std::size_t i = 0; i < owners_.size(); ++i) owners_[i]["frames"] = symbolized[i];
  }

 private:
  std::vector<CapturedTraceback*> stacks_;
  std::vector<py::dict> owners_;
};

std::uintptr_t number_of(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

c10::StreamId stream_id_of(const Queue* queue) {
  return queue == nullptr ? 0 : stream_of(*queue).id();
}

const char* name_of(TraceEntry::Action action) {
  switch (action) {
    case TraceEntry::Action::kAlloc:
      return "alloc";
    case TraceEntry::Action::kFreeRequested:
      return "free_requested";
    case TraceEntry::Action::kFreeCompleted:
      return "free_completed";
    case TraceEntry::Action::kSegmentAlloc:
      return "segment_alloc";
    case TraceEntry::Action::kSegmentFree:
      return "segment_free";
    case TraceEntry::Action::kSnapshot:
      return "snapshot";
    case TraceEntry::Action::kOutOfMemory:
      return "oom";
  }
  return "unknown";
}

py::list trace_of(const std::vector<TraceEntry>& history, Frames& frames) {
  py::list entries;
  for (const TraceEntry& entry : history) {
    py::dict row;
    row["action"] = name_of(entry.action);
    if (entry.action == TraceEntry::Action::kOutOfMemory) {
      row["device_free"] = entry.free_bytes;
    } else {
      row["addr"] = number_of(entry.address);
    }
    row["size"] = entry.size;
    row["stream"] = stream_id_of(entry.queue);
    row["time_us"] = entry.time_ns / 1000;
    frames.attach(row, entry.context);
    entries.append(row);
  }
  return entries;
}

py::list blocks_of(const SegmentSnapshot& segment, Frames& frames) {
  py::list blocks;
  for (const BlockSnapshot& block : segment.blocks) {
    py::dict row;
    row["address"] = number_of(block.address);
    row["size"] = block.size;
    row["requested_size"] = block.requested_size;
    row["state"] = block.allocated ? "active_allocated"
                   : block.active  ? "active_awaiting_free"
                                   : "inactive";
    if (!block.name.empty()) row["name"] = block.name;
    frames.attach(row, block.active ? block.context : nullptr);
    blocks.append(row);
  }
  return blocks;
}

py::dict segment_of(const SegmentSnapshot& segment, c10::DeviceIndex device, Frames& frames) {
  py::dict row;
  row["device"] = device;
  row["address"] = number_of(segment.address);
  row["total_size"] = segment.total_size;
  row["allocated_size"] = segment.allocated_size;
  row["active_size"] = segment.active_size;
  row["requested_size"] = segment.requested_size;
  row["stream"] = stream_id_of(segment.queue);
  row["segment_type"] = segment.is_large ? "large" : "small";
  row["segment_pool_id"] = segment.pool;
  row["is_expandable"] = false;
  row["blocks"] = blocks_of(segment, frames);
  frames.attach(row, nullptr);
  return row;
}

py::dict memory_snapshot() {
  py::list segments;
  py::list traces;
  Frames frames;
  // The contexts that `frames` points into live in these.
  std::vector<std::vector<TraceEntry>> histories;
  std::vector<std::vector<SegmentSnapshot>> snapshots;
  const auto count = static_cast<c10::DeviceIndex>(device_count());
  for (c10::DeviceIndex index = 0; index < count; ++index) {
    const CachingAllocator& allocator = caching_allocator(index);
    histories.push_back(allocator.history());
    snapshots.push_back(allocator.snapshot());
    for (const SegmentSnapshot& segment : snapshots.back()) {
      segments.append(segment_of(segment, index, frames));
    }
    traces.append(trace_of(histories.back(), frames));
  }
  frames.finish();
  py::dict snapshot;
  snapshot["segments"] = segments;
  snapshot["device_traces"] = traces;
  snapshot["allocator_settings"] = py::dict();
  snapshot["external_annotations"] = py::list();
  return snapshot;
}

void record_memory_history(std::size_t max_entries, bool stacks, bool cpp_stacks) {
  std::function<std::shared_ptr<void>()> context;
  if (stacks) {
    // Takes the GIL, but only on threads that Python knows; loom's workers are none of them.
    context = [cpp_stacks]() -> std::shared_ptr<void> {
      return CapturedTraceback::gather(/*python=*/true, /*script=*/false, cpp_stacks);
    };
  }
  const auto count = static_cast<c10::DeviceIndex>(device_count());
  for (c10::DeviceIndex index = 0; index < count; ++index) {
    caching_allocator(index).record_history(max_entries, context);
  }
}

/// What the calling thread allocates from now on comes from the pool, as in CUDA.
void begin_allocate_to_pool(c10::DeviceIndex device, PoolId pool) {
  caching_allocator(device).begin_allocate_to_pool(
      pool, [thread = std::this_thread::get_id()](const Queue& /*user*/) {
        return std::this_thread::get_id() == thread;
      });
}

std::map<std::string, std::int64_t> host_memory_stats() {
  const at::HostStats stats = host_allocator().get_stats();
  std::map<std::string, std::int64_t> flat;
  const auto add = [&flat](const std::string& key, const c10::CachingAllocator::Stat& stat) {
    flat[key + ".current"] = stat.current;
    flat[key + ".peak"] = stat.peak;
    flat[key + ".allocated"] = stat.allocated;
    flat[key + ".freed"] = stat.freed;
  };
  add("allocated_bytes", stats.allocated_bytes);
  add("active_bytes", stats.active_bytes);
  add("allocations", stats.allocations);
  add("active_requests", stats.active_requests);
  return flat;
}

std::map<std::string, std::int64_t> scratch_stats(c10::DeviceIndex device) {
  const ScratchBytes bytes = scratch_bytes(device);
  return {{"current", bytes.current},
          {"peak", bytes.peak},
          {"allocated", bytes.allocated},
          {"freed", bytes.freed}};
}

}  // namespace

void bind_memory(py::module_& module) {
  module.def("_set_memory_fraction", [](c10::DeviceIndex device, double fraction) {
    caching_allocator(device).set_memory_fraction(fraction);
  });
  module.def("_get_memory_fraction",
             [](c10::DeviceIndex device) { return caching_allocator(device).memory_fraction(); });
  module.def("_memory_snapshot", &memory_snapshot);
  module.def("_record_memory_history", &record_memory_history, py::call_guard<GilRelease>());
  module.def("_host_memory_stats", &host_memory_stats);
  module.def("_reset_peak_host_memory_stats", [] { host_allocator().reset_peak_stats(); });
  module.def("_reset_accumulated_host_memory_stats",
             [] { host_allocator().reset_accumulated_stats(); });
  module.def("_begin_allocate_to_pool", &begin_allocate_to_pool);
  module.def("_end_allocate_to_pool", [](c10::DeviceIndex device, PoolId pool) {
    caching_allocator(device).end_allocate_to_pool(pool);
  });
  module.def("_release_pool", [](c10::DeviceIndex device, PoolId pool) {
    caching_allocator(device).release_pool(pool);
  });
  module.def("_scratch_stats", &scratch_stats);
  module.def("_set_allocation_name", [](const at::Tensor& tensor, const std::string& name) {
    set_allocation_name(tensor, name);
  });
  module.def("_allocation_name", [](const at::Tensor& tensor) { return allocation_name(tensor); });
}

}  // namespace loom::python
