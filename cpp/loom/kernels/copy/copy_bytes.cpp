// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/copy/copy_bytes.h"

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace loom::kernels::LOOM_SIMD {

#if defined(__AVX2__)
namespace {

constexpr std::size_t kLine = 64;

void stream_lines(std::byte* destination, const std::byte* source, std::size_t lines) noexcept {
  // Far enough ahead to hide DRAM latency, near enough to stay in L1.
  constexpr std::size_t kPrefetchBytes = 1024;
  for (std::size_t i = 0; i < lines; ++i, destination += kLine, source += kLine) {
    _mm_prefetch(reinterpret_cast<const char*>(source + kPrefetchBytes), _MM_HINT_NTA);
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(destination), low);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(destination + 32), high);
  }
  _mm_sfence();  // streaming stores are not ordered by the release that publishes completion
}

}  // namespace

void copy_bytes(std::byte* destination, const std::byte* source, std::size_t bytes,
                bool streaming) noexcept {
  if (!streaming || bytes < 4 * kLine) {
    std::memcpy(destination, source, bytes);
    return;
  }
  const std::size_t head = -reinterpret_cast<std::uintptr_t>(destination) % kLine;
  std::memcpy(destination, source, head);
  const std::size_t lines = (bytes - head) / kLine;
  stream_lines(destination + head, source + head, lines);
  const std::size_t done = head + lines * kLine;
  std::memcpy(destination + done, source + done, bytes - done);
}
#else
void copy_bytes(std::byte* destination, const std::byte* source, std::size_t bytes, bool) noexcept {
  std::memcpy(destination, source, bytes);
}
#endif

}  // namespace loom::kernels::LOOM_SIMD
