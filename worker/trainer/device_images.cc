#include "worker/trainer/device_images.h"

#include <algorithm>
#include <vector>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/config/data_format.h"
#include "proto/config.pb.h"
#include "worker/data/augmentation.h"

namespace muster {
namespace {

ImageRecipe RecipeOf(const config::Config& config, const Shape& stored, bool augment) {
  const config::Preprocess& settings = config.data().preprocess();
  return {.stored = stored,
          .crop = CropShape(settings, stored),
          .augment = augment,
          .seed = config.run().seed(),
          .padding = settings.crop_padding(),
          .reflect = settings.padding() == config::Preprocess::REFLECT,
          .flip = settings.flip(),
          .alternate_flip = settings.alternate_flip(),
          .brightness = settings.brightness(),
          .contrast_low = settings.contrast_min(),
          .contrast_high = settings.contrast_max(),
          .standardize = settings.standardize(),
          .mean = {settings.mean().begin(), settings.mean().end()},
          .stddev = {settings.stddev().begin(), settings.stddev().end()}};
}

double Megabytes(size_t bytes) { return static_cast<double>(bytes) * 1e-6; }

}  // namespace

LargestBatches LargestBatchesOf(const StepPlan& plan, int64_t first_step,
                                const EvaluatedSizes& sizes, int64_t block) {
  const int64_t batch = std::min(plan.global_batch, plan.train_samples);
  return {.train = first_step < plan.total_steps ? (batch + plan.slices - 1) / plan.slices : 0,
          .test = std::min(sizes.test, block),
          .validation = std::min(sizes.validation, block)};
}

DeviceImages::DeviceImages(const config::Config& config, const Datasets& data, Backend& backend,
                           const LargestBatches& largest, size_t left)
    : backend_(backend), data_(data), left_(left) {
  train_ = Choose(config, "training", data.train.get(), /*augment=*/true, largest.train);
  validation_ = Choose(config, "validation", data.validation.get(), false, largest.validation);
  test_ = Choose(config, "test", data.test.get(), false, largest.test);
  train_from_ = FromHost(backend, data.train.get(), config.data(), true);
  const Dataset* const evaluated = data.test == nullptr ? data.validation.get() : data.test.get();
  evaluated_from_ = FromHost(backend, evaluated, config.data(), false);
}

ImagesBy FromHost(const Backend& backend, const Dataset* set, const config::Data& data,
                  bool training) {
  const bool as_bytes =
      !backend.shares_host_memory() && set != nullptr && CanMakePixels(*set, data, training);
  return as_bytes ? ImagesBy::kHostPixels : ImagesBy::kHost;
}

std::unique_ptr<StoredImages> DeviceImages::Choose(const config::Config& config, const char* name,
                                                   const Dataset* set, bool augment,
                                                   int64_t largest) {
  const bool mixes = augment && MixupAlpha(config.data()) > 0;  // only on the host
  if (backend_.shares_host_memory() || set == nullptr || !set->stores_planes() ||
      set->size() == 0 || largest == 0 || mixes) {
    return nullptr;
  }
  const ImageRecipe recipe = RecipeOf(config, set->shape(), augment);
  if (backend_.MakeImageOp(recipe) == nullptr) return nullptr;
  auto images = std::make_unique<StoredImages>(backend_, recipe, set->size(), largest);
  if (images->bytes() > left_ / 2) {
    LogInfo(
        "the {} set stays in host memory: its {:.1f} MB exceed half of the {:.1f} MB that are free "
        "on the device",
        name, Megabytes(images->bytes()), Megabytes(left_));
    return nullptr;
  }
  left_ -= images->bytes();
  return images;
}

size_t DeviceImages::bytes() const {
  size_t bytes = 0;
  for (const StoredImages* images : {train_.get(), validation_.get(), test_.get()}) {
    if (images != nullptr) bytes += images->bytes();
  }
  return bytes;
}

void DeviceImages::Upload() {
  UploadSet("training", data_.train.get(), train_);
  UploadSet("validation", data_.validation.get(), validation_);
  UploadSet("test", data_.test.get(), test_);
}

void DeviceImages::UploadSet(const char* name, const Dataset* set,
                             std::unique_ptr<StoredImages>& images) {
  if (images == nullptr) return;
  std::vector<uint8_t> buffer;
  try {
    images->Upload([&](int64_t i) {
      return StoredImages::Sample{set->Planes(i, buffer), set->Label(i)};
    });
    LogInfo("the {} set is in device memory ({:.1f} MB)", name, Megabytes(images->bytes()));
  } catch (const Error& error) {
    LogWarning("the {} set stays in host memory: {}", name, error.what());
    images.reset();
  }
}

}  // namespace muster
