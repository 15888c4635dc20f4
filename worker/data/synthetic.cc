#include "worker/data/synthetic.h"

#include <xxhash.h>

#include <algorithm>
#include <array>

#include "common/base/error.h"
#include "common/base/random.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

// Must be incremented whenever the same settings produce different bytes.
constexpr int kVersion = 1;

constexpr int64_t kTile = 8, kBlock = 2;
constexpr int64_t kBlocksAcross = kTile / kBlock;
constexpr int64_t kCells = kBlocksAcross * kBlocksAcross;  // in one channel's tile
constexpr uint32_t kLowest = 64, kValues = 128;            // values of a texture
constexpr int64_t kNoise = 48;

// The streams of random numbers; see RandomStream's `place`.
enum Place : uint32_t { kTrainPlace = 0, kTestPlace = 1, kTexturePlace = 2, kNoisePlace = 3 };

// The noise comes from a table of random bytes, in which each row of an image starts at its own
// offset. Drawing new noise for every pixel would cost more than everything else.
constexpr int64_t kNoiseOffsets = 1 << 16;

std::vector<uint8_t> MakeNoise(uint64_t seed, int64_t width) {
  std::vector<uint8_t> noise(static_cast<size_t>(kNoiseOffsets + width));
  const RandomStream random(seed, RandomPurpose::kSynthetic, kNoisePlace, 0, 0);
  for (size_t i = 0; i < noise.size(); ++i) {
    const uint32_t bits = random.Block(static_cast<uint32_t>(i / 4))[i % 4];
    const auto value = static_cast<int64_t>(ToUniform(bits) * (2 * kNoise)) - kNoise;
    noise[i] = static_cast<uint8_t>(value);  // modulo 256, like the addition
  }
  return noise;
}

class SyntheticDataset final : public Dataset {
 public:
  SyntheticDataset(const config::SyntheticData& settings, uint64_t seed, Place place, int64_t size,
                   std::shared_ptr<const std::vector<uint8_t>> noise)
      : shape_{settings.height(), settings.width(), settings.channels()},
        classes_(settings.classes()),
        seed_(seed),
        place_(place),
        size_(size),
        noise_(std::move(noise)) {}

  int64_t size() const override { return size_; }
  Shape shape() const override { return shape_; }
  int64_t classes() const override { return classes_; }
  int32_t Label(int64_t index) const override {
    MUSTER_CHECK(0 <= index && index < size_);
    return static_cast<int32_t>(index % classes_);
  }

  std::span<const uint8_t> Planes(int64_t index, std::vector<uint8_t>& buffer) const override {
    const int32_t label = Label(index);
    const RandomStream random(seed_, RandomPurpose::kSynthetic, place_, 0,
                              static_cast<uint64_t>(index));
    const std::array<uint32_t, 4> bits = random.Block(0);
    // An image smaller than a tile always shows the same corner of it.
    const int64_t down = shape_.height < kTile ? 0 : bits[0] % kTile;
    const int64_t right = shape_.width < kTile ? 0 : bits[1] % kTile;
    const int64_t pixels = shape_.elements(), width = shape_.width;
    // Leaves space after the image for the rows of blocks of one channel's texture, which are
    // shifted and as wide as the image.
    buffer.resize(static_cast<size_t>(pixels + kBlocksAcross * width));
    uint8_t* const textures = buffer.data() + pixels;
    uint8_t* row = buffer.data();
    std::array<uint32_t, 4> offsets = {};
    uint32_t rows = 0;
    for (int64_t channel = 0; channel < shape_.channels; ++channel) {
      DrawTexture(label, channel, right, textures);
      for (int64_t y = 0; y < shape_.height; ++y, ++rows, row += width) {
        if (rows % 4 == 0) offsets = random.Block(1 + rows / 4);
        const uint8_t* const noise = noise_->data() + offsets[rows % 4] % kNoiseOffsets;
        const uint8_t* const texture = textures + (y + down) % kTile / kBlock * width;
        for (int64_t x = 0; x < width; ++x) row[x] = static_cast<uint8_t>(texture[x] + noise[x]);
      }
    }
    return std::span<const uint8_t>(buffer).first(static_cast<size_t>(pixels));
  }

  size_t bytes() const override { return noise_->size(); }

  // Hashes the recipe of the images, so that no image has to be drawn.
  uint64_t Fingerprint() const override {
    const std::array<uint64_t, 8> recipe{kVersion,
                                         seed_,
                                         place_,
                                         static_cast<uint64_t>(size_),
                                         static_cast<uint64_t>(shape_.height),
                                         static_cast<uint64_t>(shape_.width),
                                         static_cast<uint64_t>(shape_.channels),
                                         static_cast<uint64_t>(classes_)};
    return XXH3_64bits(recipe.data(), sizeof recipe);
  }

 private:
  // Draws one row of pixels for each row of blocks of the tile, beginning at column `shift`.
  void DrawTexture(int32_t label, int64_t channel, int64_t shift, uint8_t* rows) const {
    const RandomStream random(seed_, RandomPurpose::kSynthetic, kTexturePlace, 0,
                              static_cast<uint64_t>(label));
    for (int64_t cell = 0; cell < kCells; ++cell) {
      const auto number = static_cast<uint32_t>(channel * kCells + cell);
      const uint32_t bits = random.Block(number / 4)[number % 4];
      const auto value = static_cast<uint8_t>(kLowest + bits % kValues);
      uint8_t* const row = rows + cell / kBlocksAcross * shape_.width;
      const int64_t first = cell % kBlocksAcross * kBlock;
      for (int64_t x = -shift; x < shape_.width; x += kTile) {
        for (int64_t i = first; i < first + kBlock; ++i) {
          if (0 <= x + i && x + i < shape_.width) row[x + i] = value;
        }
      }
    }
  }

  const Shape shape_;
  const int64_t classes_;
  const uint64_t seed_;
  const Place place_;
  const int64_t size_;
  const std::shared_ptr<const std::vector<uint8_t>> noise_;
};

}  // namespace

Datasets MakeSynthetic(const config::SyntheticData& settings, uint64_t seed) {
  const auto noise =
      std::make_shared<const std::vector<uint8_t>>(MakeNoise(seed, settings.width()));
  return {std::make_unique<SyntheticDataset>(settings, seed, kTrainPlace, settings.train_samples(),
                                             noise),
          std::make_unique<SyntheticDataset>(settings, seed, kTestPlace, settings.test_samples(),
                                             noise)};
}

}  // namespace muster
