// SPDX-License-Identifier: BSD-3-Clause
#include "loom/collectives/segment.h"

#include "loom/base/check.h"
#include "loom/base/futex.h"
#include "loom/base/options.h"
#include "loom/base/process_state.h"
#include "loom/collectives/peer_error.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace loom::collectives {
namespace {

/// How late a dead peer, a deadline or the end of the process may be noticed.
constexpr std::int64_t kCheckNs = 20'000'000;

[[noreturn]] void throw_system(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

std::size_t to_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

/// Large enough to keep both sides busy, and small enough for the caches and for many ranks: all
/// rings together are 256 MB at most until each is at its least. Pages that are never touched take
/// no memory.
std::size_t ring_bytes(int ranks) {
  constexpr std::size_t kMost = std::size_t{1} << 20, kLeast = std::size_t{1} << 17;
  constexpr std::size_t kAll = std::size_t{256} << 20;
  const auto pairs = static_cast<std::size_t>(std::max(1, ranks * (ranks - 1)));
  return std::clamp(std::bit_floor(kAll / (pairs * kLanes)), kLeast, kMost);
}

std::size_t ring_count(int ranks) {
  return static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks) * kLanes;
}

std::size_t ring_index(Lane lane, int from, int to, int ranks) {
  return (static_cast<std::size_t>(lane) * static_cast<std::size_t>(ranks) +
          static_cast<std::size_t>(from)) *
             static_cast<std::size_t>(ranks) +
         static_cast<std::size_t>(to);
}

std::size_t bell_count(int ranks) { return static_cast<std::size_t>(ranks) * 3; }

flock lock_of(int rank) {
  flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

}  // namespace

Descriptor::~Descriptor() {
  if (value_ >= 0) ::close(value_);
}
Descriptor::Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(value_, other.value_);
  return *this;
}

/// The beginning of the file. Bells follow, then the rings' ends, then from the next page on their
/// memory.
struct alignas(64) Member::Control {
  enum Abort : std::uint32_t { kRuns, kWriting, kAborted };
  // Release by who has written the reason, acquire by who reads it.
  std::atomic<std::uint32_t> aborted;
  char reason[1024];

  [[nodiscard]] static std::size_t bytes(int ranks) {
    return to_pages(sizeof(Control) + bell_count(ranks) * sizeof(Bell) +
                    ring_count(ranks) * sizeof(RingEnds));
  }
  [[nodiscard]] static std::size_t file_bytes(int ranks) {
    return bytes(ranks) + ring_count(ranks) * ring_bytes(ranks);
  }
  [[nodiscard]] Bell* bells() noexcept { return reinterpret_cast<Bell*>(this + 1); }
  [[nodiscard]] RingEnds* ends(int ranks) noexcept {
    return reinterpret_cast<RingEnds*>(bells() + bell_count(ranks));
  }
};

std::size_t detail::segment_bytes(int ranks) { return Member::Control::file_bytes(ranks); }

Descriptor create_segment(int ranks) {
  Descriptor file(::memfd_create("loom-lccl", MFD_CLOEXEC));
  if (file.get() < 0) throw_system("create_segment(): memfd_create");
  if (::ftruncate(file.get(), static_cast<off_t>(detail::segment_bytes(ranks))) != 0) {
    throw_system("create_segment(): ftruncate");
  }
  return file;
}

