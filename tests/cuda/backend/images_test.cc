// Batches that the device makes from its images, compared with those that the host makes.
#include <cuda_runtime_api.h>

#include <utility>

#include "tests/cuda/backend/images_fixture.h"
#include "worker/data/validation_split.h"

namespace muster {
namespace {

class CudaImagesCompareTest : public CudaImagesTest {
 protected:
  // Compares all settings, on and off, for images of this shape.
  static void CompareAll(const Shape& stored, CudaOptions::Precision precision) {
    const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker({.precision = precision}).backend;
    const Datasets sets = SetsOf(stored);
    std::vector<config::Preprocess> variants = testing::PreprocessVariants(stored);
    for (config::Preprocess& settings : variants) {
      if (settings.standardize() || settings.flip()) continue;
      for (int64_t k = 0; k < stored.channels; ++k) settings.add_mean(20.25 + 7 * k);
      if (settings.crop_padding() > 0) continue;
      for (int64_t k = 0; k < stored.channels; ++k) settings.add_stddev(50.5 + 3 * k);
    }
    for (size_t variant = 0; variant < variants.size(); ++variant) {
      SCOPED_TRACE(fmt::format("stored {} variant {}", stored.ToString(), variant));
      const config::Preprocess& settings = variants[variant];
      const config::Config config = ConfigOf(settings);
      DeviceImages images(config, sets, *backend, {kBatch, kBatch}, size_t{1} << 30);
      images.Upload();
      ASSERT_NE(images.train(), nullptr);
      ASSERT_NE(images.of(wire::TEST), nullptr);
      const auto elements = static_cast<size_t>(CropShape(settings, stored).elements());
      for (const bool augment : {true, false}) {
        const Dataset& set = augment ? *sets.train : *sets.test;
        const std::vector<int64_t> ids = Ids(set.size(), static_cast<int64_t>(variant));
        Made expected = AtHost(config, set, augment, ids);
        RoundTo(backend->activation_type(), expected.images);
        const Made got =
            OnDevice(*backend, augment ? *images.train() : *images.of(wire::TEST), elements, ids);
        const bool narrow = precision == CudaOptions::Precision::kBf16;
        ExpectSame(got, expected, narrow ? 1e-2f : 1e-6f);
      }
    }
  }
};

TEST_F(CudaImagesCompareTest, AreThoseOfTheHostWithAnySettings) {
  for (const Shape& stored : testing::kPreprocessedShapes) {
    CompareAll(stored, CudaOptions::Precision::kFp32);
  }
}

TEST_F(CudaImagesCompareTest, AreThoseOfTheHostRoundedToSixteenBits) {
  CompareAll({7, 11, 3}, CudaOptions::Precision::kBf16);
}

// Zero variance when standardising, or a window with nothing but padding.
TEST_F(CudaImagesTest, OfOneColourOrOfPaddingAloneAreThoseOfTheHost) {
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker({}).backend;
  config::Preprocess settings = Everything();
  settings.set_crop_height(2);
  settings.set_crop_width(1);
  settings.set_crop_padding(6);
  const config::Config config = ConfigOf(settings);
  const Datasets sets = SetsOf({2, 2, 3});
  DeviceImages images(config, sets, *backend, {20, 0}, size_t{1} << 30);
  images.Upload();
  const std::vector<int64_t> ids = Ids(20, 0, 20);
  ExpectSame(OnDevice(*backend, *images.train(), 6, ids), AtHost(config, *sets.train, true, ids));
}

// A split numbers its samples differently from the whole set, on both device and host.
TEST_F(CudaImagesTest, OfASplitAreThoseOfTheHost) {
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker({}).backend;
  const Shape stored{16, 14, 3};
  Datasets sets = SetsOf(stored, 40);
  HoldBack(0.4, 1, sets);
  const config::Config config = ConfigOf(Everything());
  DeviceImages images(config, sets, *backend, {kBatch, kBatch, kBatch}, size_t{1} << 30);
  images.Upload();
  ASSERT_NE(images.of(wire::VALIDATION), nullptr);
  ASSERT_NE(images.of(wire::VALIDATION), images.of(wire::TEST));
  const auto elements =
      static_cast<size_t>(CropShape(config.data().preprocess(), stored).elements());
  for (const bool augment : {true, false}) {
    const Dataset& set = augment ? *sets.train : *sets.validation;
    const std::vector<int64_t> ids = Ids(set.size(), 0);
    ExpectSame(
        OnDevice(*backend, augment ? *images.train() : *images.of(wire::VALIDATION), elements, ids),
        AtHost(config, set, augment, ids));
  }
}

// --------------------------------------------------------------------- where the images are stored

TEST_F(CudaImagesTest, LieOnTheDeviceWhereTheyTakeNoMoreThanHalf) {
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker({}).backend;
  const Datasets sets = SetsOf({16, 14, 3});
  const config::Config config = ConfigOf(Everything());
  const auto choose = [&](size_t left) {
    return DeviceImages(config, sets, *backend, {kBatch, kBatch}, left);
  };
  const size_t both = choose(size_t{1} << 30).bytes();
  const size_t train = DeviceImages(config, sets, *backend, {kBatch, 0}, size_t{1} << 30).bytes();
  ASSERT_LT(train, both);
  EXPECT_EQ(choose(2 * train + 2 * (both - train)).bytes(), both);
  EXPECT_EQ(choose(2 * train).bytes(), train + (2 * (both - train) <= train ? both - train : 0));
  EXPECT_EQ(choose(2 * train - 1).train(), nullptr);
  EXPECT_EQ(choose(0).bytes(), 0u);
}

TEST_F(CudaImagesTest, OfTrainingStayAtTheHostWhereItMixesThem) {
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker({}).backend;
  const Datasets sets = SetsOf({16, 14, 3});
  config::Preprocess settings = Everything();
  settings.set_mixup_alpha(0.2);
  const config::Config config = ConfigOf(settings);
  const DeviceImages images(config, sets, *backend, {kBatch, kBatch}, size_t{1} << 30);
  EXPECT_EQ(images.train_by(), ImagesBy::kHost);
  EXPECT_EQ(images.by(wire::TEST), ImagesBy::kDevice);
}

TEST_F(CudaImagesTest, TakeTheMemoryThatTheySay) {
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker({}).backend;
  const Datasets sets = SetsOf({16, 14, 3});
  const size_t before = backend->memory_use().held;
  DeviceImages images(ConfigOf(Everything()), sets, *backend, {kBatch, kBatch}, size_t{1} << 30);
  EXPECT_EQ(backend->memory_use().held, before);
  images.Upload();
  EXPECT_EQ(backend->memory_use().held - before, images.bytes());
}

// Other processes took the memory meanwhile, or the copy fails. The host then makes the batches,
// and nothing of the set stays on the device.
TEST_F(CudaImagesTest, StayAtTheHostWhereTheUploadFails) {
  for (const auto& [call, status] : {std::pair{"cudaMalloc", cudaErrorMemoryAllocation},
                                     std::pair{"cudaMemcpyAsync", cudaErrorUnknown}}) {
    SCOPED_TRACE(call);
    const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker({}).backend;
    const Datasets sets = SetsOf({16, 14, 3});
    const size_t before = backend->memory_use().held;
    DeviceImages images(ConfigOf(Everything()), sets, *backend, {kBatch, kBatch}, size_t{1} << 30);
    software_gpu::FailCall(call, 1, status);
    images.Upload();
    EXPECT_EQ(images.train(), nullptr);
    EXPECT_EQ(images.train_by(), ImagesBy::kHost);
    ASSERT_NE(images.of(wire::TEST), nullptr);  // the next call works again
    EXPECT_EQ(backend->memory_use().held - before, images.of(wire::TEST)->bytes());
  }
}

}  // namespace
}  // namespace muster
