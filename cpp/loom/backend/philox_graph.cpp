// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/philox_graph.h"

#include <algorithm>

namespace loom {

PhiloxGraph::PhiloxGraph() = default;
PhiloxGraph::~PhiloxGraph() = default;

PhiloxGenerator& PhiloxGraph::Source::philox() const {
  return static_cast<PhiloxGenerator&>(*generator);
}

PhiloxRange PhiloxGraph::reserve(const PhiloxGenerator& generator, std::uint64_t count) {
  MutexLock lock(mutex_);
  auto source = std::find_if(sources_.begin(), sources_.end(), [&](const Source& known) {
    return known.philox().shares_state_with(generator);
  });
  if (source == sources_.end()) {
    sources_.push_back({generator.graphsafe_get_state(), 0, {}});
    source = std::prev(sources_.end());
  }
  const std::uint64_t first = source->count;
  source->count += count;
  return {0, first, &source->origin};
}

std::vector<PhiloxRange> PhiloxGraph::reserve_replay(const Queue& queue) {
  std::vector<PhiloxRange> ranges;
  ranges.reserve(sources_.size());
  for (const Source& source : sources_) {
    ranges.push_back(source.philox().reserve_for(queue, source.count));
  }
  return ranges;
}

void PhiloxGraph::set_origins(const std::vector<PhiloxRange>& ranges) noexcept {
  auto source = sources_.begin();
  for (const PhiloxRange& range : ranges) (source++)->origin = range.first();
}

}  // namespace loom