// Locks belong to an opening of a file, and a descriptor that was passed on shares its sender's.
Member::Member(const Descriptor& segment, int rank, int ranks, std::span<const int> remote)
    : rank_(rank),
      ranks_(ranks),
      file_(loom::detail::concat("/proc/self/fd/", segment.get())),
      remote_(static_cast<std::size_t>(ranks)) {
  LOOM_CHECK(rank >= 0 && rank < ranks, "Member: expected a rank in [0, ", ranks, "), got ", rank);
  struct stat status{};
  if (::fstat(file_.get(), &status) != 0) throw_system("Member: fstat");
  LOOM_CHECK(static_cast<std::size_t>(status.st_size) == detail::segment_bytes(ranks),
             "Member: expected a segment of ", detail::segment_bytes(ranks), " bytes for ", ranks,
             " ranks, got ", status.st_size);
  for (const int peer : remote) {
    remote_[static_cast<std::size_t>(peer)] = std::make_unique<RemotePeer>();
  }
  flock lock = lock_of(rank);
  if (::fcntl(file_.get(), F_OFD_SETLK, &lock) != 0) {
    LOOM_CHECK(errno != EAGAIN && errno != EACCES, "Member: expected rank ", rank,
               " to be free, got one that another process has");
    throw_system("Member: fcntl");
  }
  try {
    map(segment);
  } catch (...) {
    unmap();
    throw;
  }
}

Member::~Member() {
  leave();
  unmap();
}

// Closing would unlock as well, but without a bell. (In a forked child there is no lock to let go,
// and nobody to be told.)
void Member::leave() noexcept {
  if (file_.get() < 0) return;
  flock lock = lock_of(rank_);
  lock.l_type = F_UNLCK;
  static_cast<void>(::fcntl(file_.get(), F_OFD_SETLK, &lock));
  ring_all();
}

// Through the other opening: a mapping holds its own, and forked children have the mappings.
void Member::map(const Descriptor& segment) {
  control_bytes_ = Control::bytes(ranks_);
  void* const memory =
      ::mmap(nullptr, control_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, segment.get(), 0);
  if (memory == MAP_FAILED) throw_system("Member: mmap");
  control_ = static_cast<Control*>(memory);
  for (const Lane lane : {Lane::kCollective, Lane::kPointToPoint}) {
    for (int peer = 0; peer < ranks_; ++peer) {
      incoming_.push_back(map_ring(segment, lane, peer, rank_));
      outgoing_.push_back(map_ring(segment, lane, rank_, peer));
    }
  }
}

Ring Member::map_ring(const Descriptor& segment, Lane lane, int from, int to) {
  if (from == to) return {};
  const std::size_t bytes = ring_bytes(ranks_);
  const std::size_t index = ring_index(lane, from, to, ranks_);
  const auto offset = static_cast<off_t>(control_bytes_ + index * bytes);
  // A place for both mappings first, so that the second one has room behind the first.
  void* const place = ::mmap(nullptr, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) throw_system("Member: mmap");
  auto* const data = static_cast<std::byte*>(place);
  mapped_.push_back(data);
  for (const std::size_t at : {std::size_t{0}, bytes}) {
    if (::mmap(data + at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, segment.get(),
               offset) == MAP_FAILED) {
      throw_system("Member: mmap");
    }
  }
  return {control_->ends(ranks_)[index], data, bytes};
}

void Member::unmap() noexcept {
  for (std::byte* const data : mapped_) ::munmap(data, 2 * ring_bytes(ranks_));
  if (control_ != nullptr) ::munmap(control_, control_bytes_);
}

const Ring& Member::outgoing(Lane lane, int peer) const {
  return outgoing_[static_cast<std::size_t>(lane) * static_cast<std::size_t>(ranks_) +
                   static_cast<std::size_t>(peer)];
}

const Ring& Member::incoming(Lane lane, int peer) const {
  return incoming_[static_cast<std::size_t>(lane) * static_cast<std::size_t>(ranks_) +
                   static_cast<std::size_t>(peer)];
}

Bell& Member::bell(int rank) const {
  return remote(rank) != nullptr ? remote(rank)->bell : control_->bells()[rank];
}

Bell& Member::arrival_bell(int rank) const {
  return remote(rank) != nullptr ? remote(rank)->bell : control_->bells()[ranks_ + rank];
}

Bell& Member::departure_bell(int rank) const {
  return remote(rank) != nullptr ? remote(rank)->bell : control_->bells()[2 * ranks_ + rank];
}

