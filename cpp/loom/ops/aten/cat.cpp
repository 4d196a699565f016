// SPDX-License-Identifier: BSD-3-Clause
// Concatenation: each tensor is copied to its place in the result, all of them in one grid.
#include "loom/backend/registration.h"
#include "loom/base/ceil_div.h"
#include "loom/kernels/copy/interleave.h"
#include "loom/kernels/copy/strided_copy.h"
#include "loom/ops/aten/structured.h"
#include "loom/ops/launch/self_overlap.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/cat_meta.h>
#include <ATen/ops/copy_native.h>
#include <c10/core/WrapDimMinimal.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace loom::ops {
namespace {

// Less than this is not worth another core.
constexpr std::size_t kBlockBytes = std::size_t{64} << 10;
constexpr std::size_t kInterleavedBytes = std::size_t{256} << 10;

struct CatCommand {
  TensorRef output;
  std::vector<TensorRef> inputs;
  std::int64_t dim;

  void operator()() {
    Queue& queue = *Queue::current();
    if (takes_turns()) return interleave(queue);
    if (block_ends_.empty()) place();
    const bool moves = std::all_of(places_.begin(), places_.end(),
                                   [](const Place& place) { return place.copy.has_value(); });
    const auto run_block = [&](std::int64_t block) {
      const auto index = static_cast<std::size_t>(block);
      for (std::size_t i = index == 0 ? 0 : block_ends_[index - 1]; i < block_ends_[index]; ++i)
        copy(pieces_[i]);
    };
    Grid(queue.cores(), queue.id().priority)
        .run(static_cast<std::int64_t>(block_ends_.size()), run_block,
             moves ? RunBy::kAny : RunBy::kDevice);
  }
  void accesses(AccessList& list) const {
    output.append_access(list, AccessKind::kReplace);
    for (const TensorRef& input : inputs) input.append_access(list, AccessKind::kRead);
  }

 private:
  /// A block of one tensor's copy; or a range of it along `dim`, copied element by element.
  struct Piece {
    std::size_t place;
    std::int64_t begin, length;
  };
  struct Place {
    const TensorRef* input;
    std::int64_t offset;  // in the result, along `dim`
    std::optional<kernels::StridedCopy> copy;
  };

  /// Dense tensors with one element each along the last dimension: stacked along it.
  [[nodiscard]] bool takes_turns() const {
    const auto suits = [&](const TensorRef& input) {
      return input.dtype() == output.dtype() && input.is_contiguous() && !input.conj() &&
             !input.neg() && input.sizes()[dim] == 1;
    };
    return dim == output.dim() - 1 && output.is_contiguous() && !output.conj() && !output.neg() &&
           kernels::can_interleave(output.itemsize()) &&
           std::all_of(inputs.begin(), inputs.end(), suits);
  }

  void interleave(Queue& queue) const {
    std::vector<const std::byte*> sources;
    for (const TensorRef& input : inputs) sources.push_back(input.data());
    const std::int64_t count = inputs.front().numel();
    const std::size_t bytes = sources.size() * output.itemsize();
    const auto length = std::max<std::int64_t>(kInterleavedBytes / bytes, 1);
    Grid(queue.cores(), queue.id().priority)
        .run(
            ceil_div(count, length),
            [&](std::int64_t block) {
              const std::int64_t begin = block * length;
              kernels::interleave_elements(sources, output.itemsize(), begin,
                                           std::min(begin + length, count), output.data());
            },
            RunBy::kAny);
  }

  void place() {
    const std::size_t total = static_cast<std::size_t>(output.numel()) * output.itemsize();
    std::int64_t offset = 0;
    std::size_t bytes = 0;
    overlaps_ = may_overlap_itself(output);
    for (const TensorRef& input : inputs) {
      places_.push_back({&input, offset, copy_to(offset, input, total)});
      bytes = add_pieces(input, bytes);
      offset += input.sizes()[dim];
    }
    if (block_ends_.empty() || block_ends_.back() != pieces_.size()) {
      block_ends_.push_back(pieces_.size());
    }
  }

  [[nodiscard]] std::optional<kernels::StridedCopy> copy_to(std::int64_t offset,
                                                            const TensorRef& input,
                                                            std::size_t total) const {
    if (input.dtype() != output.dtype() || input.conj() || input.neg() || output.conj() ||
        output.neg() || overlaps_) {
      return std::nullopt;
    }
    TensorView to = output.view();
    to.data += offset * to.strides[dim] * static_cast<std::int64_t>(output.itemsize());
    const TensorView from = input.view();
    to.sizes = from.sizes;
    return kernels::StridedCopy::between(to.elements(), from.elements(), total);
  }

  /// `bytes` are those of the open block so far.
  std::size_t add_pieces(const TensorRef& input, std::size_t bytes) {
    const Place& place = places_.back();
    const std::int64_t items = input.sizes()[dim];
    const std::int64_t length =
        place.copy ? 1
        : overlaps_
            ? items
            : block_length(items, static_cast<double>(input.numel()) / static_cast<double>(items));
    const std::int64_t count = place.copy ? place.copy->blocks() : ceil_div(items, length);
    const std::size_t each = static_cast<std::size_t>(input.numel()) * output.itemsize() /
                             static_cast<std::size_t>(count);
    for (std::int64_t i = 0; i < count; ++i) {
      pieces_.push_back({places_.size() - 1, i * length, std::min(length, items - i * length)});
      if ((bytes += each) < kBlockBytes || overlaps_) continue;
      block_ends_.push_back(pieces_.size());
      bytes = 0;
    }
    return bytes;
  }

  void copy(const Piece& piece) const {
    const Place& place = places_[piece.place];
    if (place.copy) return place.copy->run(piece.begin);
    at::Tensor to = output.alias_slice(dim, place.offset + piece.begin, piece.length);
    at::native::copy_(to, place.input->alias_slice(dim, piece.begin, piece.length));
  }

  std::vector<Place> places_;
  std::vector<Piece> pieces_;
  std::vector<std::size_t> block_ends_;
  bool overlaps_ = false;  ///< elements of the result share memory: they are written in order
};

void launch_cat(const at::Tensor& output, const at::ITensorListRef& tensors, std::int64_t dim) {
  CatCommand command;
  command.output = TensorRef(output, /*writes=*/true);
  for (const at::Tensor& tensor : tensors) {
    check_operand_device("cat", output.device(), tensor);
    // ATen lets empty vectors take part whatever the other shapes are.
    if (tensor.numel() != 0) command.inputs.emplace_back(tensor);
  }
  if (output.numel() == 0) return;
  command.dim = c10::maybe_wrap_dim(dim, output.dim());
  current_queue(output.device().index()).submit("cat", std::move(command));
}

at::Tensor cat(const at::ITensorListRef& tensors, std::int64_t dim) {
  StructuredMeta<at::meta::structured_cat, OutputKind::kNew, 1> meta({});
  meta.meta(tensors, dim);
  launch_cat(meta.outputs()[0], tensors, dim);
  return meta.take_outputs()[0];
}

at::Tensor& cat_out(const at::ITensorListRef& tensors, std::int64_t dim, at::Tensor& output) {
  StructuredMeta<at::meta::structured_cat, OutputKind::kGiven, 1> meta({output});
  meta.meta(tensors, dim);
  launch_cat(output, tensors, dim);
  return output;
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("cat", TORCH_FN(cat));
  m.impl("cat.out", TORCH_FN(cat_out));
}

}  // namespace loom::ops
