// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A channel of tests: a pair of sockets of one host that keep the bounds of frames.

#include "loom/collectives/channel.h"
#include "loom/collectives/segment.h"

#include <array>
#include <cerrno>
#include <memory>
#include <sys/socket.h>
#include <sys/uio.h>
#include <system_error>
#include <utility>
#include <vector>

namespace loom::collectives::testing {

class SocketChannel final : public Channel {
 public:
  explicit SocketChannel(Descriptor socket) : socket_(std::move(socket)), frame_(kFrameBytes) {
    const int bytes = 4 * static_cast<int>(kFrameBytes);
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  }

  /// Both ends.
  static std::array<std::unique_ptr<SocketChannel>, 2> make_pair() {
    std::array<int, 2> sockets{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()) != 0) {
      throw std::system_error(errno, std::generic_category(), "socketpair");
    }
    return {std::make_unique<SocketChannel>(Descriptor(sockets[0])),
            std::make_unique<SocketChannel>(Descriptor(sockets[1]))};
  }

  void send(std::span<const std::byte> head, std::span<const std::byte> body,
            std::int64_t /*limit_ns*/) override {
    std::array<iovec, 2> parts{
        iovec{const_cast<std::byte*>(head.data()), head.size()},
        iovec{const_cast<std::byte*>(body.data()), body.size()},
    };
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    if (::sendmsg(socket_.get(), &message, MSG_NOSIGNAL) < 0) {
      throw std::system_error(errno, std::generic_category(), "sendmsg");
    }
  }

  std::span<const std::byte> receive() override {
    const ssize_t got = ::recv(socket_.get(), frame_.data(), frame_.size(), 0);
    if (got < 0) throw std::system_error(errno, std::generic_category(), "recv");
    return {frame_.data(), static_cast<std::size_t>(got)};
  }

  void close() noexcept override { ::shutdown(socket_.get(), SHUT_RDWR); }

 private:
  Descriptor socket_;
  std::vector<std::byte> frame_;
};

}  // namespace loom::collectives::testing
