// Gradients that are in GPUs are added there. The adder of this test has its memory on the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/relay/hand_sums.h"

namespace muster {
namespace gpu_sums_test {

using ::testing::ElementsAre;
using testing::HandSums;
using ::testing::IsEmpty;

// What a test sees of the adder.
struct Adder {
  std::map<std::string, std::vector<float>> buffers;  // by handle
  std::vector<std::string> closed;
  int opened = 0, added = 0, brought = 0;
};

class FakeAdder : public GpuAdder {
 public:
  explicit FakeAdder(Adder& seen) : seen_(seen) {}

  void Reserve(size_t, size_t) override {}
  const float* Open(const std::string& handle) override {
    ++seen_.opened;
    return seen_.buffers.at(handle).data();
  }
  void Close(const float* buffer) override {
    for (const auto& [handle, values] : seen_.buffers) {
      if (values.data() == buffer) seen_.closed.push_back(handle);
    }
  }
  const float* Add(const float* a, const float* b, size_t count, size_t place) override {
    ++seen_.added;
    std::vector<float> sum(count);
    for (size_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
    places_[place] = std::move(sum);
    return places_[place].data();
  }
  std::shared_ptr<const float> Bring(const float* from, size_t count) override {
    ++seen_.brought;
    const auto values = std::make_shared<std::vector<float>>(from, from + count);
    return {values, values->data()};
  }

 private:
  Adder& seen_;
  std::map<size_t, std::vector<float>> places_;
};

constexpr uint32_t kChunkFloats = 2;  // of HandSums

// Four workers with a quarter of eight slices each; `in_gpus` of them keep gradients in GPUs.
class GpuSums : public ::testing::Test {
 protected:
  GpuSums() {
    for (const uint32_t via : {1, 2, 3, 4}) host_.Give(via, {NodeFor(via)});
  }
  static TreeNode NodeFor(uint32_t via) { return {1, via - 1}; }
  static std::string Handle(uint32_t via) { return "worker " + std::to_string(via); }

  // The worker's gradient, moved from the host to its GPU.
  RelayedGradient InGpu(uint32_t via, uint32_t chunk = 0) {
    RelayedGradient gradient = host_.Gradient(via, NodeFor(via), chunk);
    wire::GradientPart& part = *gradient.message.mutable_gradient_part();
    std::vector<float>& buffer = adder_.buffers[Handle(via)];
    buffer.resize(size_t{kChunkFloats} * 2);
    std::ranges::copy(gradient.payload.floats(), buffer.begin() + chunk * kChunkFloats);
    wire::GpuBuffer place;
    place.set_buffer(part.buffer());
    place.set_handle(Handle(via));
    gpus_.Open(via, place);
    part.set_in_gpu(true);
    gradient.payload.data = kNothing.data();  // nobody may use what is on the host
    gradient.payload.owner = nullptr;
    return gradient;
  }
  std::vector<std::string> Add(RelayedGradient gradient) { return host_.Add(std::move(gradient)); }

  static constexpr std::array<float, kChunkFloats> kNothing{-7, -7};
  Adder adder_;
  GpuGradients gpus_{std::make_unique<FakeAdder>(adder_), {kChunkFloats, 2 * kChunkFloats}};
  HandSums host_{8, {}, &gpus_};
};

// HandSums checks the bits.
TEST_F(GpuSums, AreMadeInTheOrderOfTheTree) {
  for (const uint32_t chunk : {1u, 0u}) {
    for (const uint32_t via : {3, 1, 4}) EXPECT_THAT(Add(InGpu(via, chunk)), IsEmpty());
    EXPECT_EQ(Add(InGpu(2, chunk)).size(), 1u);
    EXPECT_FALSE(host_.last().message.gradient_part().in_gpu());
  }
  EXPECT_EQ(adder_.added, 2 * 3);
  EXPECT_EQ(adder_.brought, 2);
}

// One sum is on the host, so the other gradients are brought there.
TEST_F(GpuSums, WithGradientsOnTheHostAreMadeThere) {
  EXPECT_THAT(Add(InGpu(1)), IsEmpty());
  EXPECT_THAT(Add(InGpu(2)), IsEmpty());
  const RelayedGradient theirs =
      host_.Sum({2, 1}, {host_.Gradient(3, NodeFor(3)), host_.Gradient(4, NodeFor(4))});
  EXPECT_THAT(Add(theirs), ElementsAre("3.0 = 1.0 + 1.1 + 1.2 + 1.3"));
  EXPECT_EQ(adder_.added, 0);
  EXPECT_EQ(adder_.brought, 2);
}

TEST_F(GpuSums, OfOneGradientAreBroughtAsTheyAre) {
  HandSums host(8, {2, 8}, &gpus_);  // only the first worker has samples
  for (const uint32_t via : {1, 2}) host.Give(via, {NodeFor(via)});
  EXPECT_THAT(host.Add(2, NodeFor(2)), IsEmpty());
  EXPECT_THAT(host.Add(InGpu(1)), ElementsAre("2.0 = 1.0 + 1.1"));
  EXPECT_EQ(adder_.added, 0);
  EXPECT_EQ(adder_.brought, 1);
}

// A gradient that is sent by itself is brought to the host when it is sent.
TEST_F(GpuSums, AreBroughtWhenSentAlone) {
  RelayedGradient gradient = InGpu(1, 1);
  const std::vector<float> expected(adder_.buffers.at(Handle(1)).begin() + kChunkFloats,
                                    adder_.buffers.at(Handle(1)).end());
  gpus_.Bring(gradient);
  EXPECT_FALSE(gradient.message.gradient_part().has_in_gpu());
  EXPECT_THAT(gradient.payload.floats(), ::testing::ElementsAreArray(expected));
  gpus_.Bring(gradient);
  EXPECT_EQ(adder_.brought, 1);
}

TEST_F(GpuSums, AWorkersMemoryIsOpenedOnce) {
  (void)InGpu(1, 0);
  (void)InGpu(1, 1);
  EXPECT_EQ(adder_.opened, 1);
  gpus_.Close(1);
  EXPECT_THAT(adder_.closed, ElementsAre(Handle(1)));
}

TEST_F(GpuSums, OnlyChunksThatExistAreInAGpu) {
  RelayedGradient gradient = InGpu(1, 1);
  EXPECT_EQ(gpus_.Find(gradient), adder_.buffers.at(Handle(1)).data() + kChunkFloats);
  for (const uint32_t chunk : {2u, 3u, ~0u}) {
    gradient.message.mutable_gradient_part()->set_chunk(chunk);
    EXPECT_EQ(gpus_.Find(gradient), nullptr) << chunk;
  }
}

TEST_F(GpuSums, ALostWorkersMemoryIsClosed) {
  const RelayedGradient lost = InGpu(1), other = InGpu(2);
  gpus_.Close(1);
  EXPECT_THAT(adder_.closed, ElementsAre(Handle(1)));
  EXPECT_EQ(gpus_.Find(lost), nullptr);
  EXPECT_NE(gpus_.Find(other), nullptr);
}

}  // namespace gpu_sums_test
}  // namespace muster
