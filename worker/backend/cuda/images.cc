#include "common/base/error.h"
#include "common/base/random.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/ops.h"

namespace muster::cuda {
namespace {

size_t Aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

bool Normalizes(const ImageRecipe& recipe) {
  return !recipe.standardize && recipe.mean.size() + recipe.stddev.size() > 0;
}

template <typename T>
class ImagesOp : public ImageOp {
 public:
  ImagesOp(const ImageRecipe& recipe, Card& card) : card_(card) {
    plan_ = {.height = static_cast<int>(recipe.stored.height),
             .width = static_cast<int>(recipe.stored.width),
             .channels = static_cast<int>(recipe.stored.channels),
             .crop_height = static_cast<int>(recipe.crop.height),
             .crop_width = static_cast<int>(recipe.crop.width),
             .padding = static_cast<int>(recipe.padding),
             .reflect = recipe.reflect,
             .augment = recipe.augment,
             .flip = recipe.flip,
             .alternate_flip = recipe.alternate_flip,
             .standardize = recipe.standardize,
             .brightness = recipe.brightness,
             .contrast_low = recipe.contrast_low,
             .contrast_high = recipe.contrast_high};
    const auto key = RandomStream(recipe.seed, RandomPurpose::kAugment, /*place=*/0, 0, 0).key();
    plan_.key[0] = key[0];
    plan_.key[1] = key[1];
    plan_.normalizes = Normalizes(recipe);
    for (size_t k = 0; plan_.normalizes && k < static_cast<size_t>(plan_.channels); ++k) {
      plan_.mean[k] = recipe.mean.empty() ? 0 : recipe.mean.at(k);
      plan_.stddev[k] = recipe.stddev.empty() ? 1 : recipe.stddev.at(k);
    }
  }

  size_t scratch_bytes(int64_t count) const override { return PartsOf(count).all; }

  void Run(const ImageArgs& args) override {
    // the first layer's input has the same limit
    MUSTER_CHECK(args.count * plan_.cropped() < int64_t{1} << 31);
    const Parts parts = PartsOf(args.count);
    auto* const scratch = static_cast<std::byte*>(args.scratch);
    const ImageBatch batch{.images = args.images,
                           .sample_ids = args.sample_ids,
                           .count = static_cast<int>(args.count),
                           .sums = reinterpret_cast<ImageSums*>(scratch),
                           .maps = reinterpret_cast<ImageMap*>(scratch + parts.maps),
                           .places = reinterpret_cast<ImagePlace*>(scratch + parts.places)};
    ImagePlan plan = plan_;
    plan.epoch = static_cast<uint32_t>(args.epoch);
    const Target target = card_.target(Queue::kInput);
    MakeImages(target, plan, batch, static_cast<T*>(args.batch));
    GatherLabels(target, args.labels, args.sample_ids, args.batch_labels, batch.count);
  }

 private:
  // Offsets in scratch, in bytes. The sums come first.
  struct Parts {
    size_t maps, places, all;
  };
  Parts PartsOf(int64_t count) const {
    const auto images = static_cast<size_t>(count);
    const size_t planes = images * static_cast<size_t>(plan_.channels);
    const size_t maps = plan_.measures() ? Aligned(planes * sizeof(ImageSums)) : 0;
    const size_t places = maps + Aligned(planes * sizeof(ImageMap));
    return {maps, places, places + Aligned(images * sizeof(ImagePlace))};
  }

  Card& card_;
  ImagePlan plan_{};
};

}  // namespace

std::unique_ptr<ImageOp> MakeImageOp(const ImageRecipe& recipe, Card& card) {
  if (Normalizes(recipe) && recipe.stored.channels > kNormalizedChannels) return nullptr;
  return MakeFor<ImageOp, ImagesOp>(card.activation_type(), recipe, card);
}

}  // namespace muster::cuda
