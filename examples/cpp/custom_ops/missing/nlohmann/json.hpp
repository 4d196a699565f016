// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// ATen/functorch/Interpreter.h includes nlohmann/json.hpp, which torch's wheel does not carry.
// These are the names that it mentions, in functions that write a functorch stack to a file and
// read it back. Nothing here calls them, so they are declared and nowhere defined.

#include <string>

namespace nlohmann {

class json {
 public:
  json();
  template <class T>
  explicit json(const T& value);
  static json parse(const std::string& text);
  [[nodiscard]] std::string dump() const;
  template <class T>
  [[nodiscard]] T get() const;
};

}  // namespace nlohmann
