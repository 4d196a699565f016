// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/generator.h"

#include "loom/backend/device_state.h"

#include <ATen/EmptyTensor.h>

#include "backend/support.h"
#include <algorithm>
#include <thread>
#include <vector>

namespace loom {
namespace {

using test::thrown_text;
using ::testing::HasSubstr;

using Reserved = std::pair<std::uint64_t, std::uint64_t>;

class GeneratorTest : public test::BackendTest {
 protected:
  static at::Generator make(c10::DeviceIndex device = 0) {
    return at::make_generator<PhiloxGenerator>(device);
  }
  static PhiloxGenerator& impl(const at::Generator& generator) {
    return *generator.get<PhiloxGenerator>();
  }
  static at::TensorBase bytes(std::int64_t count) {
    at::TensorBase tensor = at::detail::empty_cpu({count}, c10::ScalarType::Byte);
    std::memset(tensor.mutable_data_ptr(), 0, static_cast<std::size_t>(count));
    return tensor;
  }
};

TEST_F(GeneratorTest, StartsWithTheDefaultSeed) {
  const at::Generator generator = make(1);
  EXPECT_EQ(generator.current_seed(), c10::default_rng_seed_val);
  EXPECT_EQ(generator.get_offset(), 0U);
  EXPECT_EQ(generator.device(), to_c10(1));
  EXPECT_TRUE(generator.key_set().has(c10::DispatchKey::PrivateUse1));
}

TEST_F(GeneratorTest, ReserveAdvancesByMultiplesOfFour) {
  at::Generator generator = make();
  generator.set_current_seed(5);
  EXPECT_EQ(impl(generator).reserve(1), Reserved(5, 0));
  EXPECT_EQ(impl(generator).reserve(4), Reserved(5, 4));
  EXPECT_EQ(impl(generator).reserve(9), Reserved(5, 8));
  EXPECT_EQ(impl(generator).reserve(0), Reserved(5, 20));
  EXPECT_EQ(generator.get_offset(), 20U);
}

TEST_F(GeneratorTest, SeedingStartsTheSequenceAgain) {
  at::Generator generator = make();
  (void)impl(generator).reserve(100);
  generator.set_current_seed(7);
  EXPECT_EQ(impl(generator).reserve(4), Reserved(7, 0));
}

TEST_F(GeneratorTest, SystemSeedsDiffer) {
  at::Generator generator = make();
  const std::uint64_t first = generator.seed();
  EXPECT_EQ(generator.current_seed(), first);
  EXPECT_NE(generator.seed(), first);
}

TEST_F(GeneratorTest, OffsetsAreMultiplesOfFour) {
  at::Generator generator = make();
  generator.set_offset(12);
  EXPECT_EQ(generator.get_offset(), 12U);
  EXPECT_THAT(thrown_text<c10::Error>([&] { generator.set_offset(6); }),
              HasSubstr("set_offset: expected an offset that is a multiple of 4, got 6"));
}

TEST_F(GeneratorTest, StateMakesARoundTrip) {
  at::Generator generator = make();
  generator.set_current_seed(0x123456789ABCDEF0);
  (void)impl(generator).reserve(40);
  const auto state = impl(generator).get_state();
  EXPECT_EQ(state->numel(), 16);
  EXPECT_EQ(state->device().type(), c10::DeviceType::CPU);
  const Reserved next = impl(generator).reserve(8);
  impl(generator).set_state(*state);
  EXPECT_EQ(impl(generator).reserve(8), next);
}

TEST_F(GeneratorTest, EightBytesOfStateAreASeed) {
  const at::Generator generator = make();
  const at::TensorBase state = bytes(8);
  static_cast<unsigned char*>(state.mutable_data_ptr())[0] = 9;
  impl(generator).set_state(*state.unsafeGetTensorImpl());
  EXPECT_EQ(impl(generator).reserve(1), Reserved(9, 0));
}

TEST_F(GeneratorTest, BadStatesAreRefusedAndChangeNothing) {
  at::Generator generator = make();
  generator.set_current_seed(3);
  EXPECT_THAT(
      thrown_text<c10::Error>([&] { impl(generator).set_state(*bytes(15).unsafeGetTensorImpl()); }),
      HasSubstr("set_state: expected a state of 16 bytes"));
  const at::TensorBase odd = bytes(16);
  static_cast<unsigned char*>(odd.mutable_data_ptr())[8] = 3;
  EXPECT_THAT(
      thrown_text<c10::Error>([&] { impl(generator).set_state(*odd.unsafeGetTensorImpl()); }),
      HasSubstr("multiple of 4"));
  const at::TensorBase floats = at::detail::empty_cpu({16}, c10::ScalarType::Float);
  EXPECT_THROW(impl(generator).set_state(*floats.unsafeGetTensorImpl()), c10::TypeError);
  EXPECT_EQ(impl(generator).reserve(1), Reserved(3, 0));
}

TEST_F(GeneratorTest, ClonesGoTheirOwnWay) {
  at::Generator generator = make();
  generator.set_current_seed(11);
  (void)impl(generator).reserve(4);
  const at::Generator copy = generator.clone();
  EXPECT_EQ(impl(copy).reserve(4), Reserved(11, 4));
  EXPECT_EQ(impl(generator).reserve(4), Reserved(11, 4));
}

TEST_F(GeneratorTest, GraphsafeStateIsShared) {
  at::Generator generator = make();
  generator.set_current_seed(13);
  const at::Generator shared = generator.graphsafe_get_state();
  (void)impl(shared).reserve(4);
  EXPECT_EQ(generator.get_offset(), 4U);
  at::Generator other = make();
  other.graphsafe_set_state(shared);
  (void)impl(other).reserve(4);
  EXPECT_EQ(generator.get_offset(), 8U);
}

TEST_F(GeneratorTest, ThreadsNeverGetTheSameNumbers) {
  constexpr int kThreads = 4;
  constexpr int kEach = 1000;
  const at::Generator generator = make();
  std::vector<std::vector<std::uint64_t>> offsets(kThreads);
  {
    std::vector<std::jthread> threads;
    for (auto& mine : offsets) {
      threads.emplace_back([&] {
        for (int i = 0; i < kEach; ++i) mine.push_back(impl(generator).reserve(3).second);
      });
    }
  }
  std::vector<std::uint64_t> all;
  for (const auto& mine : offsets) all.insert(all.end(), mine.begin(), mine.end());
  std::sort(all.begin(), all.end());
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], 4 * i);
}

