// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/error.h"

#include "loom/base/check.h"

#include <c10/util/Exception.h>

#include <string>
#include <utility>

namespace loom {

AnnotatedError annotate_error(const std::exception_ptr& error, const std::string& origin) {
  try {
    std::rethrow_exception(error);
  } catch (c10::Error& thrown) {
    // The reference is to the object that `error` holds, whatever its dynamic type.
    thrown.add_context(origin);
    return {error, thrown.what_without_backtrace()};
  } catch (const Error& thrown) {
    c10::Error translated(thrown.what());
    translated.add_context(origin);
    std::string text = translated.what_without_backtrace();
    return {std::make_exception_ptr(std::move(translated)), std::move(text)};
  } catch (...) {
    return {};
  }
}

}  // namespace loom
