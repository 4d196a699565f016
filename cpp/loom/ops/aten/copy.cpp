// SPDX-License-Identifier: BSD-3-Clause
// copy_ in every direction: between loom tensors, also of two devices, and between loom and the
// host. A host tensor's memory is only touched while somebody keeps it valid: pinned memory by its
// own allocator (non_blocking), small host sources by a staged copy that the command owns, anything
// else because the caller waits.

#include "loom/backend/device_state.h"
#include "loom/backend/host_allocator.h"
#include "loom/backend/host_release.h"
#include "loom/backend/registration.h"
#include "loom/backend/sync_debug.h"
#include "loom/base/ceil_div.h"
#include "loom/device/held_memory.h"
#include "loom/kernels/copy/copy_bytes.h"
#include "loom/kernels/copy/strided_copy.h"
#include "loom/ops/launch/fused.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/launch/number_check.h"
#include "loom/ops/launch/self_overlap.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

namespace loom::ops {
namespace {

// Host sources up to this size are staged, so that the caller need not wait (CUDA: 64 KiB).
constexpr std::size_t kStagedBytes = std::size_t{64} << 10;

bool same_bytes(const TensorRef& destination, const TensorRef& source) {
  return destination.dtype() == source.dtype() && destination.conj() == source.conj() &&
         destination.neg() == source.neg() && destination.is_dense() &&
         destination.sizes() == source.sizes() &&
         (destination.strides() == source.strides() ||
          (destination.is_contiguous() && source.is_contiguous()));
}

void copy_dense(Grid& grid, const TensorRef& destination, const TensorRef& source) {
  const std::size_t bytes = static_cast<std::size_t>(destination.numel()) * destination.itemsize();
  const bool streaming = bytes >= kernels::kStreamingBytes;
  // Whole pages to a block. One block while a core's cache holds it, then an even share for each
  // core.
  constexpr std::size_t kWhole = std::size_t{1} << 20, kPiece = std::size_t{256} << 10;
  const std::size_t length = bytes <= kWhole || streaming ? kWhole : kPiece;
  const auto blocks = static_cast<std::int64_t>(ceil_div(bytes, length));
  grid.run_by_any(blocks, [&](std::int64_t block) {
    const std::size_t begin = static_cast<std::size_t>(block) * length;
    kernels::copy_bytes(destination.data() + begin, source.data() + begin,
                        std::min(length, bytes - begin), streaming);
  });
}

/// Where the elements of a tensor end, in bytes from the first one.
std::ptrdiff_t extent(const TensorView& view) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < view.sizes.size(); ++d) last += (view.sizes[d] - 1) * view.strides[d];
  return (last + 1) * static_cast<std::ptrdiff_t>(c10::elementSize(view.dtype));
}

bool disjoint(const TensorView& a, const TensorView& b) {
  return a.data + extent(a) <= b.data || b.data + extent(b) <= a.data;
}

/// Same bytes in another order; false if it has to be done element by element.
bool copy_moved(Grid& grid, const TensorRef& destination, const TensorRef& source) {
  if (destination.dtype() != source.dtype() || destination.conj() != source.conj() ||
      destination.neg() != source.neg() || destination.immediate() || source.immediate()) {
    return false;
  }
  const TensorView to = destination.view(), from = source.view();
  if (!disjoint(to, from) || may_overlap_itself(destination)) return false;
  const std::size_t bytes = static_cast<std::size_t>(destination.numel()) * destination.itemsize();
  const auto copy = kernels::StridedCopy::between(to.elements(), from.elements(), bytes);
  if (!copy) return false;
  grid.run_by_any(copy->blocks(), [&](std::int64_t block) { copy->run(block); });
  return true;
}

/// ATen's copy, with the same values for any number of elements. Its vectors convert what uint32
/// cannot hold otherwise than its scalar code, which takes the lowest bits of 64.
void copy_values(at::Tensor& to, const at::Tensor& from) {
  const c10::ScalarType dtype = from.scalar_type();
  const bool uneven = to.scalar_type() == c10::ScalarType::UInt32 &&
                      (c10::isFloatingType(dtype) || c10::isComplexType(dtype));
  at::native::copy_(to, uneven ? from.to(c10::ScalarType::Long) : from);
}

void copy_elements(Grid& grid, const TensorRef& destination, const TensorRef& source) {
  const TensorRef* operands[] = {&destination, &source};
  const SlicePlan plan = Pointwise{.cost = 2}.plan(operands);
  grid.run(plan.blocks(), [&](std::int64_t block) {
    at::Tensor to = plan.slice(destination, 0, block * plan.block);
    copy_values(to, plan.slice(source, 1, block * plan.block));
  });
}

enum class Route : std::uint8_t { kDevice, kFromHost, kToHost };

