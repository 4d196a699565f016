// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/freed.h"

namespace loom::fusion {

std::array<std::atomic<std::uint64_t>, std::size_t{1} << detail::kTableBits> detail::g_freed{};
std::atomic<std::uint64_t> detail::g_freed_count{1};

}  // namespace loom::fusion
