// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/recorder.h"

#include "loom/base/check.h"
#include "loom/device/command_trace.h"
#include "loom/device/event.h"
#include "loom/fusion/freed.h"
#include "loom/fusion/kernel_cache.h"
#include "loom/fusion/program_set.h"

#include <gtest/gtest.h>

#include "support/child.h"
#include "support/flushing.h"
#include "support/fused.h"
#include "support/gate.h"
#include "support/queues.h"
#include "support/threads.h"
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace loom::fusion {
namespace {

using testing::binary;
using testing::FusedTensor;
using testing::row_sum;

class RecorderTest : public testing::QueueFixture {
 protected:
  bool add(FusedTensor& to, FusedTensor& a, FusedTensor& b) {
    return record(queue_, binary(Op::kAdd, to.access(), a.access(), b.access()));
  }

  /// As the next one of a list, if within its scope.
  bool add_to(FusedTensor& to, FusedTensor& a) {
    Expression sum = binary(Op::kAdd, to.access(), to.access(), a.access());
    sum.set_independent(IndependentScope::active());
    return record(queue_, sum);
  }

  FusedTensor a_{{3, 100}, 1}, b_{{3, 100}, 2}, c_{{3, 100}}, d_{{3, 100}};
};

TEST_F(RecorderTest, OperatorsShareACommandUntilSomethingElseComes) {
  testing::Gate gate;
  testing::submit_gate(queue_, gate);
  ASSERT_TRUE(add(c_, a_, b_));
  ASSERT_TRUE(add(d_, c_, b_));
  EXPECT_EQ(queue_.submitted(), 2u);
  queue_.submit("other", &RecorderTest::nothing);
  ASSERT_TRUE(add(c_, c_, b_));
  EXPECT_EQ(queue_.submitted(), 4u);
  gate.open();
  queue_.synchronize();
  EXPECT_EQ(c_[299], 5);
  EXPECT_EQ(d_[0], 5);
}

TEST_F(RecorderTest, OperatorsShareNoCommandWithThoseOfAnotherFloatMode) {
  if (!testing::Flushing::kKnown) GTEST_SKIP() << "no flushed denormals here";
  testing::Gate gate;
  testing::submit_gate(queue_, gate);
  constexpr float kTiny = 1e-40F;
  FusedTensor tiny({3, 100}, kTiny);
  ASSERT_TRUE(add(c_, tiny, tiny));
  {
    const testing::Flushing flushing;
    ASSERT_TRUE(add(d_, tiny, tiny));
    EXPECT_EQ(queue_.submitted(), 3u);
    ASSERT_TRUE(add(b_, d_, tiny));
    EXPECT_EQ(queue_.submitted(), 3u);
  }
  ASSERT_TRUE(add(a_, tiny, tiny));
  EXPECT_EQ(queue_.submitted(), 4u);
  gate.open();
  queue_.synchronize();
  EXPECT_EQ(c_[299], kTiny + kTiny);
  EXPECT_EQ(d_[299], 0);
  EXPECT_EQ(b_[0], 0);
  EXPECT_EQ(a_[0], kTiny + kTiny);
}

TEST_F(RecorderTest, ACommandSubmittedLaterSeesTheResults) {
  float seen = 0;
  ASSERT_TRUE(add(c_, a_, b_));
  queue_.submit("look", [&] { seen = c_[7]; });
  queue_.synchronize();
  EXPECT_EQ(seen, 3);
}

TEST_F(RecorderTest, AnEventCoversWhatWasRecordedBeforeIt) {
  testing::Gate gate;
  testing::submit_gate(queue_, gate);
  ASSERT_TRUE(add(c_, a_, b_));
  QueueEvent event(EventTiming::kDisabled);
  event.record(queue_);
  // What is freed after the event may still be read by who waits for it.
  note_freed(c_.access().allocation);
  ASSERT_TRUE(add(d_, a_, b_));
  EXPECT_EQ(queue_.submitted(), 3u);
  gate.open();
  event.synchronize();
  EXPECT_EQ(c_[0], 3);
  queue_.synchronize();
}

TEST_F(RecorderTest, NobodyHasToCloseAProgram) {
  ASSERT_TRUE(add(c_, a_, b_));
  queue_.timeline().wait(queue_.submitted());
  EXPECT_EQ(c_[0], 3);
}

TEST_F(RecorderTest, WithoutFusionEachOperatorRunsByItself) {
  set_enabled(false);
  ASSERT_TRUE(add(c_, a_, b_));
  ASSERT_TRUE(add(d_, c_, b_));
  set_enabled(true);
  EXPECT_EQ(queue_.submitted(), 2u);
  queue_.synchronize();
  EXPECT_EQ(d_[150], 5);
}

TEST_F(RecorderTest, WhatNoProgramCanTakeIsRefused) {
  TensorAccess overlapping = a_.access();
  overlapping.data += sizeof(float);
  const auto before = queue_.submitted();
  EXPECT_FALSE(record(queue_, binary(Op::kAdd, overlapping, a_.access(), b_.access())));
  EXPECT_EQ(queue_.submitted(), before);
}

TEST_F(RecorderTest, ASumOfRowsIsDividedByInTheSameProgram) {
  FusedTensor sums({3, 1});
  ASSERT_TRUE(record(queue_, row_sum(sums.access(), a_.access())));
  ASSERT_TRUE(record(queue_, binary(Op::kDiv, c_.access(), a_.access(), sums.access())));
  queue_.synchronize();
  EXPECT_EQ(sums[2], 100);
  EXPECT_EQ(c_[123], 0.01F);
}

TEST_F(RecorderTest, StridedOperandsAreGathered) {
  FusedTensor square({40, 40}), result({40, 40});
  for (int i = 0; i < 1600; ++i) square[i] = static_cast<float>(i);
  TensorAccess transposed = square.access();
  const std::int64_t strides[] = {1, 40};
  transposed.strides = strides;
  transposed.contiguous = false;
  ASSERT_TRUE(record(queue_, binary(Op::kSub, result.access(), square.access(), transposed)));
  queue_.synchronize();
  for (int i = 0; i < 40; ++i) {
    for (int j = 0; j < 40; ++j) {
      ASSERT_EQ(result[i * 40 + j], static_cast<float>(i * 40 + j - (j * 40 + i)));
    }
  }
}

TEST_F(RecorderTest, LargeProgramsAreSharedByCores) {
  Cores cores(2);
  Queue queue(QueueId{0, 0, 9}, cores);
  FusedTensor a({1, 300'001}, 1), b({1, 300'001}, 2), c({1, 300'001});
  ASSERT_TRUE(record(queue, binary(Op::kAdd, c.access(), a.access(), b.access())));
  queue.synchronize();
  for (const float value : c.elements()) ASSERT_EQ(value, 3);
}

TEST_F(RecorderTest, ThreadsMayRecordAndSubmitAtOnce) {
  constexpr int kThreads = 4, kRounds = 300;
  std::vector<FusedTensor> sums(kThreads, FusedTensor({3, 100}));
  std::atomic<int> others{0};
  testing::on_threads(kThreads, [&](int index) {
    for (int round = 0; round < kRounds; ++round) {
      FusedTensor& sum = sums[static_cast<std::size_t>(index)];
      ASSERT_TRUE(add(sum, sum, a_));
      if (round % 7 == index) queue_.submit("other", [&] { others.fetch_add(1); });
      if (round % 50 == index) queue_.synchronize();
    }
  });
  queue_.synchronize();
  for (FusedTensor& sum : sums) {
    for (const float value : sum.elements()) ASSERT_EQ(value, kRounds);
  }
}

TEST_F(RecorderTest, TensorsOfAListHaveProgramsOfTheirOwn) {
  testing::Gate gate;
  testing::submit_gate(queue_, gate);
  FusedTensor long_one({1000}, 1), more({1000}, 1);
  for (int round = 0; round < 3; ++round) {
    const IndependentScope list;
    ASSERT_TRUE(add_to(c_, a_));
    ASSERT_TRUE(add_to(d_, b_));
    ASSERT_TRUE(add_to(long_one, more));
  }
  EXPECT_EQ(queue_.submitted(), 2u);  // the gate, and all the rest
  gate.open();
  queue_.synchronize();
  EXPECT_EQ(c_[5], 3);
  EXPECT_EQ(d_[299], 6);
  EXPECT_EQ(long_one[999], 4);
}

TEST_F(RecorderTest, WhatNeedsNotShareAProgramHasOneOfItsOwn) {
  testing::Gate gate;
  testing::submit_gate(queue_, gate);
  FusedTensor long_one({1000}, 1), more({1000}, 1);
  for (int round = 0; round < 3; ++round) {
    for (auto [to, a] : {std::pair{&c_, &a_}, {&long_one, &more}}) {
      Expression sum = binary(Op::kAdd, to->access(), to->access(), a->access());
      sum.set_independent(true);
      ASSERT_TRUE(record(queue_, sum));
    }
  }
  EXPECT_EQ(queue_.submitted(), 2u);  // the gate, and all the rest
  gate.open();
  queue_.synchronize();
  EXPECT_EQ(c_[5], 3);
  EXPECT_EQ(long_one[999], 4);
}

TEST_F(RecorderTest, ListsAreJoinedByPlace) {
  testing::Gate gate;
  testing::submit_gate(queue_, gate);
  FusedTensor long_one({1000}, 1), more({1000}, 1), e({3, 100}, 5);
  {
    const IndependentScope list;
    ASSERT_TRUE(add_to(c_, a_));
    ASSERT_TRUE(add_to(long_one, more));
  }
  {
    const IndependentScope list;  // shares no memory with the first one
    ASSERT_TRUE(add_to(d_, b_));
  }
  {
    const IndependentScope list;  // of both
    ASSERT_TRUE(add_to(e, c_));
    ASSERT_TRUE(add_to(more, long_one));
  }
  ASSERT_TRUE(add_to(e, d_));
  EXPECT_EQ(queue_.submitted(), 2u);  // the gate, and all the rest
  gate.open();
  queue_.synchronize();
  EXPECT_EQ(e[7], 5 + 1 + 2);
  EXPECT_EQ(more[999], 1 + 2);
}

TEST_F(RecorderTest, AnOperatorOnTheMemoryOfTwoProgramsClosesBoth) {
  testing::Gate gate;
  testing::submit_gate(queue_, gate);
  for (FusedTensor* to : {&c_, &d_}) {
    Expression sum = binary(Op::kAdd, to->access(), to->access(), a_.access());
    sum.set_independent(to == &d_);
    ASSERT_TRUE(record(queue_, sum));
  }
  // Both read a_: that is the second one's reason to join the first program.
  EXPECT_EQ(queue_.submitted(), 2u);
  FusedTensor e({3, 100}), f({3, 100}, 7);
  Expression other = binary(Op::kAdd, e.access(), e.access(), f.access());
  other.set_independent(true);
  ASSERT_TRUE(record(queue_, other));
  EXPECT_EQ(queue_.submitted(), 2u);
  ASSERT_TRUE(add(c_, d_, e));
  EXPECT_EQ(queue_.submitted(), 3u);
  gate.open();
  queue_.synchronize();
  EXPECT_EQ(c_[0], 8);
}

TEST_F(RecorderTest, AProfileNamesTheOperators) {
  CommandTrace& trace = CommandTrace::instance();
  trace.start();
  ASSERT_TRUE(add(c_, a_, b_));
  ASSERT_TRUE(record(queue_, binary(Op::kMul, d_.access(), c_.access(), b_.access())));
  queue_.synchronize();
  const CommandTrace::Result result = trace.stop();
  ASSERT_EQ(result.spans.size(), 1u);
  EXPECT_STREQ(result.spans[0].name, "fused: binary, binary");
  EXPECT_GT(result.spans[0].ended_ns, result.spans[0].started_ns);
}

TEST_F(RecorderTest, TheReportTellsWhatRan) {
  KernelCache::instance().reset_report();
  testing::Gate gate;
  testing::submit_gate(queue_, gate);
  ASSERT_TRUE(add(c_, a_, b_));
  ASSERT_TRUE(add(d_, c_, b_));
  note_freed(c_.access().allocation);
  gate.open();
  queue_.synchronize();
  const auto report = KernelCache::instance().report();
  ASSERT_EQ(report.size(), 1u);
  EXPECT_EQ(report[0].operators.size(), 2u);
  EXPECT_EQ(report[0].runs, 1u);
  EXPECT_EQ(report[0].elements, 300u);
  EXPECT_EQ(report[0].bytes, 3 * 300 * sizeof(float));
  EXPECT_EQ(report[0].unfused_bytes, 6 * 300 * sizeof(float));
}

using RecorderChildTest = testing::ChildTest;

TEST_F(RecorderChildTest, AForkedChildAddsNothingToTheParentsOpenProgram) {
  EXPECT_EXIT(testing::finish([] {
                Cores cores(1);
                Queue queue(QueueId{0, 0, 0}, cores);
                testing::Gate gate;
                testing::submit_gate(queue, gate);
                FusedTensor a({100}, 1), b({100}, 2), c({100});
                const auto add = [&] {
                  return record(queue, binary(Op::kAdd, c.access(), a.access(), b.access()));
                };
                gate.wait_for_arrivals();  // a thread that begins holds locks of the allocator
                ASSERT_TRUE(add());
                const pid_t child = fork();
                if (child == 0) testing::finish([&] { EXPECT_THROW((void)add(), Error); });
                int status = 0;
                EXPECT_EQ(waitpid(child, &status, 0), child);
                EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
                gate.open();
                queue.synchronize();
                EXPECT_EQ(c[99], 3);
              }),
              ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace loom::fusion