struct CopyCommand {
  TensorRef destination, source;
  Route route = Route::kDevice;
  at::Tensor staged = {};  // owns a copy of the source, or undefined
  KeptStorage kept = {};   // the host memory of a graph's copy
  HeldMemory held = {};

  void operator()() {
    Queue& queue = *Queue::current();
    Grid grid(queue.cores(), queue.id().priority);
    if (same_bytes(destination, source)) {
      copy_dense(grid, destination, source);
    } else if (!copy_moved(grid, destination, source)) {
      copy_elements(grid, destination, source);
    }
  }
  // What does not reach the host is an error there, whoever has seen the error of the values.
  void failed(const FailurePtr& failure) noexcept {
    if (route == Route::kToHost) Queue::current()->raise_to_each_thread(failure);
  }
  void accesses(AccessList& list) const {
    destination.append_access(list, AccessKind::kReplace);
    // The host's tensors are read whatever failed there: it may have written them since.
    if (route != Route::kFromHost) source.append_access(list, AccessKind::kRead);
  }
  void note_captured() noexcept { held.note_captured(); }
};

std::uint64_t submit(Queue& queue, CopyCommand command) {
  if (command.staged.defined()) {
    HeldMemory::make_room(queue);
    command.held.set(command.staged.nbytes());
  }
  return queue.submit("copy_", std::move(command));
}

void submit_and_wait(Queue& queue, TensorRef destination, TensorRef source, Route route) {
  before_host_wait("copy_");
  queue.submit_and_wait("copy_", CopyCommand{std::move(destination), std::move(source), route});
}

// As peer copies of CUDA: on the source's stream, ordered after what the destination's stream did
// before and before what it does next.
void copy_across_devices(const at::Tensor& self, const at::Tensor& source) {
  Queue& from = current_queue(source.device().index());
  Queue& to = current_queue(self.device().index());
  for (const Queue* queue : {&from, &to}) {
    queue->check_not_captured("aten::copy_",
                              "it goes to or comes from another device, and a graph "
                              "has the work of one");
  }
  from.wait_for(to.timeline(), to.seal());
  const std::uint64_t copied = submit(from, {TensorRef(self, true), TensorRef(source)});
  to.wait_for(from.timeline(), copied);
}

// True when the pinned allocator keeps the memory from being reused before `queue` has passed.
bool kept_by_pinned_allocator(const at::Tensor& host, const Queue& queue) {
  const c10::DataPtr& data = host.storage().data_ptr();
  return host.is_pinned() && record_pinned_use(data.get(), data.get_context(), queue);
}

// Each replay copies from or to the same host memory, which the graph keeps. The storage, not the
// tensor: that may belong to Python.
void capture_host_copy(Queue& queue, TensorRef destination, TensorRef source,
                       const at::Tensor& host, bool pinned, Route route) {
  if (!pinned) {
    queue.check_not_captured(
        "aten::copy_",
        "a copy between the device and the host waits unless the host's memory "
        "is pinned and the copy non_blocking; copies of up to 64 KiB to the "
        "device need neither");
  }
  submit(queue,
         {std::move(destination), std::move(source), route, {}, KeptStorage(host.storage())});
}

void copy_from_host(const at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  Queue& queue = current_queue(self.device().index());
  const bool pinned = non_blocking && source.is_pinned();
  if (queue.captured() && (pinned || source.nbytes() > kStagedBytes)) {
    return capture_host_copy(queue, TensorRef(self, true), TensorRef::of_host(source), source,
                             pinned, Route::kFromHost);
  }
  // Pinned memory holds what queued commands have yet to write: it is read in their order.
  const bool is_final = queue.captured() || queue.idle() || !source.is_pinned();
  if (source.nbytes() <= kStagedBytes && !pinned && is_final) {
    at::Tensor staged = source.clone();
    TensorRef staged_ref = TensorRef::of_host(staged);
    submit(queue,
           {TensorRef(self, true), std::move(staged_ref), Route::kFromHost, std::move(staged)});
    return;
  }
  if (!non_blocking || !source.is_pinned()) {
    return submit_and_wait(queue, TensorRef(self, true), TensorRef::of_host(source),
                           Route::kFromHost);
  }
  const std::uint64_t copied =
      submit(queue, {TensorRef(self, true), TensorRef::of_host(source), Route::kFromHost});
  if (!kept_by_pinned_allocator(source, queue)) queue.synchronize(copied);
}

/// Waits for the queue. Throws: as Queue::synchronize(), and why the values failed, if they did.
TensorRef synchronized(Queue& queue, const at::Tensor& tensor) {
  before_host_wait("item");
  queue.synchronize();
  TensorRef ref(tensor);
  ref.check_values();
  return ref;
}

