// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/generator.h"

#include "loom/backend/device_state.h"
#include "loom/backend/philox_graph.h"
#include "loom/backend/selection.h"
#include "loom/backend/stream.h"
#include "loom/base/mutex.h"
#include "loom/device/device.h"
#include "loom/device/queue.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <cstring>
#include <utility>

namespace loom {
namespace {

constexpr std::uint64_t kNumbersPerBlock = 4;
constexpr std::size_t kSeedBytes = sizeof(std::uint64_t);
constexpr std::size_t kStateBytes = kSeedBytes + sizeof(std::uint64_t);

void check_offset(std::uint64_t offset, const char* api) {
  TORCH_CHECK(offset % kNumbersPerBlock == 0, api,
              ": expected an offset that is a multiple of 4, got ", offset);
}

/// `count`, up to a multiple of a block.
std::uint64_t whole_blocks(std::uint64_t count) {
  const std::uint64_t blocks = count / kNumbersPerBlock + (count % kNumbersPerBlock != 0 ? 1 : 0);
  return blocks * kNumbersPerBlock;
}

std::uint64_t random_seed() { return c10::detail::getNonDeterministicRandom(/*is_cuda=*/true); }

}  // namespace

struct PhiloxGenerator::State {
  mutable Mutex mutex;
  std::uint64_t seed LOOM_GUARDED_BY(mutex) = c10::default_rng_seed_val;
  std::uint64_t offset LOOM_GUARDED_BY(mutex) = 0;

