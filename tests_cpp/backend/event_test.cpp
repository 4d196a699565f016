// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/event.h"

#include "loom/backend/device_state.h"

#include "backend/support.h"
#include <chrono>
#include <utility>

namespace loom {
namespace {

using test::Hold;

using EventTest = test::BackendTest;

TEST_F(EventTest, NeverRecordedCountsAsComplete) {
  const Event event;
  EXPECT_FALSE(event.recorded());
  EXPECT_EQ(event.device_index(), -1);
  EXPECT_TRUE(event.query());
  event.synchronize();
}

TEST_F(EventTest, CoversWorkBeforeTheRecordOnly) {
  const Stream stream = stream_from_pool();
  Event event;
  event.record(stream);
  Hold hold(stream.queue());
  event.synchronize();
  EXPECT_TRUE(event.query());
  EXPECT_FALSE(stream.query());
}

TEST_F(EventTest, RecordWithoutAStreamTakesTheCurrentOne) {
  const StreamGuard guard(stream_from_pool(false, 1));
  Hold hold(current_queue());
  Event event;
  event.record();
  EXPECT_EQ(event.device_index(), 1);
  EXPECT_FALSE(event.query());
}

TEST_F(EventTest, BlockOrdersAnotherStreamAfterTheMark) {
  const Stream producer = stream_from_pool(false, 0);
  const Stream consumer = stream_from_pool(false, 1);
  Hold hold(producer.queue());
  int value = 0;
  producer.queue().submit("write", [&value] { value = 7; });
  Event event;
  event.record(producer);
  event.block(consumer);
  int seen = 0;
  consumer.queue().submit("read", [&] { seen = value; });
  EXPECT_FALSE(consumer.query());
  hold.open();
  consumer.synchronize();
  EXPECT_EQ(seen, 7);
}

TEST_F(EventTest, BlockUsesTheMarkOfItsTime) {
  const Stream producer = stream_from_pool();
  const Stream consumer = stream_from_pool();
  Event event;
  event.record(producer);
  event.block(consumer);
  Hold hold(producer.queue());
  event.record(producer);
  consumer.synchronize();
  EXPECT_FALSE(event.query());
}

TEST_F(EventTest, ElapsedTimeIsInMilliseconds) {
  const Stream stream = stream_from_pool();
  Event start(true);
  Event end(true);
  start.record(stream);
  stream.queue().submit("spin", [] {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
    while (std::chrono::steady_clock::now() < until) {
    }
  });
  end.record(stream);
  end.synchronize();
  EXPECT_GE(start.elapsed_time(end), 2.0);
  EXPECT_LE(end.elapsed_time(start), -2.0);
}

TEST_F(EventTest, ElapsedTimeNeedsTiming) {
  Event start;
  Event end;
  start.record();
  end.record();
  end.synchronize();
  EXPECT_THROW((void)start.elapsed_time(end), std::exception);
}

TEST_F(EventTest, MovesWithItsMark) {
  Hold hold(current_queue());
  Event event;
  event.record();
  const Event moved = std::move(event);
  EXPECT_TRUE(moved.recorded());
  EXPECT_FALSE(moved.query());
}

}  // namespace
}  // namespace loom
