// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Host threads of a test, started together and joined together.

#include <latch>
#include <thread>
#include <vector>

namespace loom::testing {

/// Calls body(index) on `count` threads, which begin at the same time; returns when all are done.
template <class Body>
void on_threads(int count, Body&& body) {
  std::latch start(count);
  std::vector<std::jthread> threads;
  for (int index = 0; index < count; ++index) {
    threads.emplace_back([&, index] {
      start.arrive_and_wait();
      body(index);
    });
  }
}

}  // namespace loom::testing
