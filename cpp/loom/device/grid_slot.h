// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The place of a grid while cores run its blocks: who may come in, which blocks are left, when all
// have gone. Thread: any number of helpers, and the one publisher whose grid it holds.

#include "loom/base/float_mode.h"
#include "loom/base/futex.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <utility>

namespace loom::detail {

using BlockFunction = void (*)(void* context, std::int64_t block);

// A grid is divided into at most as many shares: publishing has to reset each.
inline constexpr int kMaxShares = 16;

/// Whether the calling thread runs a block.
inline thread_local bool t_inside_block = false;

/// A range of a grid's blocks that has not been claimed yet: [next, end).
struct alignas(64) Share {
  // Claims only divide numbers; Slot::entered orders the data: relaxed.
  std::atomic<std::int64_t> next{0};
  std::int64_t end = 0;  // written as the rest of a slot
};

/// The place of one published grid. Slots are never freed, so that a helper that comes too late
/// finds a closed slot and not the stack of a publisher that has returned.
///
/// A helper enters (adds 1 to `entered`), and if the slot is not closed then, may use what is in it
/// until it leaves (subtracts 1). The publisher closes the slot, waits for the count to be 0, and
/// only then takes its grid away. Entering acquires what opening released; leaving releases the
/// results of blocks, which the publisher acquires with the count.
struct alignas(64) Slot {
  static constexpr std::uint32_t kClosed = 1U << 31;
  static constexpr std::uint32_t kPublisherSleeps = 1U << 30;
  static constexpr std::uint32_t kCount = kPublisherSleeps - 1;

  std::atomic<std::uint32_t> entered{kClosed};  // the publisher's futex
  std::atomic<int> priority{0};                 // a hint for choosing: relaxed
  // How many may help the publisher. Relaxed: read as a hint, and again by who has entered.
  std::atomic<std::uint32_t> seats{kCount};
  // Read before a host enters: relaxed. It may be the last grid's; so it is looked at again inside.
  std::atomic<bool> by_any{false};
  // Hints, too: whether all cores have something to do, and the publisher's processor.
  std::atomic<bool> for_all{false};
  std::atomic<int> cpu{-1};
  // Written by the publisher while the slot is closed and nobody is inside.
  BlockFunction function = nullptr;
  void* context = nullptr;
  std::int64_t blocks = 0;
  FloatMode float_mode{};    // the publisher's: results depend on nobody else's
  std::exception_ptr error;  // written by the one who changes `failed` to true
  std::atomic<bool> failed{false};
  int share_count = 1;
  // Every core begins with a share of its own, the same one in every grid: what it reads in a chain
  // of grids over the same memory is then mostly what it wrote, and still in its cache. When that
  // share is used up it takes from the next ones.
  std::array<Share, kMaxShares> shares;

  bool enter() noexcept {
    const std::uint32_t before = entered.fetch_add(1, std::memory_order_acquire);
    if ((before & kClosed) == 0 && (before & kCount) < seats.load(std::memory_order_relaxed)) {
      return true;
    }
    leave();
    return false;
  }

  /// A hint: nobody else may come in.
  [[nodiscard]] bool full() const noexcept {
    return (entered.load(std::memory_order_relaxed) & kCount) >=
           seats.load(std::memory_order_relaxed);
  }

  /// A hint: somebody is inside, or looks whether he may be.
  [[nodiscard]] bool has_helpers() const noexcept {
    return (entered.load(std::memory_order_relaxed) & kCount) != 0;
  }

  void leave() noexcept {
    const std::uint32_t before = entered.fetch_sub(1, std::memory_order_release);
    if ((before & kPublisherSleeps) != 0 && (before & kCount) == 1) futex_wake(entered, 1);
  }

  void divide(std::int64_t count, int cores) noexcept {
    blocks = count;
    share_count = static_cast<int>(std::min<std::int64_t>({count, cores, kMaxShares}));
    for (int i = 0; i < share_count; ++i) {
      Share& share = shares[static_cast<std::size_t>(i)];
      share.next.store(count * i / share_count, std::memory_order_relaxed);
      share.end = count * (i + 1) / share_count;
    }
  }

  /// The share that core `rank` of `cores` begins with.
  [[nodiscard]] int home(int rank, int cores) const noexcept { return rank * share_count / cores; }

  /// Claims a block of share `*share` or of one after it, which `*share` then becomes. Returns
  /// false when a whole round has found none.
  bool claim(int* share, std::int64_t* block) noexcept {
    for (int tried = 0; tried < share_count; ++tried) {
      Share& from = shares[static_cast<std::size_t>(*share)];
      if (from.next.load(std::memory_order_relaxed) < from.end) {
        *block = from.next.fetch_add(1, std::memory_order_relaxed);
        if (*block < from.end) return true;
      }
      *share = *share + 1 == share_count ? 0 : *share + 1;
    }
    return false;
  }

  [[nodiscard]] std::int64_t unclaimed() const noexcept {
    std::int64_t sum = 0;
    for (int i = 0; i < share_count; ++i) {
      const Share& share = shares[static_cast<std::size_t>(i)];
      sum += std::max<std::int64_t>(share.end - share.next.load(std::memory_order_relaxed), 0);
    }
    return sum;
  }

  void run_block(std::int64_t block) noexcept {
    t_inside_block = true;
    std::exception_ptr thrown;
    try {
      function(context, block);
    } catch (...) {
      thrown = std::current_exception();
    }
    t_inside_block = false;
    if (thrown != nullptr) [[unlikely]] {
      fail(std::move(thrown));
    }
  }

  void fail(std::exception_ptr thrown) noexcept {
    // Relaxed: `error` is read after everybody has left.
    if (!failed.exchange(true, std::memory_order_relaxed)) error = std::move(thrown);
    for (Share& share : shares) share.next.store(share.end, std::memory_order_relaxed);
  }

  void close_and_wait(std::int64_t spin_ns) noexcept;
};

inline void Slot::close_and_wait(std::int64_t spin_ns) noexcept {
  std::uint32_t seen = entered.fetch_or(kClosed, std::memory_order_acq_rel) | kClosed;
  if ((seen & kCount) == 0) return;
  const auto empty = [&] {
    seen = entered.load(std::memory_order_acquire);
    return (seen & kCount) == 0;
  };
  if (spin_until(empty, spin_ns)) return;
  // The last one to leave sees kPublisherSleeps and wakes; or it has left before the exchange,
  // which then fails because the count has changed.
  while (!empty()) {
    const std::uint32_t asleep = seen | kPublisherSleeps;
    if (entered.compare_exchange_strong(seen, asleep, std::memory_order_acq_rel)) {
      futex_wait(entered, asleep);
    }
  }
  entered.fetch_and(~kPublisherSleeps, std::memory_order_relaxed);
}

}  // namespace loom::detail
