// SPDX-License-Identifier: BSD-3-Clause
#include "loom/collectives/algorithms.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace loom::collectives {
namespace {

constexpr std::size_t kPiece = Transport::kPieceBytes;
/// Up to here every rank sends all that it has to every other one: there is one wait instead of
/// two.
constexpr std::size_t kOneShotBytes = std::size_t{16} << 10;

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

/// The other ranks, beginning behind this one: so not all of them begin with the same.
template <class Visit>
void for_each_peer(const Transport& transport, Visit&& visit) {
  for (int step = 1; step < transport.ranks(); ++step) {
    visit((transport.rank() + step) % transport.ranks());
  }
}

std::size_t pieces_of(std::size_t bytes) {
  return std::max<std::size_t>(1, (bytes + kPiece - 1) / kPiece);
}

/// Receives an announced message.
void receive(Transport& transport, int peer, Target to) {
  auto* const data = static_cast<std::byte*>(to.data);
  for (std::size_t begin = 0, left = pieces_of(to.bytes); left > 0; --left) {
    const std::span<const std::byte> piece = transport.next(peer);
    if (!piece.empty()) std::memcpy(data + begin, piece.data(), piece.size());
    begin += piece.size();
    transport.release(peer);
  }
}

void copy(void* to, Source from) {
  if (from.bytes != 0 && to != from.data) std::memcpy(to, from.data, from.bytes);
}

/// Combines a message that each peer sends, all of one size, with `own`, piece by piece, and calls
/// done(begin, bytes) after each.
template <class Done>
void combine_messages(Transport& transport, const void* own, void* to, std::size_t bytes,
                      const Combination& how, Done&& done) {
  const std::size_t element = size_of(how.element);
  std::vector<const void*> sources(at(transport.ranks()));
  for (std::size_t begin = 0, left = pieces_of(bytes); left > 0; --left) {
    const std::size_t size = std::min(kPiece, bytes - begin);
    for_each_peer(transport, [&](int peer) { sources[at(peer)] = transport.next(peer).data(); });
    if (size != 0) {
      sources[at(transport.rank())] = static_cast<const std::byte*>(own) + begin;
      combine(static_cast<std::byte*>(to) + begin, sources.data(), transport.ranks(),
              static_cast<std::int64_t>(size / element), how);
    }
    for_each_peer(transport, [&](int peer) { transport.release(peer); });
    done(begin, size);
    begin += size;
  }
}

/// Of `count` elements, those that rank r combines for all: equal parts that begin at lines of the
/// caches.
struct Part {
  std::size_t begin, bytes;
};
Part part_of(int rank, int ranks, std::int64_t count, std::size_t element) {
  constexpr std::size_t kUnit = 64;
  const std::size_t all = static_cast<std::size_t>(count) * element;
  const std::size_t each = (all / at(ranks) + kUnit) / kUnit * kUnit;
  const std::size_t begin = std::min(all, each * at(rank));
  return {begin, std::min(each, all - begin)};
}

void all_reduce_at_once(Transport& transport, const void* from, void* to, std::size_t bytes,
                        const Combination& how) {
  for_each_peer(transport, [&](int peer) { transport.send(peer, from, bytes); });
  for_each_peer(transport, [&](int peer) { transport.expect(peer, bytes); });
  // In place the sum must not reach a peer instead of what was to be summed.
  if (from == to) transport.flush();
  combine_messages(transport, from, to, bytes, how, [](std::size_t, std::size_t) {});
}

}  // namespace

void all_reduce(Transport& transport, const void* from, void* to, std::int64_t count,
                const Combination& how) {
  const std::size_t element = size_of(how.element);
  const std::size_t bytes = static_cast<std::size_t>(count) * element;
  const int ranks = transport.ranks();
  if (bytes <= kOneShotBytes) return all_reduce_at_once(transport, from, to, bytes, how);
  const auto* const source = static_cast<const std::byte*>(from);
  auto* const target = static_cast<std::byte*>(to);
  const Part own = part_of(transport.rank(), ranks, count, element);
  for_each_peer(transport, [&](int peer) {
    const Part part = part_of(peer, ranks, count, element);
    transport.send(peer, source + part.begin, part.bytes);
    transport.expect(peer, own.bytes);
  });
  // What is combined goes out at once, each piece as a message; it follows this rank's share of the
  // peer's part, so the peer has that before it writes its part here.
  combine_messages(transport, source + own.begin, target + own.begin, own.bytes, how,
                   [&](std::size_t begin, std::size_t size) {
                     for_each_peer(transport, [&](int peer) {
                       transport.send(peer, target + own.begin + begin, size);
                     });
                   });
  // A piece of each in turn, so that nobody's ring stays full.
  std::size_t most = 0;
  for_each_peer(transport, [&](int peer) {
    most = std::max(most, pieces_of(part_of(peer, ranks, count, element).bytes));
  });
  for (std::size_t piece = 0; piece < most; ++piece) {
    for_each_peer(transport, [&](int peer) {
      const Part part = part_of(peer, ranks, count, element);
      if (piece >= pieces_of(part.bytes)) return;
      const std::size_t begin = piece * kPiece;
      const std::size_t size = std::min(kPiece, part.bytes - begin);
      transport.expect(peer, size);
      receive(transport, peer, {target + part.begin + begin, size});
    });
  }
}

