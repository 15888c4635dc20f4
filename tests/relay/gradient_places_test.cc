// Where a relay on the server's host puts gradients.
#include "worker/relay/gradient_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

namespace muster {
namespace gradient_places_test {

using ::testing::ElementsAre;

class Places : public ::testing::Test {
 protected:
  // Puts two values, returns the place. -1: refused.
  int64_t Put(int64_t step, uint32_t chunk, std::vector<float> values) {
    RelayedGradient gradient;
    wire::GradientPart& part = *gradient.message.mutable_gradient_part();
    part.set_step(step);
    part.set_chunk(chunk);
    gradient.payload.data = values.data();
    gradient.payload.bytes = values.size() * sizeof(float);
    return places_.Put(gradient) ? int64_t{part.place()} : -1;
  }
  // What the server finds there.
  std::vector<float> At(uint32_t chunk, int64_t place) const {
    const auto span = layout_.Chunk(chunk, static_cast<uint32_t>(place));
    const auto values = server_.floats().subspan(span->begin, span->count);
    return {values.begin(), values.end()};
  }

  const GradientLayout layout_ = GradientLayout({2, 4}, 3, 1).OfRelay();
  const SharedMemory server_ =
      SharedMemory::Create("test-places", layout_.bytes(), SharedMemory::Access::kRead, 0);
  GradientPlaces places_{
      SharedMemory::Map(UniqueFd(::dup(server_.fd())), SharedMemory::Access::kReadWrite), layout_,
      2};
};

TEST_F(Places, AreUsedAgainWhenTheWeightsThatFollowHaveArrived) {
  const int64_t first = Put(5, 1, {1, 2}), second = Put(5, 1, {3, 4});
  EXPECT_NE(first, second);
  EXPECT_THAT(At(1, first), ElementsAre(1, 2));
  EXPECT_THAT(At(1, second), ElementsAre(3, 4));
  const int64_t other = Put(5, 0, {5, 6});
  EXPECT_THAT(At(0, other), ElementsAre(5, 6));
  places_.Free(1, 5);  // W(5) precedes the gradients of step 5
  const int64_t third = Put(5, 1, {7, 8});
  EXPECT_THAT(At(1, first), ElementsAre(1, 2));
  EXPECT_THAT(At(1, third), ElementsAre(7, 8));
  places_.Free(1, 6);
  EXPECT_EQ(Put(6, 1, {9, 9}), first);
  EXPECT_THAT(At(0, other), ElementsAre(5, 6)) << "of another chunk";
}

TEST_F(Places, TakeWholeChunksOnly) {
  EXPECT_EQ(Put(0, 0, {1}), -1);
  EXPECT_EQ(Put(0, 1, {1, 2, 3}), -1);
  EXPECT_EQ(Put(0, 2, {1, 2}), -1);
}

TEST_F(Places, MayRunOut) {
  for (size_t i = 0; i < GradientLayout::kRelayPlaces; ++i) EXPECT_GE(Put(0, 0, {1, 2}), 0);
  EXPECT_THROW((void)Put(0, 0, {1, 2}), Error);
  EXPECT_GE(Put(0, 1, {1, 2}), 0);
}

}  // namespace gradient_places_test
}  // namespace muster
