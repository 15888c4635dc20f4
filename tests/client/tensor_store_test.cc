// A worker's tensors, in its own memory and in a server's shared memory.
#include "worker/client/tensor_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/base/error.h"

namespace muster {
namespace tensor_store_test {

const GradientLayout kLayout({10, 25, 40}, 3, 2);
constexpr size_t kFloats = 40;
const GradientLayout::Span kChunk{10, 15};

Payload PayloadOf(const auto& values) {
  return {values.data(), values.size() * sizeof(values[0]), nullptr};
}

void ExpectSlotsOfTheirOwn(TensorStore& store) {
  // Includes the third one, which is created on demand.
  for (size_t part = 0; part < 3; ++part) {
    ASSERT_EQ(store.GradientBuffer(part).size(), kFloats);
    // Buffers share no pages, because a driver may lock them.
    EXPECT_EQ(reinterpret_cast<uintptr_t>(store.GradientBuffer(part).data()) %
                  static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE)),
              0u);
    std::ranges::fill(store.GradientBuffer(part), static_cast<float>(part + 1));
  }
  for (size_t part = 0; part < 3; ++part) {
    EXPECT_EQ(std::ranges::count(store.GradientBuffer(part), static_cast<float>(part + 1)), 40);
  }
}

// The buffers of completed takeovers are freed. The others remain.
void ExpectGivesBack(
    const std::function<std::unique_ptr<TensorStore>(const GradientLayout&)>& make) {
  constexpr size_t kMany = 10'000;  // not a whole number of pages
  const auto store = make(GradientLayout({kMany}, 3, 1));
  for (size_t arena = 0; arena < 3; ++arena) std::ranges::fill(store->GradientBuffer(arena), 1.0f);
  for (const size_t arena : {size_t{0}, size_t{1}}) store->GiveBack(arena);
  const auto zeros = [&](size_t arena) {
    return static_cast<size_t>(std::ranges::count(store->GradientBuffer(arena), 0.0f));
  };
  EXPECT_EQ(zeros(0), 0u);
  EXPECT_EQ(zeros(2), 0u);
  const size_t in_page = static_cast<size_t>(::sysconf(_SC_PAGESIZE)) / sizeof(float);
  EXPECT_EQ(zeros(1) % in_page, 0u);
  EXPECT_GT(zeros(1), kMany - 2 * in_page);
  std::ranges::fill(store->GradientBuffer(1), 2.0f);
  EXPECT_EQ(zeros(1), 0u) << "it can be used again";
}

TEST(OwnTensors, GiveBackWhatIsNotAlwaysUsed) {
  ExpectGivesBack([](const GradientLayout& layout) { return MakeOwnTensors(layout, wire::FP32); });
}

TEST(OwnTensors, ShowWhatCame) {
  const auto store = MakeOwnTensors(kLayout, wire::FP32);
  ExpectSlotsOfTheirOwn(*store);
  const std::vector<float> weights(kChunk.count, 2.5f);
  EXPECT_TRUE(store->Store(1, kChunk, PayloadOf(weights)));
  EXPECT_EQ(std::ranges::count(store->WeightBuffer(1), 2.5f), 15);
  EXPECT_EQ(store->WeightBuffer(1)[10], 2.5f);
  EXPECT_EQ(store->WeightBuffer(1)[24], 2.5f);
  EXPECT_EQ(std::ranges::count(store->WeightBuffer(0), 0.0f), 40);
}

TEST(OwnTensors, TakeOnlyAWholeChunk) {
  const auto store = MakeOwnTensors(kLayout, wire::FP32);
  const std::vector<float> weights(kChunk.count + 1, 2.5f);
  EXPECT_FALSE(store->Store(0, kChunk, PayloadOf(weights)));
  EXPECT_FALSE(store->Store(0, kChunk, {}));
  EXPECT_EQ(std::ranges::count(store->WeightBuffer(0), 0.0f), 40);
}

