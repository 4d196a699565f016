// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/producer.h"

#include "loom/base/check.h"
#include "loom/device/address.h"
#include "loom/device/command_trace.h"
#include "loom/fusion/freed.h"
#include "loom/fusion/kernel_cache.h"
#include "loom/fusion/recorder.h"

#include <gtest/gtest.h>

#include "support/child.h"
#include "support/fused.h"
#include "support/gate.h"
#include "support/producers.h"
#include "support/queues.h"
#include <memory>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace loom::fusion {
namespace {

using testing::binary;
using testing::CopyInRectangles;
using testing::Fill;
using testing::FusedTensor;
using testing::kColumns;
using testing::kRows;
using testing::row_sum;

class ProducerTest : public testing::QueueFixture {
 protected:
  static constexpr int kRectangles = 4;

  ProducerTest() {
    for (int i = 0; i < kRows * kColumns; ++i) from_[i] = static_cast<float>(i);
  }

  void produce() {
    submit_producer(
        queue_, std::make_unique<CopyInRectangles>(result_.access(), from_.access(), &finished_));
  }
  /// The result plus twos, which a task ahead makes: one command.
  void produce_and_add_twos(FusedTensor& to, FusedTensor& twos) {
    produce();
    submit_ahead(queue_, std::make_unique<Fill>(twos.access()));
    ASSERT_TRUE(add(to.access(), result_.access(), twos.access()));
  }
  bool add(const TensorAccess& to, const TensorAccess& a, const TensorAccess& b) {
    return record(queue_, binary(Op::kAdd, to, a, b));
  }
  /// Another view of what `tensor` owns.
  static TensorAccess view(FusedTensor& tensor, std::span<const std::int64_t> sizes,
                           std::span<const std::int64_t> strides) {
    TensorAccess access = tensor.access();
    access.sizes = sizes;
    access.strides = strides;
    return access;
  }