void reduce(Transport& transport, const void* from, void* to, std::int64_t count,
            const Combination& how, int root) {
  const std::size_t bytes = static_cast<std::size_t>(count) * size_of(how.element);
  if (transport.rank() != root) return transport.send(root, from, bytes);
  for_each_peer(transport, [&](int peer) { transport.expect(peer, bytes); });
  combine_messages(transport, from, to, bytes, how, [](std::size_t, std::size_t) {});
}

void reduce_scatter(Transport& transport, std::span<const Source> from, void* to,
                    const Combination& how) {
  const Source own = from[at(transport.rank())];
  for_each_peer(transport, [&](int peer) {
    transport.send(peer, from[at(peer)].data, from[at(peer)].bytes);
    transport.expect(peer, own.bytes);
  });
  combine_messages(transport, own.data, to, own.bytes, how, [](std::size_t, std::size_t) {});
}

void all_gather(Transport& transport, const void* from, std::span<const Target> to) {
  const Target own = to[at(transport.rank())];
  for_each_peer(transport, [&](int peer) {
    transport.send(peer, from, own.bytes);
    transport.expect(peer, to[at(peer)].bytes);
  });
  copy(own.data, {from, own.bytes});
  for_each_peer(transport, [&](int peer) { receive(transport, peer, to[at(peer)]); });
}

void gather(Transport& transport, Source from, std::span<const Target> to, int root) {
  if (transport.rank() != root) return transport.send(root, from.data, from.bytes);
  for_each_peer(transport, [&](int peer) { transport.expect(peer, to[at(peer)].bytes); });
  copy(to[at(root)].data, from);
  for_each_peer(transport, [&](int peer) { receive(transport, peer, to[at(peer)]); });
}

void scatter(Transport& transport, std::span<const Source> from, Target to, int root) {
  if (transport.rank() != root) {
    transport.expect(root, to.bytes);
    return receive(transport, root, to);
  }
  for_each_peer(transport,
                [&](int peer) { transport.send(peer, from[at(peer)].data, from[at(peer)].bytes); });
  copy(to.data, from[at(root)]);
}

// A binomial tree: the rank whose number behind root's is v has v without its lowest bit as its
// parent.
void broadcast(Transport& transport, Target data, int root) {
  const int ranks = transport.ranks();
  const int number = (transport.rank() - root + ranks) % ranks;
  const int lowest = number == 0 ? ranks : number & -number;
  std::vector<int> children;
  for (int bit = 1; bit < lowest && number + bit < ranks; bit *= 2) {
    children.push_back((number + bit + root) % ranks);
  }
  std::reverse(children.begin(), children.end());  // those with most of the tree below them first
  auto* const bytes = static_cast<std::byte*>(data.data);
  for (std::size_t begin = 0, left = pieces_of(data.bytes); left > 0; --left, begin += kPiece) {
    const std::size_t size = std::min(kPiece, data.bytes - begin);
    if (number != 0) {
      const int parent = ((number & (number - 1)) + root) % ranks;
      transport.expect(parent, size);
      receive(transport, parent, {bytes + begin, size});
    }
    for (const int child : children) transport.send(child, bytes + begin, size);
  }
}

void all_to_all(Transport& transport, std::span<const Source> from, std::span<const Target> to) {
  const int rank = transport.rank();
  for_each_peer(transport, [&](int peer) {
    transport.send(peer, from[at(peer)].data, from[at(peer)].bytes);
    transport.expect(peer, to[at(peer)].bytes);
  });
  copy(to[at(rank)].data, from[at(rank)]);
  // The one behind comes first, who has begun with this rank.
  for (int step = 1; step < transport.ranks(); ++step) {
    const int peer = (rank - step + transport.ranks()) % transport.ranks();
    receive(transport, peer, to[at(peer)]);
  }
}

// In round k each rank hears from the one 2^k before it, and so of 2^(k+1) ranks.
void barrier(Transport& transport) {
  const int ranks = transport.ranks();
  for (int step = 1; step < ranks; step *= 2) {
    transport.send((transport.rank() + step) % ranks, nullptr, 0);
    const int before = (transport.rank() - step + ranks) % ranks;
    transport.expect(before, 0);
    receive(transport, before, {nullptr, 0});
  }
}

}  // namespace loom::collectives
