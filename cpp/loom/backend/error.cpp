// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/error.h"

#include "loom/base/check.h"
#include "loom/base/options.h"

#include <c10/util/Exception.h>

#include <string>

namespace loom {
namespace {

std::string context_of(const char* name, std::uint64_t position, const QueueId& queue) {
  if (options().launch_blocking) return std::string("raised by '") + name + "'";
  return "asynchronous error: " + describe_command(name, position, queue);
}

}  // namespace

std::exception_ptr annotate_error(const std::exception_ptr& error, const char* name,
                                  std::uint64_t position, const QueueId& queue) {
  try {
    std::rethrow_exception(error);
  } catch (c10::Error& thrown) {
    // The reference is to the object that `error` holds, whatever its dynamic type.
    thrown.add_context(context_of(name, position, queue));
    return error;
  } catch (const Error& thrown) {
    c10::Error translated(thrown.what());
    translated.add_context(context_of(name, position, queue));
    return std::make_exception_ptr(std::move(translated));
  } catch (...) {
    return nullptr;
  }
}

}  // namespace loom
