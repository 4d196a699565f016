// SPDX-License-Identifier: BSD-3-Clause
// A segment tells its ranks who is there, whatever ends one, and gets from process to process.
#include "loom/collectives/segment.h"

#include "loom/base/futex.h"
#include "loom/collectives/peer_error.h"
#include "loom/collectives/segment_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/ranks.h"
#include <array>
#include <csignal>
#include <cstring>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace loom::collectives {
namespace {

using ::testing::HasSubstr;
using testing::operation;

PeerError::Cause cause_of(Member& member, int peer, const Operation& waited, std::string* text) {
  const std::array<int, 1> peers{peer};
  try {
    member.wait(member.bell(member.rank()), peers, waited, [] { return false; });
  } catch (const PeerError& error) {
    *text = error.what();
    return error.cause();
  }
  ADD_FAILURE() << "expected a PeerError";
  return {};
}

TEST(SegmentTest, ARankIsTakenOnce) {
  const Descriptor segment = create_segment(2);
  const Member first(segment, 0, 2);
  EXPECT_THROW(Member(segment, 0, 2), Error);
  EXPECT_THROW(Member(segment, 2, 2), Error);
  EXPECT_THROW(Member(segment, 1, 3), Error);
}

TEST(SegmentTest, WhoHasLeftIsGone) {
  const Descriptor segment = create_segment(2);
  Member first(segment, 0, 2);
  EXPECT_TRUE(first.gone(1));
  {
    const Member second(segment, 1, 2);
    EXPECT_FALSE(first.gone(1));
  }
  EXPECT_TRUE(first.gone(1));
  std::string text;
  EXPECT_EQ(cause_of(first, 1, operation("all_reduce", 7), &text), PeerError::Cause::kLost);
  EXPECT_THAT(text, HasSubstr("all_reduce (number 7): rank 1 has left the group"));
  EXPECT_THAT(first.reason(), HasSubstr("rank 0 in all_reduce (number 7): rank 1 has left"));
}

TEST(SegmentTest, AKilledProcessIsGone) {
  const Descriptor segment = create_segment(2);
  Member first(segment, 0, 2);
  const pid_t child = ::fork();
  if (child == 0) {
    const Member second(segment, 1, 2);
    second.bell(0).ring();
    ::pause();
    ::_exit(0);
  }
  const std::uint32_t heard = 0;
  while (first.bell(0).heard() == heard) first.bell(0).wait(heard, 0, 1'000'000);
  EXPECT_FALSE(first.gone(1));
  ::kill(child, SIGKILL);
  std::string text;
  EXPECT_EQ(cause_of(first, 1, operation("barrier"), &text), PeerError::Cause::kLost);
  ::waitpid(child, nullptr, 0);
}

TEST(SegmentTest, AKilledProcessIsGoneThoughItsChildrenLive) {
  const Descriptor segment = create_segment(2);
  Member first(segment, 0, 2);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const Member second(segment, 1, 2);
    if (::fork() == 0) {
      const pid_t grandchild = ::getpid();
      static_cast<void>(!::write(ends[1], &grandchild, sizeof(grandchild)));
    }
    ::pause();
    ::_exit(0);
  }
  pid_t grandchild = 0;
  ASSERT_EQ(::read(ends[0], &grandchild, sizeof(grandchild)), ssize_t{sizeof(grandchild)});
  EXPECT_FALSE(first.gone(1));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(first.gone(1));
  EXPECT_EQ(::kill(grandchild, SIGKILL), 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(SegmentTest, WhatIsNotDoneInTimeFailsOnAllRanks) {
  const Descriptor segment = create_segment(2);
  Member first(segment, 0, 2), second(segment, 1, 2);
  std::string text;
  EXPECT_EQ(cause_of(first, 1, operation("broadcast", 2, 0.05), &text), PeerError::Cause::kTimeout);
  EXPECT_THAT(text,
              HasSubstr("broadcast (number 2): the timeout is over, and nothing came from rank 1"));
  EXPECT_EQ(cause_of(second, 0, operation("broadcast", 2), &text), PeerError::Cause::kAborted);
  EXPECT_THAT(
      text,
      HasSubstr(
          "rank 0 in broadcast (number 2): the timeout is over, and nothing came from rank 1"));
}

TEST(SegmentTest, AnAbortWakesWhoWaits) {
  const Descriptor segment = create_segment(2);
  Member first(segment, 0, 2), second(segment, 1, 2);
  const std::jthread aborts([&] { second.abort("rank 1 has had enough"); });
  std::string text;
  EXPECT_EQ(cause_of(first, 1, operation("barrier"), &text), PeerError::Cause::kAborted);
  EXPECT_THAT(text, HasSubstr("barrier (number 0): rank 1 has had enough"));
  first.abort("too late");
  EXPECT_EQ(second.reason(), "rank 1 has had enough");
}

TEST(SegmentTest, GoesToAnotherProcess) {
  SegmentServer server(2);
  Member first(server.segment(), 0, 2);
  const pid_t child = ::fork();
  if (child == 0) {
    const Descriptor segment = request_segment(server.name(), operation("").deadline_ns);
    Member second(segment, 1, 2);
    const Ring& ring = second.outgoing(Lane::kCollective, 0);
    std::memcpy(ring.writable(), "hello", 6);
    ring.publish(6);
    second.bell(0).ring();
    // Stays until the other side has read.
    while (ring.room() != ring.capacity()) second.bell(1).wait(second.bell(1).heard(), 0, 1000);
    ::_exit(0);
  }
  ASSERT_TRUE(server.serve_one(operation("").deadline_ns));
  const Ring& ring = first.incoming(Lane::kCollective, 1);
  const std::array<int, 1> peers{1};
  first.wait(first.bell(0), peers, operation("test"), [&] { return ring.available() == 6; });
  EXPECT_STREQ(reinterpret_cast<const char*>(ring.readable()), "hello");
  ring.release(6);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(SegmentTest, NobodyAnswers) {
  const std::int64_t soon = now_ns() + 10'000'000;
  EXPECT_THROW(static_cast<void>(request_segment("loom-lccl-nobody", soon)), std::system_error);
  SegmentServer server(2);
  EXPECT_FALSE(server.serve_one(soon));
  EXPECT_THROW(static_cast<void>(request_segment(server.name(), soon)), std::system_error);
}

TEST(SegmentTest, RingsAreOneRangeAtTheirEnd) {
  const Descriptor segment = create_segment(2);
  const Member first(segment, 0, 2), second(segment, 1, 2);
  const Ring& out = first.outgoing(Lane::kPointToPoint, 1);
  const Ring& in = second.incoming(Lane::kPointToPoint, 0);
  for (std::uint64_t round = 0; round < 10; ++round) {
    const std::size_t bytes = out.capacity() / 3 * 2;
    ASSERT_GE(out.room(), bytes);
    std::memset(out.writable(), static_cast<int>(round), bytes);
    out.publish(bytes);
    ASSERT_EQ(in.available(), bytes);
    for (std::size_t i = 0; i < bytes; i += 511) {
      ASSERT_EQ(static_cast<std::uint64_t>(in.readable()[i]), round);
    }
    in.release(bytes);
  }
}

}  // namespace
}  // namespace loom::collectives