  FusedTensor from_{{kRows, kColumns}}, result_{{kRows, kColumns}};
  FusedTensor b_{{kRows, kColumns}, 2}, c_{{kRows, kColumns}}, d_{{kRows, kColumns}};
  int finished_ = 0;
};

TEST_F(ProducerTest, OperatorsOnTheResultShareItsCommandAndItsRectangles) {
  testing::Gate gate;
  testing::submit_gate(queue_, gate);
  produce();
  ASSERT_TRUE(add(c_.access(), result_.access(), b_.access()));
  ASSERT_TRUE(add(d_.access(), c_.access(), result_.access()));
  ASSERT_TRUE(add(result_.access(), result_.access(), b_.access()));  // in place
  EXPECT_EQ(queue_.submitted(), 2u);
  gate.open();
  queue_.synchronize();
  EXPECT_EQ(finished_, kRectangles);
  for (int i = 0; i < kRows * kColumns; ++i) {
    const auto value = static_cast<float>(i);
    ASSERT_EQ(c_[i], value + 2);
    ASSERT_EQ(d_[i], 2 * value + 2);
    ASSERT_EQ(result_[i], value + 2);
  }
}

TEST_F(ProducerTest, AResultThatNobodySeesIsWrittenWhereAnOutputWillBe) {
  testing::Gate gate;
  testing::submit_gate(queue_, gate);
  produce();
  ASSERT_TRUE(add(c_.access(), result_.access(), b_.access()));
  ASSERT_TRUE(add(d_.access(), c_.access(), result_.access()));
  note_freed(result_.access().allocation);
  gate.open();
  queue_.synchronize();
  EXPECT_EQ(finished_, kRectangles);
  for (int i = 0; i < kRows * kColumns; ++i) {
    ASSERT_EQ(result_[i], 0);
    ASSERT_EQ(c_[i], static_cast<float>(i) + 2);
    ASSERT_EQ(d_[i], 2 * static_cast<float>(i) + 2);
  }
}

TEST_F(ProducerTest, WhatNeedsNotShareAProgramSharesTheOneBehindTheResult) {
  testing::Gate gate;
  testing::submit_gate(queue_, gate);
  produce();
  const auto record_alone = [&](FusedTensor& to, FusedTensor& a) {
    Expression sum = binary(Op::kAdd, to.access(), a.access(), b_.access());
    sum.set_independent(true);
    ASSERT_TRUE(record(queue_, sum));
  };
  record_alone(c_, result_);
  EXPECT_EQ(queue_.submitted(), 2u);
  FusedTensor e({kRows, kColumns}, 3);
  record_alone(d_, e);
  EXPECT_EQ(queue_.submitted(), 2u);
  gate.open();
  queue_.synchronize();
  EXPECT_EQ(c_[7], 7 + 2);
  EXPECT_EQ(d_[7], 3 + 2);
}

TEST_F(ProducerTest, AResultThatIsFreedLaterIsWritten) {
  testing::Gate gate;
  testing::submit_gate(queue_, gate);
  produce();
  ASSERT_TRUE(add(c_.access(), result_.access(), b_.access()));
  queue_.submit("close", &ProducerTest::nothing);  // may have been one that reads it
  note_freed(result_.access().allocation);
  gate.open();
  queue_.synchronize();
  EXPECT_EQ(result_.elements(), from_.elements());
}

TEST_F(ProducerTest, ATaskAheadHasRunWhenTheResultIsMadeElsewhere) {
  testing::Gate gate;
  testing::submit_gate(queue_, gate);
  FusedTensor twos({kColumns}, 7);
  produce_and_add_twos(c_, twos);
  note_freed(result_.access().allocation);
  gate.open();
  queue_.synchronize();
  EXPECT_EQ(result_[300], 0);
  EXPECT_EQ(c_[300], 302);
}

// Its memory belongs to another tensor as soon as it is free.
TEST_F(ProducerTest, AResultThatNobodySeesMayHaveAnOutputInItsPlace) {
  testing::Gate gate;
  testing::submit_gate(queue_, gate);
  produce();
  ASSERT_TRUE(add(c_.access(), result_.access(), b_.access()));
  note_freed(result_.access().allocation);
  ASSERT_TRUE(add(result_.access(), c_.access(), b_.access()));
  gate.open();
  queue_.synchronize();
  for (int i = 0; i < kRows * kColumns; ++i) {
    ASSERT_EQ(c_[i], static_cast<float>(i) + 2);
    ASSERT_EQ(result_[i], static_cast<float>(i) + 4);
  }
}

TEST_F(ProducerTest, AnOutputThatIsReadKeepsItsValuesUntilThen) {
  testing::Gate gate;
  testing::submit_gate(queue_, gate);
  produce();
  ASSERT_TRUE(add(b_.access(), result_.access(), b_.access()));  // b += result
  note_freed(result_.access().allocation);
  gate.open();
  queue_.synchronize();
  for (int i = 0; i < kRows * kColumns; ++i) ASSERT_EQ(b_[i], static_cast<float>(i) + 2);
}

TEST_F(ProducerTest, ItRunsAloneWhenNobodyAdds) {
  produce();
  queue_.timeline().wait(queue_.submitted());
  EXPECT_EQ(finished_, 0);
  EXPECT_EQ(result_.elements(), from_.elements());
}

TEST_F(ProducerTest, WithoutFusionItRunsByItself) {
  set_enabled(false);
  produce();
  ASSERT_TRUE(add(c_.access(), result_.access(), b_.access()));
  set_enabled(true);
  EXPECT_EQ(queue_.submitted(), 2u);
  queue_.synchronize();
  EXPECT_EQ(finished_, 0);
  EXPECT_EQ(c_[700], 702);
}

// What would read or write what another rectangle still needs comes after the whole result.
TEST_F(ProducerTest, WhatNeedsMoreThanItsRectangleIsAnotherCommand) {
  testing::Gate gate;
  testing::submit_gate(queue_, gate);
  std::uint64_t submitted = 1;
  const auto is_separate = [&](const Expression& expression) {
    produce();
    EXPECT_EQ(queue_.submitted(), ++submitted);
    EXPECT_TRUE(record(queue_, expression));
    EXPECT_EQ(queue_.submitted(), ++submitted);
  };
  FusedTensor sums({kRows, 1}), part({1, kColumns}), large({2, kRows, kColumns});
  is_separate(row_sum(sums.access(), result_.access()));
  // Its second row only.
  const std::int64_t row_sizes[] = {1, kColumns}, row_strides[] = {kColumns, 1};
  TensorAccess row = view(result_, row_sizes, row_strides);
  row.data += kColumns * sizeof(float);
  row.numel = kColumns;
  is_separate(binary(Op::kAdd, part.access(), row, row));
  // To two places at once.
  is_separate(binary(Op::kAdd, large.access(), result_.access(), b_.access()));
  // Not of the result at all.
  is_separate(binary(Op::kAdd, c_.access(), b_.access(), b_.access()));
  // In more dimensions than programs have.
  const std::int64_t many[] = {kRows, 1, 1, 1, 1, 1, 1, 1, kColumns};
  const std::int64_t strides[] = {kColumns, 1, 1, 1, 1, 1, 1, 1, 1};
  produce();
  const Expression refused =
      binary(Op::kAdd, view(c_, many, strides), view(result_, many, strides), b_.access());
  EXPECT_FALSE(record(queue_, refused));
  EXPECT_TRUE(add(c_.access(), result_.access(), b_.access()));
  EXPECT_EQ(queue_.submitted(), ++submitted);
  // Over what the producer reads.
  is_separate(binary(Op::kAdd, from_.access(), result_.access(), b_.access()));
  gate.open();
  queue_.synchronize();
  EXPECT_EQ(sums[1], 128 * 191.5F);
  EXPECT_EQ(part[5], 2 * 133);
  EXPECT_EQ(large[kRows * kColumns + 9], 11);
  EXPECT_EQ(from_[9], 11);
  EXPECT_EQ(c_[9], 11);
}

TEST_F(ProducerTest, AViewOfTheResultIsTheResultOnlyInItsOrder) {
  testing::Gate gate;
  testing::submit_gate(queue_, gate);
  // As many rows and columns, other elements: the first half of each row beside the second.
  const std::int64_t sizes[] = {kRows, 2, kColumns / 2}, plain[] = {kColumns, kColumns / 2, 1};
  const std::int64_t shuffled[] = {kColumns / 2, kRows * kColumns / 2, 1};
  TensorAccess other = view(result_, sizes, shuffled);
  other.contiguous = false;
  produce();
  ASSERT_TRUE(add(view(c_, sizes, plain), view(result_, sizes, plain), other));
  EXPECT_EQ(queue_.submitted(), 2u);
  gate.open();
  queue_.synchronize();
  EXPECT_EQ(finished_, 0);
  for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
    const std::int64_t row = i / kColumns, half = i % kColumns / 64, column = i % 64;
    const std::int64_t second = row * 64 + half * kRows * 64 + column;
    ASSERT_EQ(c_[static_cast<std::size_t>(i)], static_cast<float>(i + second));
  }
}

