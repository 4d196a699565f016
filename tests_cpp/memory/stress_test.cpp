// SPDX-License-Identifier: BSD-3-Clause
// Eight threads allocate and free on four queues, short of memory. Commands on the queues write
// patterns and check them, on the block's own queue or, after events, on another. Blocks are freed
// while commands that use them are queued. Seeded; LOOM_STRESS_SECONDS says for how long.
#include "loom/device/address.h"
#include "loom/device/device.h"
#include "loom/device/event.h"
#include "loom/memory/device_allocator.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

namespace loom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kKiB = std::size_t{1} << 10;
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr int kThreads = 8;
constexpr int kQueues = 4;
constexpr std::size_t kMemory = 96 * kMiB;  // less than the threads would like to hold
constexpr std::size_t kMaxHeld = 40;        // blocks of one thread

std::chrono::milliseconds duration() {
  const char* seconds = std::getenv("LOOM_STRESS_SECONDS");
  return std::chrono::milliseconds(seconds == nullptr ? 2000
                                                      : 1000 * std::strtol(seconds, nullptr, 10));
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kMaxTouched = 1024;  // words of a block: instrumented accesses are slow
#else
constexpr std::size_t kMaxTouched = SIZE_MAX;
#endif

struct Pattern {
  std::byte* address;  // on the device
  std::size_t bytes;   // a multiple of 8
  std::uint64_t seed;

  [[nodiscard]] std::uint64_t* words() const {
    return static_cast<std::uint64_t*>(host_address(address));
  }
  [[nodiscard]] std::uint64_t word(std::size_t i) const { return seed + i * 0x9E3779B97F4A7C15u; }
  [[nodiscard]] std::size_t step() const { return 1 + bytes / 8 / kMaxTouched; }
  void write() const {
    for (std::size_t i = 0; i < bytes / 8; i += step()) words()[i] = word(i);
  }
  [[nodiscard]] std::size_t wrong_words() const {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < bytes / 8; i += step()) wrong += words()[i] != word(i) ? 1 : 0;
    return wrong;
  }
};

/// What all threads share.
struct Shared {
  CachingAllocator& allocator = device_allocator(0);
  std::array<Queue*, kQueues> queues{};
  std::atomic<std::uint64_t> checks{0}, wrong_words{0}, out_of_memory{0};

  void note(const Pattern& pattern) {
    wrong_words += pattern.wrong_words();
    ++checks;
  }
};

class Client {
 public:
  Client(Shared& shared, unsigned seed) : shared_(shared), random_(seed) {}

  void run_until(Clock::time_point deadline) {
    for (std::uint64_t step = 0; Clock::now() < deadline; ++step) {
      act(pick(100));
      if (step % 64 == 63) bound_the_backlog();
    }
    while (!held_.empty()) check_and_free();
  }

 private:
  struct Held {
    Pattern pattern;
    Queue* queue;
  };

  void act(std::size_t dice) {
    if (held_.empty() || (dice < 40 && held_.size() < kMaxHeld)) return allocate();
    if (dice < 65) return check_and_free();
    if (dice < 75) return read_elsewhere_and_free();
    if (dice < 83) return write_elsewhere();
    if (dice < 90) return write(some());
    if (dice < 95) return check_on_host();
    if (dice < 99) return look_around();
    if (pick(20) == 0) shared_.allocator.empty_cache();
  }

  void allocate() {
    Queue& queue = some_queue();
    const std::size_t bytes = random_size();
    auto* const address = static_cast<std::byte*>(shared_.allocator.allocate(bytes, queue));
    if (address == nullptr) {
      ++shared_.out_of_memory;
      for (std::size_t i = held_.size() / 2; i > 0; --i) check_and_free();
      return;
    }
    held_.push_back({{address, bytes, 0}, &queue});
    write(held_.back());
  }

  void write(Held& held) {
    held.pattern.seed = random_();
    held.queue->submit("write", [pattern = held.pattern] { pattern.write(); });
  }

  void submit_check(Queue& queue, const Pattern& pattern) {
    queue.submit("check", [shared = &shared_, pattern] { shared->note(pattern); });
  }