TEST_F(GeneratorTest, EachDeviceHasOneDefaultGenerator) {
  EXPECT_EQ(default_generator(0), default_generator(0));
  EXPECT_NE(default_generator(0), default_generator(1));
  set_device(1);
  EXPECT_EQ(default_generator(), default_generator(1));
  EXPECT_THROW((void)default_generator(9), c10::Error);
}

TEST_F(GeneratorTest, OperatorsTakeTheGivenGeneratorOrTheDefault) {
  const at::Generator mine = make();
  EXPECT_EQ(&generator_or_default(mine), &impl(mine));
  EXPECT_EQ(&generator_or_default(std::nullopt, 1), &impl(default_generator(1)));
  EXPECT_EQ(&generator_or_default(at::Generator(), 0), &impl(default_generator(0)));
}

TEST_F(GeneratorTest, ManualSeedSeedsTheCurrentDeviceAndAllSeedsAll) {
  manual_seed_all(21);
  EXPECT_EQ(default_generator(0).current_seed(), 21U);
  EXPECT_EQ(default_generator(1).current_seed(), 21U);
  set_device(1);
  manual_seed(22);
  EXPECT_EQ(default_generator(0).current_seed(), 21U);
  EXPECT_EQ(default_generator(1).current_seed(), 22U);
}

}  // namespace
}  // namespace loom