TEST_F(ProducerTest, OtherShapesOfTheResultAreBroadcastAsTheyAre) {
  testing::Gate gate;
  testing::submit_gate(queue_, gate);
  FusedTensor bias({kColumns}, 3), blocks({2, 1, kColumns}, 1);
  const std::int64_t sizes[] = {2, 3, kColumns}, strides[] = {3 * kColumns, kColumns, 1};
  produce();
  ASSERT_TRUE(add(view(c_, sizes, strides), view(result_, sizes, strides), bias.access()));
  ASSERT_TRUE(add(view(d_, sizes, strides), view(c_, sizes, strides), blocks.access()));
  EXPECT_EQ(queue_.submitted(), 2u);
  gate.open();
  queue_.synchronize();
  EXPECT_EQ(finished_, kRectangles);
  EXPECT_EQ(c_[500], 503);
  EXPECT_EQ(d_[500], 504);
}

TEST_F(ProducerTest, OperatorsInOneDimensionGoThroughItsRectangles) {
  testing::Gate gate;
  testing::submit_gate(queue_, gate);
  const std::int64_t size[] = {kRows * kColumns}, stride[] = {1};
  produce();
  ASSERT_TRUE(add(view(c_, size, stride), view(result_, size, stride), view(b_, size, stride)));
  gate.open();
  queue_.synchronize();
  EXPECT_EQ(finished_, kRectangles);
  EXPECT_EQ(c_[500], 502);
}

