// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Warnings of operators whose shape inference runs on the caller, and whose kernel runs on a worker
// later: what metadata decides is warned of by both. The caller's are given at the call, and the
// worker's once more are left out. Thread: each object belongs to one.

#include <c10/util/Exception.h>

#include <string>
#include <utility>
#include <vector>

namespace loom::ops {

/// While it lives this thread's warnings are collected.
class CollectedWarnings {
 public:
  CollectedWarnings() : guard_(&handler_) {}
  [[nodiscard]] std::vector<c10::Warning> take() { return std::move(handler_.warnings); }

 private:
  struct Handler final : c10::WarningHandler {
    void process(const c10::Warning& warning) override { warnings.push_back(warning); }
    std::vector<c10::Warning> warnings;
  };
  Handler handler_;
  const c10::WarningUtils::WarningHandlerGuard guard_;
};

/// While it lives this thread's warnings with one of these texts go nowhere.
/// Requires: the texts outlive it.
class WithoutWarnings {
 public:
  explicit WithoutWarnings(const std::vector<std::string>& texts)
      : handler_(texts, *c10::WarningUtils::get_warning_handler()), guard_(&handler_) {}

 private:
  struct Handler final : c10::WarningHandler {
    Handler(const std::vector<std::string>& given, c10::WarningHandler& outer)
        : texts(given), next(outer) {}
    void process(const c10::Warning& warning) override {
      for (const std::string& text : texts) {
        if (warning.msg() == text) return;
      }
      next.process(warning);
    }
    const std::vector<std::string>& texts;
    c10::WarningHandler& next;
  };
  Handler handler_;
  const c10::WarningUtils::WarningHandlerGuard guard_;
};

}  // namespace loom::ops
