// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/stream.h"

#include "loom/backend/device_state.h"
#include "loom/device/device.h"

#include "backend/support.h"
#include <set>
#include <vector>

namespace loom {
namespace {

using test::Hold;
using test::thrown_text;
using ::testing::HasSubstr;

using StreamTest = test::BackendTest;

c10::Stream raw_stream(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, to_c10(device), id);
}

TEST_F(StreamTest, IdZeroIsTheDefaultStream) {
  EXPECT_EQ(default_stream(1).id(), 0);
  EXPECT_EQ(&Stream(c10::Stream(c10::Stream::DEFAULT, to_c10(1))).queue(),
            &device(1).default_queue());
}

TEST_F(StreamTest, TheDefaultStreamIsCurrentAtTheStartOfAThread) {
  set_current_stream(stream_from_pool(false, 0));
  test::on_other_thread([] { EXPECT_EQ(current_stream(), default_stream()); });
}

TEST_F(StreamTest, CurrentStreamIsKeptPerDevice) {
  const Stream zero = stream_from_pool(false, 0);
  const Stream one = stream_from_pool(false, 1);
  set_current_stream(zero);
  set_current_stream(one);
  EXPECT_EQ(current_device(), 0);
  EXPECT_EQ(current_stream(), zero);
  EXPECT_EQ(current_stream(1), one);
  set_device(1);
  EXPECT_EQ(current_stream(), one);
  EXPECT_EQ(&current_queue(), &one.queue());
  EXPECT_EQ(&current_queue(0), &zero.queue());
}

TEST_F(StreamTest, PoolGivesDistinctStreamsUntilItComesAround) {
  std::set<c10::StreamId> ids;
  std::vector<Stream> streams;
  for (int i = 0; i < Device::kQueuesPerPriority; ++i) {
    streams.push_back(stream_from_pool(false, 0));
    ids.insert(streams.back().id());
  }
  EXPECT_EQ(ids.size(), static_cast<std::size_t>(Device::kQueuesPerPriority));
  EXPECT_EQ(ids.count(0), 0U);
  EXPECT_EQ(stream_from_pool(false, 0), streams.front());
}

TEST_F(StreamTest, PriorityIsPartOfTheStream) {
  EXPECT_EQ(Stream::priority_range(), std::make_pair(0, -1));
  EXPECT_EQ(stream_from_pool(true, 0).priority(), -1);
  EXPECT_EQ(stream_from_pool(false, 0).priority(), 0);
  EXPECT_EQ(default_stream(0).priority(), 0);
}

TEST_F(StreamTest, PrioritiesOutsideTheRangeAreClamped) {
  EXPECT_EQ(stream_from_pool(-9, 0).priority(), -1);
  EXPECT_EQ(stream_from_pool(7, 0).priority(), 0);
}

TEST_F(StreamTest, IdsGoToTheirQueueAndBack) {
  for (const bool high : {false, true}) {
    const Stream stream = stream_from_pool(high, 1);
    EXPECT_EQ(&queue_of(stream), &stream.queue());
    EXPECT_EQ(stream_of(stream.queue()), stream);
    EXPECT_EQ(Stream(c10::Stream::unpack3(stream.id(), 1, kDeviceType)), stream);
  }
}

TEST_F(StreamTest, ForeignStreamsAreRefused) {
  EXPECT_THAT(thrown_text<c10::Error>([] { (void)queue_of(raw_stream(0, 1000)); }),
              HasSubstr("expected the id of a stream of loom:0"));
  EXPECT_THAT(thrown_text<c10::Error>([] { (void)queue_of(raw_stream(0, -1)); }),
              HasSubstr("got -1"));
  EXPECT_THAT(thrown_text<c10::Error>([] { (void)queue_of(raw_stream(7, 0)); }),
              HasSubstr("stream: expected a device index in [0, 2), got 7"));
  EXPECT_THAT(thrown_text<c10::Error>(
                  [] { Stream(c10::Stream(c10::Stream::DEFAULT, c10::Device("cpu"))); }),
              HasSubstr("stream: expected a loom device, got cpu"));
}

TEST_F(StreamTest, QueryIsFalseWhileWorkIsQueued) {
  const Stream stream = stream_from_pool();
  EXPECT_TRUE(stream.query());
  Hold hold(stream.queue());
  EXPECT_FALSE(stream.query());
  EXPECT_TRUE(default_stream().query());
  hold.open();
  stream.synchronize();
  EXPECT_TRUE(stream.query());
}

TEST_F(StreamTest, GuardRestoresStreamAndDevice) {
  const Stream outer = stream_from_pool(false, 0);
  const Stream inner = stream_from_pool(false, 1);
  set_current_stream(outer);
  {
    const StreamGuard guard(inner);
    EXPECT_EQ(current_device(), 1);
    EXPECT_EQ(current_stream(), inner);
    EXPECT_EQ(guard.original_stream(), default_stream(1));
    EXPECT_EQ(current_stream(0), outer);
  }
  EXPECT_EQ(current_device(), 0);
  EXPECT_EQ(current_stream(), outer);
  EXPECT_EQ(current_stream(1), default_stream(1));
}

TEST_F(StreamTest, EqualStreamsHashAlike) {
  const Stream stream = stream_from_pool();
  const std::hash<Stream> hash;
  EXPECT_EQ(hash(stream), hash(Stream(stream.unwrap())));
  EXPECT_NE(hash(stream), hash(default_stream()));
}

TEST_F(StreamTest, StreamsOfOneDeviceRunSideBySide) {
  const Stream held = stream_from_pool();
  const Stream other = stream_from_pool();
  Hold hold(held.queue());
  bool ran = false;
  other.queue().submit("mark", [&ran] { ran = true; });
  other.synchronize();
  EXPECT_TRUE(ran);
  EXPECT_FALSE(held.query());
}

}  // namespace
}  // namespace loom
