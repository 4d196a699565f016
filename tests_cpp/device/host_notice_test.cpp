// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/host_notice.h"

#include "loom/base/check.h"
#include "loom/device/event.h"
#include "loom/device/queue.h"

#include <gtest/gtest.h>

#include "support/gate.h"
#include "support/queues.h"
#include <stdexcept>

namespace loom {
namespace {

int g_told = 0;
bool g_throws = false;

void tell() {
  ++g_told;
  if (g_throws) throw std::runtime_error("told");
}

class HostNoticeTest : public testing::QueueFixture {
 protected:
  void SetUp() override {
    g_told = 0;
    g_throws = false;
    set_host_notifier(&tell);
  }
  void TearDown() override { set_host_notifier(nullptr); }

  void submit_note(Queue& queue) {
    queue.submit("note", [] { note_for_host(); });
  }
};

TEST_F(HostNoticeTest, IsToldOnceByTheNextWaitForValues) {
  submit_note(queue_);
  queue_.synchronize();
  EXPECT_EQ(g_told, 1);
  queue_.synchronize();
  EXPECT_EQ(g_told, 1);
}

TEST_F(HostNoticeTest, IsToldWhereTheValuesAreThereAlready) {
  submit_note(queue_);
  queue_.timeline().wait(queue_.submitted());
  EXPECT_EQ(g_told, 0);
  queue_.synchronize();
  EXPECT_EQ(g_told, 1);
}

TEST_F(HostNoticeTest, IsToldByEveryKindOfWait) {
  QueueEvent event(EventTiming::kDisabled);
  submit_note(queue_);
  event.record(queue_);
  event.synchronize();
  EXPECT_EQ(g_told, 1);
  queue_.submit_and_wait("note", [] { note_for_host(); });
  EXPECT_EQ(g_told, 2);
}

TEST_F(HostNoticeTest, WaitsForAHost) {
  submit_note(queue_);
  queue_.timeline().wait(queue_.submitted());
  other_.submit("wait", [&] { queue_.synchronize(); });
  other_.timeline().wait(other_.submitted());
  EXPECT_EQ(g_told, 0);
  queue_.synchronize();
  EXPECT_EQ(g_told, 1);
}

TEST_F(HostNoticeTest, WhatTheHostThrowsTheWaitThrowsAndTheQueueGoesOn) {
  g_throws = true;
  bool ran = false;
  submit_note(queue_);
  queue_.submit("run", [&] { ran = true; });
  EXPECT_THROW(queue_.synchronize(), std::runtime_error);
  EXPECT_NO_THROW(queue_.synchronize());
  EXPECT_TRUE(ran);
}

TEST_F(HostNoticeTest, AnErrorGoesFirst) {
  g_throws = true;
  submit_note(queue_);
  queue_.submit("fail", [] { throw std::out_of_range("index 7"); });
  EXPECT_THROW(queue_.synchronize(), Error);
  EXPECT_THROW(queue_.synchronize(), std::runtime_error);
}

}  // namespace
}  // namespace loom
