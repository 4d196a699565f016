// SPDX-License-Identifier: BSD-3-Clause
#include "loom/collectives/segment_exchange.h"

#include "loom/base/check.h"
#include "loom/base/futex.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <system_error>
#include <unistd.h>

namespace loom::collectives {
namespace {

[[noreturn]] void throw_system(int error, const char* what) {
  throw std::system_error(error, std::generic_category(), what);
}

struct Address {
  sockaddr_un where{};
  socklen_t size = 0;
  [[nodiscard]] const sockaddr* get() const noexcept {
    return reinterpret_cast<const sockaddr*>(&where);
  }
};

/// A name that begins with a zero lies in no file system, and is gone with its socket.
Address address_of(const std::string& name) {
  Address address;
  address.where.sun_family = AF_UNIX;
  LOOM_CHECK(name.size() + 1 < sizeof(address.where.sun_path),
             "request_segment(): expected the name of a segment, got ", name.size(), " characters");
  std::memcpy(address.where.sun_path + 1, name.data(), name.size());
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

std::string random_name() {
  std::array<unsigned char, 16> random{};
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    throw_system(errno, "SegmentServer: getrandom");
  }
  std::string name = "loom-lccl-";
  for (const unsigned char byte : random) {
    for (const int digit : {byte >> 4, byte & 15}) name += "0123456789abcdef"[digit];
  }
  return name;
}

bool wait_readable(const Descriptor& socket, std::int64_t deadline_ns) {
  for (;;) {
    pollfd poll{socket.get(), POLLIN, 0};
    const std::int64_t left_ms = (deadline_ns - now_ns()) / 1'000'000;
    const int ready =
        ::poll(&poll, 1, static_cast<int>(std::clamp<std::int64_t>(left_ms, 0, INT_MAX)));
    if (ready > 0) return true;
    // poll() takes 24 days at most.
    if (ready == 0 && now_ns() >= deadline_ns) return false;
    if (ready < 0 && errno != EINTR) throw_system(errno, "a segment's socket: poll");
  }
}

/// Names of such sockets can be listed by everybody on the host.
bool is_of_this_user(const Descriptor& socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == ::geteuid();
}

Descriptor make_socket() {
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) throw_system(errno, "a segment's socket: socket");
  return socket;
}

/// A message of one byte with room for a descriptor.
struct Message {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  Message() {
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
};

}  // namespace

SegmentServer::SegmentServer(int ranks)
    : segment_(create_segment(ranks)), socket_(make_socket()), name_(random_name()) {
  const Address address = address_of(name_);
  if (::bind(socket_.get(), address.get(), address.size) != 0) {
    throw_system(errno, "SegmentServer: bind");
  }
  if (::listen(socket_.get(), std::max(ranks, 1)) != 0) {
    throw_system(errno, "SegmentServer: listen");
  }
}

bool SegmentServer::serve_one(std::int64_t deadline_ns) {
  if (!wait_readable(socket_, deadline_ns)) return false;
  const Descriptor peer(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (peer.get() < 0) throw_system(errno, "SegmentServer: accept");
  if (!is_of_this_user(peer)) return false;
  Message message;
  cmsghdr* const control = CMSG_FIRSTHDR(&message.header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof(int));
  const int descriptor = segment_.get();
  std::memcpy(CMSG_DATA(control), &descriptor, sizeof(descriptor));
  // Who has gone away meanwhile is missed by the others.
  return ::sendmsg(peer.get(), &message.header, MSG_NOSIGNAL) == 1;
}

Descriptor request_segment(const std::string& name, std::int64_t deadline_ns) {
  const Address address = address_of(name);
  const Descriptor socket = make_socket();
  if (::connect(socket.get(), address.get(), address.size) != 0) {
    throw_system(errno, "request_segment(): connect");
  }
  LOOM_CHECK(is_of_this_user(socket), "request_segment(): expected a socket of this user, got one ",
             "of another");
  if (!wait_readable(socket, deadline_ns)) throw_system(ETIMEDOUT, "request_segment()");
  Message message;
  const ssize_t got = ::recvmsg(socket.get(), &message.header, MSG_CMSG_CLOEXEC);
  if (got != 1) throw_system(got < 0 ? errno : ECONNRESET, "request_segment(): recvmsg");
  const cmsghdr* const control = CMSG_FIRSTHDR(&message.header);
  LOOM_CHECK(control != nullptr && control->cmsg_type == SCM_RIGHTS,
             "request_segment(): expected a descriptor from the socket ", name, ", got none");
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(control), sizeof(descriptor));
  return Descriptor(descriptor);
}

}  // namespace loom::collectives