TEST(OwnTensors, WidenHalves) {
  const auto store = MakeOwnTensors(kLayout, wire::BF16);
  const std::vector<uint16_t> halves(kChunk.count, 0x4020);  // 2.5
  EXPECT_TRUE(store->Store(0, kChunk, PayloadOf(halves)));
  EXPECT_EQ(std::ranges::count(store->WeightBuffer(0), 2.5f), 15);
  EXPECT_FALSE(store->Store(0, kChunk, PayloadOf(std::vector<float>(kChunk.count))));
}

// Its memory is allocated on first use.
TEST(OwnTensors, HaveNoAverageUntilItComes) {
  const auto store = MakeOwnTensors(kLayout, wire::FP32);
  EXPECT_TRUE(store->WeightBuffer(TensorStore::kAverageBuffer).empty());
  const std::vector<float> average(kChunk.count, 0.5f);
  EXPECT_TRUE(store->Store(TensorStore::kAverageBuffer, kChunk, PayloadOf(average)));
  EXPECT_EQ(store->WeightBuffer(TensorStore::kAverageBuffer)[10], 0.5f);
  EXPECT_EQ(store->WeightBuffer(TensorStore::kAverageBuffer).size(), kFloats);
}

SharedTensors Shared(size_t weight_buffers, size_t gradient_buffers) {
  using Access = SharedMemory::Access;
  constexpr size_t kArena = SharedArenaFloats(kFloats) * sizeof(float);
  return {SharedMemory::Create("test-planes", weight_buffers * kArena, Access::kReadWrite),
          SharedMemory::Create("test-slots", gradient_buffers * kArena, Access::kReadWrite)};
}

TEST(SharedTensorStore, GivesBackWhatIsNotAlwaysUsed) {
  ExpectGivesBack([](const GradientLayout& layout) {
    using Access = SharedMemory::Access;
    const size_t arena = SharedArenaFloats(layout.arena_floats()) * sizeof(float);
    return MakeSharedTensors(
        {SharedMemory::Create("test-planes", 2 * arena, Access::kReadWrite),
         SharedMemory::Create("test-slots", layout.bytes(), Access::kReadWrite, arena)},
        layout);
  });
}

TEST(SharedTensorStore, ShowsWhatTheServerWrote) {
  SharedTensors shared = Shared(3, 3);
  const std::span<float> weight_buffers = shared.weight_buffers.writable_floats();
  const auto store = MakeSharedTensors(std::move(shared), kLayout);
  ExpectSlotsOfTheirOwn(*store);
  for (int buffer = 0; buffer < 3; ++buffer) {
    weight_buffers[static_cast<size_t>(buffer) * SharedArenaFloats(kFloats) + 11] =
        static_cast<float>(buffer + 1);
    EXPECT_TRUE(store->Store(buffer, kChunk, {}));
    EXPECT_EQ(store->WeightBuffer(buffer)[11], static_cast<float>(buffer + 1));
    EXPECT_EQ(store->WeightBuffer(buffer).size(), kFloats);
  }
}

TEST(SharedTensorStore, HasNoAverageWithoutRoomForIt) {
  const auto store = MakeSharedTensors(Shared(2, 3), kLayout);
  EXPECT_TRUE(store->WeightBuffer(TensorStore::kAverageBuffer).empty());
  EXPECT_FALSE(store->Store(TensorStore::kAverageBuffer, kChunk, {}));
  EXPECT_TRUE(store->Store(1, kChunk, {}));
}

TEST(SharedTensorStore, RefusesWhatDoesNotFit) {
  const auto refused = [](size_t weight_buffers, size_t gradient_buffers) -> std::string {
    try {
      (void)MakeSharedTensors(Shared(weight_buffers, gradient_buffers), kLayout);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kPeerFailed);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refused(2, 3), "");
  EXPECT_NE(
      refused(1, 3).find("65536 bytes of weights and 196608 bytes of gradient buffers, expected "
                         "at least 131072 and 196608"),
      std::string::npos);
  EXPECT_NE(refused(2, 1).find("131072 bytes of weights and 65536 bytes of gradient buffers"),
            std::string::npos);
}

}  // namespace tensor_store_test
}  // namespace muster
