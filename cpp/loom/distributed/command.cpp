// SPDX-License-Identifier: BSD-3-Clause
#include "loom/distributed/command.h"

#include "loom/base/check.h"
#include "loom/distributed/deadline.h"

#include <c10/util/Exception.h>

#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <utility>

namespace loom::distributed {

Command::Command(std::shared_ptr<Engine> engine, std::shared_ptr<Completion> completion,
                 const collectives::Operation& operation, std::int64_t timeout_ns,
                 AccessList accesses, Body body)
    : engine_(std::move(engine)),
      completion_(std::move(completion)),
      operation_(operation),
      timeout_ns_(timeout_ns),
      accesses_(std::move(accesses)),
      body_(std::move(body)) {}

void Command::operator()() {
  completion_->started();
  std::string why;
  try {
    operation_.deadline_ns = deadline_after(timeout_ns_);
    body_(*engine_, operation_, *completion_);
    completion_->done();
    return;
  } catch (const std::exception& error) {
    why = loom::detail::concat(engine_->prefix(), error.what());
  }
  engine_->abort(loom::detail::concat("rank ", engine_->rank(), " failed in ", operation_.text()));
  completion_->failed(why);
  C10_THROW_ERROR(DistBackendError, why);
}

void Command::accesses(AccessList& list) const {
  list.insert(list.end(), accesses_.begin(), accesses_.end());
}

void Command::failed(const FailurePtr& failure) noexcept {
  completion_->set_failure(failure);
  if (completion_->ended()) return;  // it has run, and said why itself
  try {
    const std::string why = loom::detail::concat("rank ", engine_->rank(), " cannot run ",
                                                 operation_.text(), ": ", failure->text());
    engine_->abort(why);
    completion_->failed(loom::detail::concat(engine_->prefix(), why));
  } catch (const std::bad_alloc&) {
    const std::string why = "out of memory";  // short: it needs none
    engine_->abort(why);
    completion_->failed(why);
  }
}

}  // namespace loom::distributed