void copy_to_host(const at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  Queue& queue = current_queue(source.device().index());
  if (queue.captured()) {
    return capture_host_copy(queue, TensorRef::of_host(self, true), TensorRef(source), self,
                             non_blocking && self.is_pinned(), Route::kToHost);
  }
  if (!non_blocking && source.nbytes() <= kStagedBytes) {
    at::Tensor host = self;
    copy_values(host, synchronized(queue, source).alias());
    return;
  }
  if (!non_blocking || !self.is_pinned()) {
    return submit_and_wait(queue, TensorRef::of_host(self, true), TensorRef(source),
                           Route::kToHost);
  }
  const std::uint64_t copied =
      submit(queue, {TensorRef::of_host(self, true), TensorRef(source), Route::kToHost});
  if (!kept_by_pinned_allocator(self, queue)) queue.synchronize(copied);
}

bool same_data(const at::Tensor& self, const at::Tensor& source) {
  return self.is_alias_of(source) && self.storage_offset() == source.storage_offset() &&
         self.strides() == source.strides() && self.sizes() == source.sizes() &&
         self.scalar_type() == source.scalar_type() && self.is_conj() == source.is_conj() &&
         self.is_neg() == source.is_neg();
}

/// Throws what ATen's copy throws for dtypes that it does not know.
void check_copy(const at::Tensor& self, const at::Tensor& source) {
  at::Tensor to = at::empty({1}, c10::TensorOptions(c10::kCPU).dtype(self.scalar_type()));
  at::native::copy_(to, at::zeros({1}, to.options().dtype(source.scalar_type())));
}

void copy_same_sizes(const at::Tensor& self, const at::Tensor& source, bool non_blocking);

/// Dtypes that are memory only: between the host and a device as bytes, on the device as on cpu.
/// False if it is yet to be done.
bool copy_memory(const at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (self.device() == source.device() || self.scalar_type() != source.scalar_type()) {
    check_copy(self, source);
    return false;
  }
  const auto bytes = self.itemsize() == 1 ? c10::kByte : c10::kShort;
  copy_same_sizes(self.view(bytes), source.view(bytes), non_blocking);
  return true;
}

// Same sizes, at least one element.
void copy_same_sizes(const at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (is_memory_only(self.scalar_type()) || is_memory_only(source.scalar_type())) [[unlikely]] {
    if (copy_memory(self, source, non_blocking)) return;
  }
  if (self.is_privateuseone() && source.is_privateuseone()) {
    if (self.device() != source.device()) return copy_across_devices(self, source);
    if (record_copy(self, source)) return;
    submit(current_queue(self.device().index()), {TensorRef(self, true), TensorRef(source)});
  } else if (source.is_cpu()) {
    copy_from_host(self, source, non_blocking);
  } else if (self.is_cpu()) {
    copy_to_host(self, source, non_blocking);
  } else {
    // Another accelerator: it and loom meet on the host.
    self.copy_(source.to(c10::kCPU));
  }
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  TORCH_CHECK(self.defined(), "self is undefined");
  TORCH_CHECK(source.defined(), "src is undefined");
  if (self.is_same(source) || same_data(self, source)) return self;
  if (source._is_zerotensor()) return self.zero_();
  at::assert_no_internal_overlap(self);
  if (self.device() == source.device()) at::assert_no_partial_overlap(self, source);
  if (self.sizes() == source.sizes()) {
    if (self.numel() > 0) copy_same_sizes(self, source, non_blocking);
    return self;
  }
  const auto shape = at::infer_size_dimvector(self.sizes(), source.sizes());
  TORCH_CHECK(self.sizes() == c10::IntArrayRef(shape), "output with shape ", self.sizes(),
              " doesn't match the broadcast shape ", c10::IntArrayRef(shape));
  if (self.numel() > 0) copy_same_sizes(self, source.expand(self.sizes()), non_blocking);
  return self;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& destination, bool non_blocking) {
  at::Tensor to = destination;
  return copy_(to, self, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& destination) {
  at::Tensor to = destination;
  to.resize_(self.sizes());
  return copy_(to, self, /*non_blocking=*/false);
}

c10::Scalar local_scalar_dense(const at::Tensor& self) {
  Queue& queue = current_queue(self.device().index());
  queue.check_not_captured("aten::_local_scalar_dense (item(), bool(), float() and the like)",
                           "the host looks at a value that is not computed before the replay");
  return at::native::_local_scalar_dense_cpu(synchronized(queue, self).alias());
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("copy_", copy_);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("_local_scalar_dense", local_scalar_dense);
}

// Copies read the conjugate and negative bits themselves; ATen's fallbacks for these keys would
// materialise them by way of another copy, and never end.
LOOM_LIBRARY_IMPL(aten, Conjugate, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
LOOM_LIBRARY_IMPL(aten, Negative, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace loom::ops
