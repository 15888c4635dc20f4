// Data sets on the software GPU, and the host's results for comparison.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "common/base/element_type.h"
#include "proto/config.pb.h"
#include "tests/cuda/backend/host_fuses.h"
#include "tests/cuda/software_gpu/control.h"
#include "tests/data/preprocess_cases.h"
#include "tests/data/test_sets.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/data/preprocess.h"
#include "worker/trainer/device_images.h"

namespace muster {

inline constexpr double kImagePatience = 30;
inline constexpr int64_t kEpoch = 3;
inline constexpr int64_t kBatch = 9;

struct Made {
  std::vector<float> images;
  std::vector<int32_t> labels;
};

class CudaImagesTest : public ::testing::Test {
 protected:
  void SetUp() override { software_gpu::Reset({}); }
  void TearDown() override {
    EXPECT_TRUE(software_gpu::Leaks().empty()) << software_gpu::Leaks().front();
    software_gpu::Reset({});
  }

  static Datasets SetsOf(const Shape& stored, int64_t train = 20, int64_t test = 12) {
    return {std::make_unique<testing::MemorySet>(train, stored, 1),
            std::make_unique<testing::MemorySet>(test, stored, 2)};
  }
  static config::Config ConfigOf(const config::Preprocess& settings) {
    config::Config config;
    config.mutable_run()->set_seed(uint64_t{0x123456789abcdef});
    *config.mutable_data()->mutable_preprocess() = settings;
    return config;
  }
  static config::Preprocess Everything() {
    config::Preprocess settings = testing::AllPreprocessing(12);
    settings.set_crop_padding(2);
    return settings;
  }

  // IDs in shuffled order, one of them twice, from any start.
  static std::vector<int64_t> Ids(int64_t size, int64_t first, int64_t count = kBatch) {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < count; ++i) ids.push_back((first + i * 7) % size);
    ids.back() = ids.front();
    return ids;
  }

  static Made AtHost(const config::Config& config, const Dataset& set, bool augment,
                     const std::vector<int64_t>& ids) {
    const Preprocessor preprocessor(config.data().preprocess(), set.shape());
    const auto elements = static_cast<size_t>(preprocessor.shape().elements());
    Made made;
    made.images.resize(ids.size() * elements);
    for (size_t i = 0; i < ids.size(); ++i) {
      const Augmentation choices =
          augment ? preprocessor.Draw(config.run().seed(), kEpoch, ids[i]) : preprocessor.Centre();
      preprocessor.Apply(testing::PlanesOf(set, ids[i]), choices,
                         made.images.data() + i * elements);
      made.labels.push_back(set.Label(ids[i]));
    }
    return made;
  }

  static Made OnDevice(Backend& backend, StoredImages& stored, size_t elements,
                       const std::vector<int64_t>& ids) {
    const bool narrow = backend.activation_type() != ElementType::kFloat32;
    const size_t numbers = ids.size() * elements;
    const size_t bytes = numbers * BytesOf(backend.activation_type());
    const auto device_ids = backend.Allocate(ids.size() * sizeof(int64_t));
    const auto device_images = backend.Allocate(bytes);
    const auto device_labels = backend.Allocate(ids.size() * sizeof(int32_t));
    const auto event = backend.MakeEvent();
    std::vector<uint16_t> halves(numbers);
    Made made{std::vector<float>(numbers), std::vector<int32_t>(ids.size())};
    const DrainAtExit drain{backend};
    backend.CopyIn(device_ids->data(), ids.data(), ids.size() * sizeof(int64_t));
    backend.Record(Queue::kCopyIn, *event);
    backend.Await(Queue::kInput, *event);
    stored.Make(static_cast<const int64_t*>(device_ids->data()), static_cast<int64_t>(ids.size()),
                kEpoch, device_images->data(), static_cast<int32_t*>(device_labels->data()));
    backend.Record(Queue::kInput, *event);
    backend.Await(Queue::kCopyOut, *event);
    void* const to = narrow ? static_cast<void*>(halves.data()) : made.images.data();
    backend.CopyOut(to, device_images->data(), bytes);
    backend.CopyOut(made.labels.data(), device_labels->data(), ids.size() * sizeof(int32_t));
    backend.Record(Queue::kCopyOut, *event);
    EXPECT_TRUE(event->Wait(kImagePatience));
    if (narrow) FromHalves(backend.activation_type(), halves, made.images.data());
    return made;
  }

  // Expects equal bits if the host fuses; otherwise the rounding of one product may differ.
  static void ExpectSame(const Made& got, const Made& expected, float rounding = 1e-6f) {
    EXPECT_EQ(got.labels, expected.labels);
    ASSERT_EQ(got.images.size(), expected.images.size());
    for (size_t i = 0; i < got.images.size(); ++i) {
      const float tolerance = kHostFuses ? 0 : rounding * (1 + std::abs(expected.images[i]));
      ASSERT_NEAR(got.images[i], expected.images[i], tolerance) << "number " << i;
    }
  }
};

}  // namespace muster