bool Member::handed_over(Lane lane, int peer) const noexcept {
  if (remote(peer) == nullptr) return true;
  return remote(peer)->handed_over[static_cast<std::size_t>(lane)].load(
             std::memory_order_acquire) == outgoing(lane, peer).written();
}

void Member::ring_own() const noexcept {
  for (Bell* const each : {&bell(rank_), &arrival_bell(rank_), &departure_bell(rank_)}) {
    each->ring();
  }
}

void Member::ring_all() const noexcept {
  for (std::size_t i = 0; i < bell_count(ranks_); ++i) control_->bells()[i].ring();
  for (const auto& peer : remote_) {
    if (peer != nullptr) peer->bell.ring();
  }
}

void Member::abort(const std::string& why) noexcept {
  std::uint32_t expected = Control::kRuns;
  // Relaxed: the reason is published below; who comes second has nothing to say.
  if (!control_->aborted.compare_exchange_strong(expected, Control::kWriting,
                                                 std::memory_order_relaxed)) {
    return;
  }
  const std::size_t size = std::min(why.size(), sizeof(control_->reason) - 1);
  std::memcpy(control_->reason, why.data(), size);
  control_->reason[size] = '\0';
  control_->aborted.store(Control::kAborted, std::memory_order_release);
  ring_all();
}

bool Member::aborted() const noexcept {
  return control_->aborted.load(std::memory_order_acquire) != Control::kRuns;
}

std::string Member::reason() const {
  constexpr std::int64_t kWritingNs = 1'000'000;
  if (!aborted()) return {};
  const auto written = [&] {
    return control_->aborted.load(std::memory_order_acquire) == Control::kAborted;
  };
  if (spin_until(written, kWritingNs)) return control_->reason;
  // A process that dies between the two stores of abort() leaves no reason.
  return "a rank has aborted the group";
}

bool Member::gone(int peer) const noexcept {
  if (peer == rank_) return false;
  if (remote(peer) != nullptr) return remote(peer)->gone.load(std::memory_order_acquire);
  flock lock = lock_of(peer);
  return ::fcntl(file_.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

void Member::check_alive(const Operation& operation) const {
  if (!aborted()) return;
  throw PeerError(PeerError::Cause::kAborted,
                  loom::detail::concat(operation.text(), ": ", reason()));
}

void Member::wait_erased(Bell& bell, std::span<const int> peers, const Operation& operation,
                         ReadyFunction ready, void* context) {
  std::int64_t next_check = now_ns() + kCheckNs;
  for (;;) {
    const std::uint32_t heard = bell.heard();
    if (ready(context)) return;
    if (aborted() || now_ns() >= next_check) {
      check(peers, operation, ready, context);
      next_check = now_ns() + kCheckNs;
    }
    bell.wait(heard, options().spin_ns, kCheckNs);
  }
}

void Member::check(std::span<const int> peers, const Operation& operation, ReadyFunction ready,
                   void* context) {
  using Cause = PeerError::Cause;
  const auto fail = [&](Cause cause, const std::string& why) {
    abort(loom::detail::concat("rank ", rank_, " in ", operation.text(), ": ", why));
    throw PeerError(cause, loom::detail::concat(operation.text(), ": ", why));
  };
  check_alive(operation);
  if (exiting()) {
    throw PeerError(Cause::kExit, loom::detail::concat(operation.text(), ": the process ends"));
  }
  for (const int peer : peers) {
    // A peer that has left may have done its part before, since the last look; the next one
    // decides.
    if (gone(peer) && !ready(context)) {
      fail(Cause::kLost,
           loom::detail::concat("rank ", peer, " has left the group, or its process has ended"));
    }
  }
  if (now_ns() < operation.deadline_ns) return;
  std::string awaited;
  for (const int peer : peers) {
    awaited += loom::detail::concat(awaited.empty() ? "rank " : ", ", peer);
  }
  if (peers.empty()) awaited = "any rank";
  fail(Cause::kTimeout,
       loom::detail::concat("the timeout is over, and nothing came from ", awaited));
}

}  // namespace loom::collectives
