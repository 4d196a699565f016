// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Answers by calls, for as long as they are asked for: two generations of bounded size. A new
// answer goes to the young one; when that is full, the old one is dropped and the young one is old.
// What is found among the old becomes young again, so that calls that come again stay, and lengths
// that never do are forgotten.
// Invariant: no key is in both generations.
// Thread: any.

#include "loom/base/mutex.h"
#include "loom/ops/meta/call_key.h"

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <utility>

namespace loom::ops {

template <class Answer>
class KeptAnswers {
 public:
  /// `most_words`: of keys in a generation.
  explicit KeptAnswers(std::size_t most_words) : most_words_(most_words) {}

  /// Null if there is none.
  [[nodiscard]] std::shared_ptr<const Answer> find(const CallKey& key) {
    MutexLock lock(mutex_);
    if (const auto found = young_.find(key); found != young_.end()) return found->second;
    const auto found = old_.find(key);
    if (found == old_.end()) return nullptr;
    auto node = old_.extract(found);
    std::shared_ptr<const Answer> answer = node.mapped();
    make_room(key);
    young_.insert(std::move(node));
    return answer;
  }

  void insert(CallKey key, std::shared_ptr<const Answer> answer) {
    MutexLock lock(mutex_);
    if (young_.contains(key) || old_.contains(key)) return;  // another thread was faster
    make_room(key);
    young_.emplace(std::move(key), std::move(answer));
  }

  [[nodiscard]] std::size_t size() {
    MutexLock lock(mutex_);
    return young_.size() + old_.size();
  }

 private:
  struct Hash {
    std::size_t operator()(const CallKey& key) const noexcept { return key.hash(); }
  };
  using Generation = std::unordered_map<CallKey, std::shared_ptr<const Answer>, Hash>;

  void make_room(const CallKey& key) LOOM_REQUIRES(mutex_) {
    // What an entry takes beside its words.
    constexpr std::size_t kOverhead = 64;
    const std::size_t words = key.words() + kOverhead;
    if (words_ + words > most_words_) {
      old_ = std::exchange(young_, {});
      words_ = 0;
    }
    words_ += words;
  }

  Mutex mutex_;
  const std::size_t most_words_;
  Generation young_ LOOM_GUARDED_BY(mutex_), old_ LOOM_GUARDED_BY(mutex_);
  std::size_t words_ LOOM_GUARDED_BY(mutex_) = 0;  // of the young generation
};

}  // namespace loom::ops
