// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The transport of a group: over rings, which ranks of one host share (segment.h), and carriers
// copy between hosts (carrier.h). Each message is a header, by which the other side sees that both
// run the same operation, then its bytes, in units of 64.
// Thread: as Transport.

#include "loom/collectives/segment.h"
#include "loom/collectives/transport.h"

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace loom::collectives {

class LOOM_API RingTransport final : public Transport {
 public:
  explicit RingTransport(std::shared_ptr<Member> member);

  [[nodiscard]] int rank() const noexcept override;
  [[nodiscard]] int ranks() const noexcept override;
  void begin(const Operation& operation) override;
  void send(int peer, const void* data, std::size_t bytes) override;
  void expect(int peer, std::size_t bytes) override;
  [[nodiscard]] std::span<const std::byte> next(int peer) override;
  void release(int peer) override;
  void flush() override;
  void finish() override;
  void abort(const std::string& why) noexcept override;
  [[nodiscard]] std::string reason() const override;

  /// Writes what there is room for; returns whether something is left.
  bool pump();

  /// Between operations: looks for messages of earlier ones that this rank has not read, as other
  /// ranks took another one for the root. Throws: PeerError, if there is one.
  void check_unread();

 private:
  struct Outgoing {
    const std::byte* data;
    std::size_t bytes;   ///< left
    std::size_t whole;   ///< of the message
    bool begun = false;  ///< its header is written
  };
  struct Incoming {
    std::size_t bytes;  ///< left
    std::size_t whole;
    bool begun = false;  ///< its header was read
  };
  struct Peer {
    std::deque<Outgoing> outgoing;
    std::deque<Incoming> incoming;
    std::size_t held = 0;  ///< bytes of the ring that the piece in use takes
  };

  bool pump(int peer);
  void await(int peer, const Ring& ring, std::size_t bytes);
  template <class Done>
  void await_each(Done&& done);
  void read_header(int peer, const Incoming& message);
  /// Compares the next message of a peer with what this rank does or has done: its header has come.
  /// Throws: PeerError.
  void check_call(int peer);
  /// Compares the next message of each peer, if its header has come, with what this rank does or
  /// has done. Throws: PeerError.
  void look_at_headers();
  /// Ends the group. `awaited`: bytes of the message that this rank waits for, if any.
  [[noreturn]] void fail(const char* expected, const Operation& own, int peer,
                         const Operation& other, const std::string& own_more,
                         const std::string& other_more);
  /// The operation of this rank with that number; none if it is too long ago.
  [[nodiscard]] const Operation* operation_of(std::uint64_t number) const;

  static constexpr std::size_t kKept = 16;
  const std::shared_ptr<Member> member_;
  std::vector<Peer> peers_;
  Operation operation_;
  std::array<Operation, kKept> last_;  // by the remainder of their numbers
  std::uint64_t next_ = 0;             // the number after that of the last one
};

}  // namespace loom::collectives
