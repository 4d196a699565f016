// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The operations of a group over a transport, in host memory. Each is called by all ranks, in the
// same order, between begin() and finish() of the transport, which are the caller's. Reductions
// combine in the order of ranks (combine.h), so all ranks have the same bits, and they are those of
// one process that does the same.
// Buffers of one rank may be the same (in place) where it is said. Thread: as Transport.
// Throws: PeerError, all of them; what was to be written then holds anything.

#include "loom/base/export.h"
#include "loom/collectives/combine.h"
#include "loom/collectives/transport.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace loom::collectives {

/// Memory that is read or written.
struct Source {
  const void* data = nullptr;
  std::size_t bytes = 0;
};
struct Target {
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// to[i] = the combination of all ranks' from[i]. `to` may be `from`.
LOOM_API void all_reduce(Transport& transport, const void* from, void* to, std::int64_t count,
                         const Combination& how);

/// As all_reduce(), on rank `root` only; on others `to` is not used.
LOOM_API void reduce(Transport& transport, const void* from, void* to, std::int64_t count,
                     const Combination& how, int root);

/// Rank r gets the combination of all ranks' from[r], which are of its size; sizes may differ from
/// rank to rank. `to` may be this rank's part of `from`.
LOOM_API void reduce_scatter(Transport& transport, std::span<const Source> from, void* to,
                             const Combination& how);

/// to[r] = rank r's `from`; sizes may differ from rank to rank. This rank's may be `from` itself.
LOOM_API void all_gather(Transport& transport, const void* from, std::span<const Target> to);

/// As all_gather(), on rank `root` only; on others `to` is empty.
LOOM_API void gather(Transport& transport, Source from, std::span<const Target> to, int root);

/// Rank r gets root's from[r]; on others `from` is empty.
LOOM_API void scatter(Transport& transport, std::span<const Source> from, Target to, int root);

/// All get root's bytes.
LOOM_API void broadcast(Transport& transport, Target data, int root);

/// to[r] = rank r's from[this rank].
LOOM_API void all_to_all(Transport& transport, std::span<const Source> from,
                         std::span<const Target> to);

/// Returns when all ranks have called it.
LOOM_API void barrier(Transport& transport);

}  // namespace loom::collectives
