// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/serialization.h"

#include "loom/backend/device_state.h"

#include <ATen/EmptyTensor.h>
#include <torch/csrc/jit/serialization/pickler_helper.h>

#include "backend/support.h"
#include <string>

namespace loom {
namespace {

using test::thrown_text;
using ::testing::HasSubstr;

class SerializationTest : public test::BackendTest {
 protected:
  static at::TensorBase loom_tensor(std::int64_t elements = 8) {
    return at::detail::empty_generic({elements}, &allocator(),
                                     c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                     c10::ScalarType::Float, std::nullopt);
  }
  static MetaMap saved(const at::TensorBase& tensor) {
    MetaMap map;
    save_backend_meta(tensor, map);
    return map;
  }
  /// What the loader says to `map`.
  static std::string refusal(const MetaMap& map) {
    const at::TensorBase tensor = loom_tensor();
    return thrown_text<c10::ValueError>([&] { load_backend_meta(tensor, map); });
  }
};

TEST_F(SerializationTest, NamesAreReadBack) {
  const at::TensorBase tensor = loom_tensor();
  EXPECT_EQ(allocation_name(tensor), "");
  set_allocation_name(tensor, "weights");
  EXPECT_EQ(allocation_name(tensor), "weights");
  set_allocation_name(tensor, "");
  EXPECT_EQ(allocation_name(tensor), "");
  EXPECT_TRUE(saved(tensor).empty());
}

TEST_F(SerializationTest, TheNameIsThatOfTheMemory) {
  const at::TensorBase tensor = loom_tensor();
  set_allocation_name(tensor, "weights");
  const auto block = caching_allocator(0).find(tensor.storage().data());
  ASSERT_TRUE(block.has_value());
  EXPECT_EQ(block->name, "weights");
  const at::TensorBase next = [&] {
    const at::TensorBase dropped = loom_tensor(4096);
    set_allocation_name(dropped, "dropped");
    return dropped;
  }();
  EXPECT_EQ(allocation_name(next), "dropped");
}

TEST_F(SerializationTest, NewTensorsInOldMemoryHaveNoName) {
  const void* old = nullptr;
  {
    const at::TensorBase dropped = loom_tensor(5000);
    set_allocation_name(dropped, "dropped");
    old = dropped.storage().data();
  }
  const at::TensorBase next = loom_tensor(5000);
  ASSERT_EQ(next.storage().data(), old);
  EXPECT_EQ(allocation_name(next), "");
}

TEST_F(SerializationTest, EmptyTensorsKeepTheirNameToo) {
  const at::TensorBase tensor = loom_tensor(0);
  set_allocation_name(tensor, "nothing");
  EXPECT_EQ(allocation_name(tensor), "nothing");
}

TEST_F(SerializationTest, NamesTravelThroughTorchsRegistry) {
  const at::Tensor tensor(loom_tensor());
  set_allocation_name(tensor, "layer 1: größe");
  const auto metadata = torch::jit::getTensorMetadata(tensor);
  EXPECT_EQ(metadata.size(), 1U);
  const at::Tensor loaded(loom_tensor());
  torch::jit::setTensorMetadata(loaded, metadata);
  EXPECT_EQ(allocation_name(loaded), "layer 1: größe");
}

TEST_F(SerializationTest, TensorsWithoutANameAddNothing) {
  EXPECT_TRUE(torch::jit::getTensorMetadata(at::Tensor(loom_tensor())).empty());
}

TEST_F(SerializationTest, BadNamesAreRefused) {
  const at::TensorBase tensor = loom_tensor();
  const auto refused = [&](const std::string& name) {
    return thrown_text<c10::ValueError>([&] { set_allocation_name(tensor, name); });
  };
  EXPECT_THAT(refused(std::string(257, 'x')), HasSubstr("at most 256 bytes, got 257"));
  EXPECT_THAT(refused("two\nlines"), HasSubstr("without control characters"));
  EXPECT_THAT(refused(std::string("nul\0", 4)), HasSubstr("without control characters"));
  EXPECT_THAT(refused("\xC3"), HasSubstr("in UTF-8"));
  EXPECT_THAT(refused("\xC0\xAF"), HasSubstr("in UTF-8"));
  EXPECT_EQ(allocation_name(tensor), "");
}

TEST_F(SerializationTest, OtherDevicesAreRefused) {
  const at::TensorBase cpu = at::detail::empty_cpu({2}, c10::ScalarType::Float);
  EXPECT_THAT(thrown_text<c10::Error>([&] { set_allocation_name(cpu, "x"); }),
              HasSubstr("expected a loom tensor, got one on cpu"));
  EXPECT_THAT(thrown_text<c10::Error>([&] { (void)allocation_name(at::TensorBase()); }),
              HasSubstr("got an undefined one"));
}

TEST_F(SerializationTest, HostileMetadataIsRefused) {
  const std::string key = "loom.allocation_name:";
  EXPECT_THAT(refusal({{"__class__", true}}), HasSubstr("got an entry of another kind"));
  EXPECT_THAT(refusal({{"", true}}), HasSubstr("got an entry of another kind"));
  EXPECT_THAT(refusal({{key + "x", false}}), HasSubstr("got an entry of another kind"));
  EXPECT_THAT(refusal({{key.substr(0, 10), true}}), HasSubstr("is damaged"));
  EXPECT_THAT(refusal({{key + "a", true}, {key + "b", true}}), HasSubstr("at most one"));
  EXPECT_THAT(refusal({{key + std::string(100000, 'x'), true}}), HasSubstr("at most 256 bytes"));
  EXPECT_THAT(refusal({{key + "\xE2\x82", true}}), HasSubstr("in UTF-8"));
  EXPECT_THAT(refusal({{key + "\x1b[31m", true}}), HasSubstr("control characters"));
}

}  // namespace
}  // namespace loom