  void check_and_free() {
    const Held held = take_some();
    submit_check(*held.queue, held.pattern);
    shared_.allocator.free(held.pattern.address);
  }

  /// Makes what is queued on `first` happen before what will be queued on `second`.
  static void order(Queue& first, Queue& second) {
    QueueEvent event;
    event.record(first);
    event.block(second);
  }

  void read_elsewhere_and_free() {
    const Held held = take_some();
    Queue& other = some_queue();
    order(*held.queue, other);
    submit_check(other, held.pattern);
    shared_.allocator.record_queue(held.pattern.address, other);
    shared_.allocator.free(held.pattern.address);
  }

  void write_elsewhere() {
    Held& held = some();
    Queue& other = some_queue();
    order(*held.queue, other);
    held.pattern.seed = random_();
    other.submit("write", [pattern = held.pattern] { pattern.write(); });
    shared_.allocator.record_queue(held.pattern.address, other);
    order(other, *held.queue);
  }

  void check_on_host() {
    const Held& held = some();
    QueueEvent event;
    event.record(*held.queue);
    event.synchronize();
    shared_.note(held.pattern);
  }

  void look_around() {
    const Pattern& pattern = some().pattern;
    const auto found = shared_.allocator.find(pattern.address + pick(pattern.bytes));
    if (!found || found->address != pattern.address) ++shared_.wrong_words;
    if (pick(50) == 0) (void)shared_.allocator.snapshot();
  }

  void bound_the_backlog() {
    QueueEvent event;
    event.record(some_queue());
    event.synchronize();
  }

  [[nodiscard]] std::size_t pick(std::size_t count) { return random_() % count; }
  [[nodiscard]] Queue& some_queue() { return *shared_.queues[pick(kQueues)]; }
  [[nodiscard]] Held& some() { return held_[pick(held_.size())]; }
  [[nodiscard]] Held take_some() {
    std::swap(some(), held_.back());
    const Held held = held_.back();
    held_.pop_back();
    return held;
  }
  [[nodiscard]] std::size_t random_size() {
    const std::size_t dice = pick(100);
    const std::size_t largest = dice < 60 ? 8 * kKiB : dice < 92 ? 256 * kKiB : 6 * kMiB;
    return (1 + pick(largest / 8)) * 8;
  }

  Shared& shared_;
  std::mt19937_64 random_;
  std::vector<Held> held_;
};

TEST(AllocatorStressTest, NoByteIsWrong) {
  Shared shared;
  for (int i = 0; i < kQueues; ++i) {
    shared.queues[static_cast<std::size_t>(i)] = &device(0).pool_queue(0, i);
  }
  CachingAllocator& allocator = shared.allocator;
  allocator.empty_cache();
  const auto total = static_cast<double>(allocator.memory_info().second);
  allocator.set_memory_fraction(static_cast<double>(kMemory) / total);

  const Clock::time_point deadline = Clock::now() + duration();
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (unsigned i = 0; i < kThreads; ++i) {
    threads.emplace_back([&shared, deadline, i] { Client(shared, 1000 + i).run_until(deadline); });
  }
  for (std::thread& thread : threads) thread.join();
  for (Queue* queue : shared.queues) queue->synchronize();

  EXPECT_EQ(shared.wrong_words, 0u);
  EXPECT_GT(shared.checks, 0u);
  allocator.check_invariants();
  allocator.empty_cache();
  const MemoryStats stats = allocator.stats();
  EXPECT_EQ(stats.active_bytes[0].current, 0);
  EXPECT_EQ(stats.reserved_bytes[0].current, 0);
  EXPECT_LE(stats.reserved_bytes[0].peak, static_cast<std::int64_t>(kMemory));
  allocator.set_memory_fraction(1.0);
  std::printf("%llu checks, %llu refusals, %lld allocations, %lld retries, %lld waits\n",
              static_cast<unsigned long long>(shared.checks),
              static_cast<unsigned long long>(shared.out_of_memory),
              static_cast<long long>(stats.allocation[0].allocated),
              static_cast<long long>(stats.num_alloc_retries),
              static_cast<long long>(stats.num_sync_all_streams));
}

}  // namespace
}  // namespace loom
