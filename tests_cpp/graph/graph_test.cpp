// SPDX-License-Identifier: BSD-3-Clause
// Graphs as c10 and a C++ program see them. What operators do in a capture is tested from Python.
#include "loom/graph/graph.h"

#include "loom/backend/device_state.h"
#include "loom/backend/generator.h"
#include "loom/device/device.h"
#include "loom/device/event.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include "backend/support.h"
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

namespace loom::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class GraphTest : public test::BackendTest {
 protected:
  void SetUp() override { set_current_stream(stream_from_pool()); }

  static Queue& queue() { return current_queue(); }
  void note(int number) {
    queue().submit("note", [this, number] { ran_.push_back(number); });
  }
  /// Notes the offset of `count` random numbers of `generator` when the command runs.
  void note_offset(PhiloxGenerator& generator, std::uint64_t count) {
    queue().submit("note", [this, range = generator.reserve_for(queue(), count)] {
      offsets_.push_back(range.first().offset);
    });
  }
  static CachingAllocator& memory() { return caching_allocator(0); }
  static std::size_t reserved() { return memory().allocated_and_reserved().second; }

  Graph graph_;
  std::vector<int> ran_;
  std::vector<std::uint64_t> offsets_;
};

TEST_F(GraphTest, IsRegisteredForTheAccelerator) {
  EXPECT_TRUE(at::has_graph_impl(kDeviceType));
  EXPECT_NE(dynamic_cast<Graph*>(at::create_graph_impl(kDeviceType).get()), nullptr);
}

TEST_F(GraphTest, ReplaysWhatWasCaptured) {
  graph_.capture_begin();
  note(1);
  note(2);
  graph_.capture_end();
  graph_.replay();
  graph_.replay();
  queue().synchronize();
  EXPECT_THAT(ran_, ElementsAre(1, 2, 1, 2));
}

TEST_F(GraphTest, TheGuardTellsWhichStreamIsCaptured) {
  const c10::impl::VirtualGuardImpl guard(kDeviceType);
  const Stream captured = current_stream();
  graph_.capture_begin();
  EXPECT_TRUE(guard.isStreamCapturing(captured));
  EXPECT_FALSE(guard.isStreamCapturing(default_stream()));
  EXPECT_THAT(test::thrown_text([&] { (void)guard.queryStream(captured); }),
              HasSubstr("Stream.query cannot be captured"));
  EXPECT_THROW(graph_.capture_end(), c10::Error);
  EXPECT_FALSE(guard.isStreamCapturing(captured));
}

TEST_F(GraphTest, AnInvalidCaptureLeavesAnEmptyGraph) {
  graph_.capture_begin();
  EXPECT_ANY_THROW(queue().synchronize());
  EXPECT_THAT(test::thrown_text([&] { graph_.capture_end(); }),
              HasSubstr("the capture is invalid, because of an earlier error: synchronize()"));
  EXPECT_THAT(test::thrown_text([&] { graph_.replay(); }), HasSubstr("got an empty one"));
  graph_.capture_begin();
  graph_.capture_end();
}

TEST_F(GraphTest, ACaptureEndsOnItsOwnStream) {
  const Stream stream = current_stream();
  graph_.capture_begin();
  set_current_stream(default_stream());
  EXPECT_THAT(test::thrown_text([&] { graph_.capture_end(); }),
              HasSubstr("expected the stream that the capture began on"));
  set_current_stream(stream);
  graph_.capture_end();
}

TEST_F(GraphTest, AGraphThatIsDestroyedInItsCaptureFreesTheStream) {
  {
    Graph other;
    other.capture_begin();
    note(1);
  }
  EXPECT_FALSE(queue().captured());
  note(2);
  queue().synchronize();
  EXPECT_THAT(ran_, ElementsAre(2));
}

TEST_F(GraphTest, AStreamThatIsCapturedCannotBeCapturedAgain) {
  graph_.capture_begin();
  Graph other;
  EXPECT_THAT(test::thrown_text([&] { other.capture_begin(); }),
              HasSubstr("captured in another graph"));
  note(1);
  graph_.capture_end();
  graph_.replay();
  queue().synchronize();
  EXPECT_THAT(ran_, ElementsAre(1));
}

TEST_F(GraphTest, ReplaysOnDifferentStreamsDoNotOverlap) {
  graph_.capture_begin();
  note(1);
  graph_.capture_end();
  Queue& second = stream_from_pool().queue();
  test::Hold hold(queue());
  graph_.replay();
  set_current_stream(stream_of(second));
  graph_.replay();
  // The second waits for the first, which is held.
  EXPECT_FALSE(second.idle());
  hold.open();
  second.synchronize();
  EXPECT_THAT(ran_, ElementsAre(1, 1));
}