  std::pair<std::uint64_t, std::uint64_t> get() const {
    MutexLock lock(mutex);
    return {seed, offset};
  }
  void set(std::uint64_t new_seed, std::uint64_t new_offset) {
    MutexLock lock(mutex);
    seed = new_seed;
    offset = new_offset;
  }
};

PhiloxGenerator::PhiloxGenerator(c10::DeviceIndex device, std::uint64_t seed)
    : PhiloxGenerator(device, std::make_shared<State>()) {
  state_->set(seed, 0);
}

PhiloxGenerator::PhiloxGenerator(c10::DeviceIndex device, std::shared_ptr<State> state)
    : c10::GeneratorImpl(to_c10(device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      state_(std::move(state)) {}

PhiloxGenerator::~PhiloxGenerator() = default;

std::pair<std::uint64_t, std::uint64_t> PhiloxGenerator::reserve(std::uint64_t count) {
  State& state = *state_;
  MutexLock lock(state.mutex);
  const std::uint64_t first = state.offset;
  state.offset += whole_blocks(count);  // wraps after 2^64 numbers, as the sequence does
  return {state.seed, first};
}

PhiloxRange PhiloxGenerator::reserve_for(const Queue& queue, std::uint64_t count) {
  if (queue.captured()) [[unlikely]] {
    if (const auto graph = std::dynamic_pointer_cast<PhiloxGraph>(queue.graph())) {
      return graph->reserve(*this, whole_blocks(count));
    }
  }
  const auto [seed, first] = reserve(count);
  return {seed, first, nullptr};
}

void PhiloxGenerator::check_not_captured(const char* api) const {
  if (!device_in_use()) return;  // and shall not be used by this
  current_queue(device().index())
      .check_not_captured(api, "the generator's state depends on how often the graph is replayed");
}

void PhiloxGenerator::set_current_seed(std::uint64_t seed) {
  check_not_captured("Generator.manual_seed");
  state_->set(seed, 0);
}

std::uint64_t PhiloxGenerator::current_seed() const { return state_->get().first; }

std::uint64_t PhiloxGenerator::seed() {
  const std::uint64_t seed = random_seed();
  set_current_seed(seed);
  return seed;
}

void PhiloxGenerator::set_offset(std::uint64_t offset) {
  check_not_captured("Generator.set_offset");
  check_offset(offset, "set_offset");
  MutexLock lock(state_->mutex);
  state_->offset = offset;
}

std::uint64_t PhiloxGenerator::get_offset() const {
  check_not_captured("Generator.get_offset");
  return state_->get().second;
}

void PhiloxGenerator::set_state(const c10::TensorImpl& new_state) {
  check_not_captured("Generator.set_state");
  at::detail::check_rng_state(new_state);
  const auto bytes = static_cast<std::size_t>(new_state.numel());
  TORCH_CHECK(bytes == kStateBytes || bytes == kSeedBytes, "set_state: expected a state of ",
              kStateBytes, " bytes (seed, offset) or ", kSeedBytes, " (seed), got ", bytes);
  const auto* data = static_cast<const std::byte*>(new_state.data());
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
  std::memcpy(&seed, data, kSeedBytes);
  if (bytes == kStateBytes) std::memcpy(&offset, data + kSeedBytes, sizeof(offset));
  check_offset(offset, "set_state");
  state_->set(seed, offset);
}

c10::intrusive_ptr<c10::TensorImpl> PhiloxGenerator::get_state() const {
  check_not_captured("Generator.get_state");
  const auto [seed, offset] = state_->get();
  at::TensorBase tensor =
      at::detail::empty_cpu({static_cast<std::int64_t>(kStateBytes)}, c10::ScalarType::Byte);
  auto* data = static_cast<std::byte*>(tensor.mutable_data_ptr());
  std::memcpy(data, &seed, kSeedBytes);
  std::memcpy(data + kSeedBytes, &offset, sizeof(offset));
  return tensor.getIntrusivePtr();
}

void PhiloxGenerator::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& new_state) {
  const auto* other = dynamic_cast<const PhiloxGenerator*>(new_state.get());
  TORCH_CHECK(other != nullptr, "graphsafe_set_state: expected a loom generator, got ",
              new_state ? new_state->device().str() : "none");
  state_ = other->state_;
}

c10::intrusive_ptr<c10::GeneratorImpl> PhiloxGenerator::graphsafe_get_state() const {
  return c10::intrusive_ptr<c10::GeneratorImpl>::unsafe_steal_from_new(
      new PhiloxGenerator(device().index(), state_));
}

#if LOOM_TORCH_HAS_PHILOX_STATE
namespace {

at::Tensor one_number(std::uint64_t number) {
  at::TensorBase tensor = at::detail::empty_cpu({1}, c10::ScalarType::Long);
  std::memcpy(tensor.mutable_data_ptr(), &number, sizeof(number));
  return at::Tensor(std::move(tensor));
}

}  // namespace

void PhiloxGenerator::philox_state(std::uint64_t increment, at::Tensor& seed, at::Tensor& offset,
                                   at::Tensor& intragraph_offset) {
  check_not_captured("Generator.philox_state");
  const auto [own_seed, first] = reserve(increment);
  seed = one_number(own_seed);
  offset = one_number(first);
  intragraph_offset = one_number(0);
}
#endif

c10::DeviceType PhiloxGenerator::device_type() { return kDeviceType; }

PhiloxGenerator* PhiloxGenerator::clone_impl() const {
  const auto [seed, offset] = state_->get();
  auto state = std::make_shared<State>();
  state->set(seed, offset);
  return new PhiloxGenerator(device().index(), std::move(state));
}

namespace {

// Made at the first use and never freed, like the devices that they belong to.
std::array<std::atomic<const at::Generator*>, detail::kMaxDevices> g_defaults;
Mutex g_defaults_mutex;

const at::Generator& make_default(c10::DeviceIndex index) {
  MutexLock lock(g_defaults_mutex);
  auto& slot = detail::slot_of(g_defaults, index);
  // relaxed: generators are stored under the lock that is held here
  if (const at::Generator* made = slot.load(std::memory_order_relaxed)) return *made;
  auto* made = new at::Generator(at::make_generator<PhiloxGenerator>(index, random_seed()));
  slot.store(made, std::memory_order_release);  // release: readers see it seeded
  return *made;
}

}  // namespace

const at::Generator& default_generator(c10::DeviceIndex device) {
  const c10::DeviceIndex index = resolve_device(device, "default_generator");
  // acquire: pairs with the release in make_default
  const auto* made = detail::slot_of(g_defaults, index).load(std::memory_order_acquire);
  return made != nullptr ? *made : make_default(index);
}

PhiloxGenerator& generator_or_default(const std::optional<at::Generator>& generator,
                                      c10::DeviceIndex device) {
  if (!generator.has_value() || !generator->defined()) {
    return *default_generator(device).get<PhiloxGenerator>();
  }
  return *at::check_generator<PhiloxGenerator>(generator);
}

void manual_seed(std::uint64_t seed) {
  default_generator().get<PhiloxGenerator>()->set_current_seed(seed);
}

void manual_seed_all(std::uint64_t seed) {
  for (c10::DeviceIndex index = 0; index < device_count_or_zero(); ++index) {
    default_generator(index).get<PhiloxGenerator>()->set_current_seed(seed);
  }
}

}  // namespace loom
