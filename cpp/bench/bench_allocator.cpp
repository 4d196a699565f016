// SPDX-License-Identifier: BSD-3-Clause
// What a block costs the caller: allocate() and free() of sizes that are cached, alone and with
// other threads. Memory is virtual and never touched.
#include "loom/device/cores.h"
#include "loom/device/queue.h"
#include "loom/memory/caching_allocator.h"

#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <sys/mman.h>

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// Address space without a limit worth speaking of.
class VirtualSource : public loom::SegmentSource {
 public:
  void* map_segment(std::size_t bytes) override {
    void* raw = ::mmap(nullptr, bytes + granularity(), PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const auto address = reinterpret_cast<std::uintptr_t>(raw);
    return reinterpret_cast<void*>((address + granularity() - 1) / granularity() * granularity());
  }
  void unmap_segment(void* segment, std::size_t bytes) noexcept override {
    ::munmap(segment, bytes);
  }
  [[nodiscard]] std::size_t granularity() const noexcept override { return 2 * kMiB; }
  [[nodiscard]] std::size_t limit() const noexcept override { return std::size_t{1} << 40; }
  [[nodiscard]] std::size_t mapped() const override { return 0; }
};

struct Fixture {
  VirtualSource source;
  loom::Cores cores{1};
  std::array<loom::Queue, 2> queues{loom::Queue{{0, 0, 0}, cores}, loom::Queue{{0, 0, 1}, cores}};
  loom::CachingAllocator allocator{0, source};
};

Fixture& fixture() {
  static auto* const instance = new Fixture;  // shared by the threads of a benchmark
  return *instance;
}

void allocate_free(benchmark::State& state) {
  Fixture& f = fixture();
  loom::Queue& queue = f.queues[static_cast<std::size_t>(state.thread_index()) % 2];
  const auto bytes = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) {
    void* block = f.allocator.allocate(bytes, queue);
    benchmark::DoNotOptimize(block);
    f.allocator.free(block);
  }
}
BENCHMARK(allocate_free)->Arg(512)->Arg(64 << 10)->Arg(4 << 20)->Arg(64 << 20);
BENCHMARK(allocate_free)->Arg(64 << 10)->Threads(2)->UseRealTime();

/// The shape of a forward and backward pass: many blocks live at once, freed in reverse.
void allocate_many_free_reverse(benchmark::State& state) {
  Fixture& f = fixture();
  std::array<void*, 256> blocks{};
  for (auto _ : state) {
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      blocks[i] = f.allocator.allocate(1024 + i % 16 * 4096, f.queues[0]);
    }
    for (std::size_t i = blocks.size(); i-- > 0;) f.allocator.free(blocks[i]);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(blocks.size()));
}
BENCHMARK(allocate_many_free_reverse);

void memory_stats(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(fixture().allocator.stats());
}
BENCHMARK(memory_stats);

}  // namespace
