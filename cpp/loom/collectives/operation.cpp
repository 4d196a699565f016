// SPDX-License-Identifier: BSD-3-Clause
#include "loom/collectives/operation.h"

#include "loom/collectives/combine.h"

namespace loom::collectives {
namespace {

const char* name_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return "SUM";
    case Reduction::kProduct:
      return "PRODUCT";
    case Reduction::kMin:
      return "MIN";
    case Reduction::kMax:
      return "MAX";
    case Reduction::kAnd:
      return "BAND";
    case Reduction::kOr:
      return "BOR";
    case Reduction::kXor:
      return "BXOR";
    case Reduction::kAverage:
      return "AVG";
    case Reduction::kScaledSum:
      return "PREMUL_SUM";
  }
  return "an unknown reduction";
}

}  // namespace

std::string Operation::text() const {
  if (root < 0) return loom::detail::concat(name, " (number ", number, ")");
  return loom::detail::concat(name, " (number ", number, ", root ", root, ")");
}

std::string Operation::description() const {
  std::string all = text();
  if (bytes != 0) all += loom::detail::concat(" of ", bytes, " bytes");
  if (dtype != kNone) {
    all += dtype_name != nullptr ? loom::detail::concat(" of ", dtype_name(dtype))
                                 : loom::detail::concat(" of dtype ", static_cast<int>(dtype));
  }
  if (reduction != kNone) {
    all += loom::detail::concat(" with ", name_of(static_cast<Reduction>(reduction)));
  }
  return all;
}

}  // namespace loom::collectives