TEST_F(GraphTest, MemoryComesFromThePoolUntilTheLastReplayHasRun) {
  memory().empty_cache();
  const std::size_t before = reserved();
  // With what AddressSanitizer has behind a block it is no more than the segment.
  constexpr std::size_t kSegment = std::size_t{32} << 20, kBytes = kSegment - 1024;
  graph_.capture_begin();
  const void* address = nullptr;
  {
    const c10::DataPtr data = allocate(kBytes, queue());
    address = data.get();
    queue().submit("fill",
                   [=] { std::memset(host_address(const_cast<void*>(address)), 3, kBytes); });
  }
  graph_.capture_end();
  memory().empty_cache();
  EXPECT_EQ(reserved(), before + kSegment);
  {
    const c10::DataPtr eager = allocate(kBytes, queue());
    EXPECT_NE(eager.get(), address);
  }
  test::Hold hold(queue());
  graph_.replay();
  graph_.reset();
  EXPECT_GE(reserved(), before + kSegment);
  hold.open();
  queue().synchronize();
  memory().empty_cache();
  EXPECT_EQ(reserved(), before);
}

TEST_F(GraphTest, GraphsOfOnePoolShareMemory) {
  const at::MempoolId_t pool = CachingAllocator::new_pool_id();
  std::vector<void*> addresses;
  Graph second;
  for (Graph* graph : {&graph_, &second}) {
    graph->capture_begin(pool);
    addresses.push_back(allocate(1 << 20, queue()).get());
    graph->capture_end();
    EXPECT_EQ(graph->pool(), pool);
  }
  EXPECT_EQ(addresses[0], addresses[1]);
}

TEST_F(GraphTest, EachReplayTakesItsNumbersFromTheGenerator) {
  PhiloxGenerator generator(0);
  generator.set_offset(100);
  graph_.capture_begin();
  note_offset(generator, 6);
  note_offset(generator, 4);
  graph_.capture_end();
  EXPECT_EQ(generator.get_offset(), 100U);
  graph_.replay();
  note_offset(generator, 4);
  graph_.replay();
  queue().synchronize();
  EXPECT_THAT(offsets_, ElementsAre(100, 108, 112, 116, 124));
  EXPECT_EQ(generator.get_offset(), 128U);
}

TEST_F(GraphTest, AGeneratorIsFollowedByItsState) {
  PhiloxGenerator generator(0);
  graph_.capture_begin();
  note_offset(generator, 4);
  graph_.capture_end();
  const auto original = generator.graphsafe_get_state();
  PhiloxGenerator other(0);
  other.set_offset(400);
  generator.graphsafe_set_state(other.graphsafe_get_state());
  graph_.replay();
  queue().synchronize();
  EXPECT_THAT(offsets_, ElementsAre(0));
  EXPECT_EQ(original->get_offset(), 4U);
  EXPECT_EQ(generator.get_offset(), 400U);
}

TEST_F(GraphTest, TheStateOfAGeneratorIsRefusedInACapture) {
  PhiloxGenerator generator(0);
  graph_.capture_begin();
  EXPECT_THAT(test::thrown_text([&] { (void)generator.get_state(); }),
              HasSubstr("Generator.get_state cannot be captured"));
  EXPECT_ANY_THROW(generator.set_current_seed(1));
  EXPECT_ANY_THROW(generator.set_offset(4));
  EXPECT_ANY_THROW((void)generator.get_offset());
  EXPECT_ANY_THROW((void)generator.seed());
  EXPECT_EQ(generator.current_seed(), c10::default_rng_seed_val);
  graph_.reset();
}

TEST_F(GraphTest, AKeptGraphIsInstantiatedAsOftenAsWanted) {
  Graph kept(at::GraphImplArgs{.keep_graph = true});
  kept.capture_begin();
  note(1);
  kept.capture_end();
  kept.instantiate();
  kept.instantiate();
  kept.replay();
  queue().synchronize();
  EXPECT_THAT(ran_, ElementsAre(1));
  graph_.capture_begin();
  graph_.capture_end();
  EXPECT_THAT(test::thrown_text([&] { graph_.instantiate(); }), HasSubstr("keep_graph=True"));
}

TEST_F(GraphTest, AnErrorOfAReplayNamesItsOperator) {
  graph_.capture_begin();
  queue().submit("index", [] { TORCH_CHECK_INDEX(false, "out of range"); });
  graph_.capture_end();
  graph_.replay();
  EXPECT_THAT(test::thrown_text<c10::IndexError>([&] { queue().synchronize(); }),
              HasSubstr("raised by 'index (command 1 of 1 of a graph)'"));
}

}  // namespace
}  // namespace loom::graph