TEST_F(ProducerTest, ATaskThatHasNothingToDoWithItGoesAhead) {
  testing::Gate gate;
  testing::submit_gate(queue_, gate);
  FusedTensor twos({kColumns}, 7);
  produce_and_add_twos(c_, twos);
  EXPECT_EQ(queue_.submitted(), 2u);
  // Behind an operator, and without anything open.
  submit_ahead(queue_, std::make_unique<Fill>(c_.access()));
  submit_ahead(queue_, std::make_unique<Fill>(d_.access()));
  EXPECT_EQ(queue_.submitted(), 4u);
  ASSERT_TRUE(add(d_.access(), c_.access(), d_.access()));
  gate.open();
  queue_.synchronize();
  EXPECT_EQ(finished_, kRectangles);
  EXPECT_EQ(twos[3], 2);
  EXPECT_EQ(c_[300], 2);
  EXPECT_EQ(d_[300], 4);
}

TEST_F(ProducerTest, ATaskOnItsMemoryKeepsItsPlace) {
  for (FusedTensor* tensor : {&from_, &result_}) {
    const auto before = queue_.submitted();
    produce();
    submit_ahead(queue_, std::make_unique<Fill>(tensor->access()));
    EXPECT_EQ(queue_.submitted(), before + 2);
    queue_.synchronize();
    EXPECT_EQ((*tensor)[5], 2);
    EXPECT_EQ(result_[6], tensor == &from_ ? 6 : 2);
  }
}

TEST_F(ProducerTest, ProfileAndReportNameTheOperatorsAfterIt) {
  KernelCache::instance().reset_report();
  CommandTrace& trace = CommandTrace::instance();
  testing::Gate gate;
  testing::submit_gate(queue_, gate);
  trace.start();
  produce();
  ASSERT_TRUE(add(c_.access(), result_.access(), b_.access()));
  produce();
  gate.open();
  queue_.synchronize();
  const CommandTrace::Result result = trace.stop();
  ASSERT_EQ(result.spans.size(), 2u);
  EXPECT_STREQ(result.spans[0].name, "fused: copy, binary");
  EXPECT_STREQ(result.spans[1].name, "copy");
  const auto report = KernelCache::instance().report();
  ASSERT_EQ(report.size(), 1u);
  EXPECT_EQ(report[0].runs, 1u);
  EXPECT_GT(report[0].nanoseconds, 0);
}

TEST_F(ProducerTest, AnErrorIsReportedAndLaterCommandsRun) {
  class Failing final : public Producer {
   public:
    explicit Failing(const TensorAccess& to) : to_(to) {}
    [[nodiscard]] const char* name() const noexcept override { return "failing"; }
    [[nodiscard]] Matrix result() const noexcept override {
      return {to_.data, to_.dtype, kRows, kColumns};
    }
    void accesses(AccessList&) const override {}
    void run(std::byte*, const Epilogue*) override { throw Error("no result"); }

   private:
    const TensorAccess to_;
  };
  testing::Gate gate;
  testing::submit_gate(queue_, gate);
  submit_producer(queue_, std::make_unique<Failing>(result_.access()));
  ASSERT_TRUE(add(c_.access(), result_.access(), b_.access()));
  queue_.submit("close", &ProducerTest::nothing);
  ASSERT_TRUE(add(d_.access(), b_.access(), b_.access()));
  gate.open();
  EXPECT_THROW(queue_.synchronize(), Error);
  EXPECT_EQ(d_[8], 4);
}

using ProducerChildTest = testing::ChildTest;

TEST_F(ProducerChildTest, AForkedChildCannotSubmit) {
  EXPECT_EXIT(testing::finish([] {
                Cores cores(1);
                Queue queue(QueueId{0, 0, 0}, cores);
                FusedTensor from({kRows, kColumns}, 1), to({kRows, kColumns});
                int finished = 0;
                testing::Gate gate;
                testing::submit_gate(queue, gate);
                gate.wait_for_arrivals();  // a thread that begins holds locks of the allocator
                const auto produce = [&] {
                  submit_producer(queue, std::make_unique<CopyInRectangles>(
                                             to.access(), from.access(), &finished));
                };
                produce();
                const pid_t child = fork();
                if (child == 0) {
                  testing::finish([&] {
                    EXPECT_THROW(produce(), Error);
                    EXPECT_THROW(submit_ahead(queue, std::make_unique<Fill>(to.access())), Error);
                  });
                }
                int status = 0;
                EXPECT_EQ(waitpid(child, &status, 0), child);
                EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
                gate.open();
                queue.synchronize();
                EXPECT_EQ(to[9], 1);
              }),
              ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace loom::fusion
