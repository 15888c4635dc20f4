#include "cli/data/synthesize.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "cli/data/data_folder.h"
#include "cli/text/console.h"
#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/random.h"
#include "worker/data/cifar10.h"

namespace muster {
namespace {

// Draws the random numbers of one image in sequence. Blocks from kNoiseBlocks on are reserved for
// noise.
constexpr uint32_t kNoiseBlocks = 1000;

class Draws {
 public:
  explicit Draws(const RandomStream& stream) : stream_(stream) {}
  // [low, high)
  float Between(float low, float high) {
    if (used_ % 4 == 0) block_ = stream_.Block(used_ / 4);
    return low + (high - low) * ToUniform(block_[used_++ % 4]);
  }
  bool Coin() { return Between(0, 1) < 0.5f; }

 private:
  const RandomStream& stream_;
  std::array<uint32_t, 4> block_ = {};
  uint32_t used_ = 0;
};

int LabelOf(uint64_t seed, uint64_t number) {
  const RandomStream stream(seed, RandomPurpose::kSynthetic, /*place=*/1, /*epoch=*/0,
                            number / kCifar10Classes);
  std::array<int, kCifar10Classes> labels = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  for (uint32_t i = kCifar10Classes - 1; i > 0; --i) {
    std::swap(labels[i], labels[static_cast<uint64_t>(stream.Block(i)[0]) * (i + 1) >> 32]);
  }
  return labels[number % kCifar10Classes];
}

// A rotation given by t = tan(angle / 2), which needs no trigonometric function.
struct Rotation {
  float cosine = 1, sine = 0;
  static Rotation FromHalfTangent(float t) {
    return {(1 - t * t) / (1 + t * t), 2 * t / (1 + t * t)};
  }
};

constexpr float kHalfTangent45 = 0.41421356f;

struct Figure {
  int label;
  float x, y;              // center, in pixels
  float radius;            // radius of the figure, or of the window that shows a texture
  float period;            // period of a texture, in pixels
  float shift_x, shift_y;  // offset of a texture, in periods
  bool round;              // the window is a disk, not a square
  Rotation turn;
};

Figure DrawFigure(int label, Draws& draws) {
  Figure figure;
  figure.label = label;
  figure.x = draws.Between(12, 20);
  figure.y = draws.Between(12, 20);
  figure.radius = draws.Between(5, 10);
  figure.period = draws.Between(3.6f, 6);
  figure.shift_x = draws.Between(0, 1);
  figure.shift_y = draws.Between(0, 1);
  figure.round = draws.Coin();
  const float any = draws.Between(-1, 1);  // -90° … 90°
  const float tilt = any * 0.14f;          // -16° … 16°
  const float sign = draws.Coin() ? 1.0f : -1.0f;
  switch (label) {
    case 5:
    case 6:
      figure.turn = Rotation::FromHalfTangent(tilt);
      break;
    case 7:
      figure.turn = Rotation::FromHalfTangent(sign * (kHalfTangent45 + tilt));
      break;
    default:
      figure.turn = Rotation::FromHalfTangent(any);
  }
  if (label == 3) figure.radius *= sign;  // points up or down
  return figure;
}

// Distance to the nearer edge of a stripe, negative inside; stripes are half a period wide.
float StripeDistance(float x, float period, float shift) {
  const float phase = x / period + shift;
  return (std::abs(phase - std::floor(phase) - 0.5f) - 0.25f) * period;
}

// Approximate signed distance in pixels from the outline of the figure, negative inside. (x, y) is
// relative to the center and rotated.
float Distance(const Figure& figure, float x, float y) {
  const float r = figure.radius, ax = std::abs(x), ay = std::abs(y);
  const float from_centre = std::sqrt(x * x + y * y);
  const float window = figure.round ? from_centre - r : std::max(ax, ay) - 0.9f * r;
  switch (figure.label) {
    case 0:
      return from_centre - 0.8f * r;
    case 1:
      return std::abs(from_centre - 0.7f * r) - 0.2f * r;
    case 2:
      return std::max(ax, ay) - 0.75f * r;
    case 3: {  // sides at 90°, 210° and 330°; a negative radius flips it
      const float t = r < 0 ? -y : y;
      return std::max(t, 0.8660254f * ax - 0.5f * t) - 0.5f * std::abs(r);
    }
    case 4:
      return std::max(std::max(ax, ay) - r, std::min(ax, ay) - 0.24f * r);
    case 5:
    case 7:
      return std::max(window, StripeDistance(y, figure.period, figure.shift_y));
    case 6:
      return std::max(window, StripeDistance(x, figure.period, figure.shift_x));
    case 8: {
      const float horizontal = StripeDistance(y, 1.5f * figure.period, figure.shift_y);
      const float vertical = StripeDistance(x, 1.5f * figure.period, figure.shift_x);
      // Exactly one of the two covers the point.
      return std::max(window,
                      std::max(std::min(horizontal, vertical), -std::max(horizontal, vertical)));
    }
    default: {
      const float cell = 1.2f * figure.period;
      const float u = x / cell + figure.shift_x, v = y / cell + figure.shift_y;
      const float du = (u - std::floor(u) - 0.5f) * cell, dv = (v - std::floor(v) - 0.5f) * cell;
      return std::max(window, std::sqrt(du * du + dv * dv) - 0.28f * cell);
    }
  }
}

// The colors of background and figure in each channel, and their variation over the image.
struct Colours {
  std::array<float, 3> ground, difference;
  float slope_x, slope_y;      // shading of the background, per pixel
  float edge_x, edge_y, edge;  // a straight edge behind the figure, and the step across it
  float noise;                 // standard deviation
};

Colours DrawColours(Draws& draws) {
  Colours colours;
  const float sign = draws.Coin() ? 1.0f : -1.0f;
  const float contrast = draws.Between(25, 90);
  for (int k = 0; k < 3; ++k) {
    colours.ground[k] = 128 - sign * contrast / 2 + draws.Between(-45, 45);
    colours.difference[k] = sign * contrast + draws.Between(-30, 30);
  }
  colours.slope_x = draws.Between(-1.2f, 1.2f);
  colours.slope_y = draws.Between(-1.2f, 1.2f);
  const Rotation edge = Rotation::FromHalfTangent(draws.Between(-1, 1));
  colours.edge_x = edge.cosine;
  colours.edge_y = edge.sine;
  colours.edge = draws.Between(-25, 25);
  colours.noise = draws.Between(8, 28);
  return colours;
}

}  // namespace

void RenderSynthetic(uint64_t seed, uint64_t number,
                     std::span<uint8_t, static_cast<size_t>(kCifar10RecordBytes)> record) {
  const RandomStream stream(seed, RandomPurpose::kSynthetic, /*place=*/0, /*epoch=*/0, number);
  Draws draws(stream);
  const int label = LabelOf(seed, number);
  const Figure figure = DrawFigure(label, draws);
  const Colours colours = DrawColours(draws);
  constexpr float kMiddle = (kCifar10Side - 1) / 2.0f;
  // The sum of two bytes has a standard deviation of √(2 (256² - 1) / 12).
  const float noise = colours.noise / 104.5f;

  record[0] = static_cast<uint8_t>(label);
  std::array<uint32_t, 4> bits = {};
  for (int pixel = 0; pixel < kCifar10Side * kCifar10Side; ++pixel) {
    const float x = static_cast<float>(pixel % kCifar10Side);
    const float y = static_cast<float>(pixel / kCifar10Side);
    const float dx = x - figure.x, dy = y - figure.y;
    const float distance = Distance(figure, dx * figure.turn.cosine + dy * figure.turn.sine,
                                    dy * figure.turn.cosine - dx * figure.turn.sine);
    const float cover = std::clamp(0.5f - distance, 0.0f, 1.0f);
    const float across = (x - kMiddle) * colours.edge_x + (y - kMiddle) * colours.edge_y;
    const float shade = (x - kMiddle) * colours.slope_x + (y - kMiddle) * colours.slope_y +
                        std::clamp(across, -0.5f, 0.5f) * colours.edge;
    // A block of 16 random bytes serves two pixels.
    if (pixel % 2 == 0) bits = stream.Block(kNoiseBlocks + static_cast<uint32_t>(pixel) / 2);
    for (int k = 0; k < 3; ++k) {
      const int byte = 6 * (pixel % 2) + 2 * k;
      const uint32_t two = bits[byte / 4] >> (8 * (byte % 4));
      const int sum = static_cast<int>((two & 255) + (two >> 8 & 255)) - 255;
      const float value = colours.ground[k] + shade + cover * colours.difference[k] +
                          noise * static_cast<float>(sum);
      record[1 + k * kCifar10Side * kCifar10Side + pixel] =
          static_cast<uint8_t>(std::clamp(value, 0.0f, 255.0f) + 0.5f);
    }
  }
}

namespace fs = std::filesystem;
namespace {

// Increase it whenever the same arguments give different bytes.
constexpr int kVersion = 1;

std::string Recipe(uint64_t seed, int64_t train_per_file, int64_t test_count) {
  return fmt::format(
      "A procedural data set made by `muster data synth`, not CIFAR-10.\n"
      "version {}\nseed {}\n{} {}\n{} {}\n",
      kVersion, seed, kNoteTrainPerFile, train_per_file, kNoteTest, test_count);
}

void WriteImages(const fs::path& path, uint64_t seed, uint64_t first, int64_t count) {
  constexpr int64_t kImagesPerWrite = 256;
  std::vector<uint8_t> buffer(kImagesPerWrite * kCifar10RecordBytes);
  AtomicFile file(path);
  for (int64_t done = 0; done < count;) {
    const int64_t now = std::min(kImagesPerWrite, count - done);
    for (int64_t i = 0; i < now; ++i) {
      RenderSynthetic(seed, first + static_cast<uint64_t>(done + i),
                      std::span(buffer)
                          .subspan(static_cast<size_t>(i * kCifar10RecordBytes))
                          .first<kCifar10RecordBytes>());
    }
    file.Write(
        std::as_bytes(std::span(buffer).first(static_cast<size_t>(now * kCifar10RecordBytes))));
    done += now;
  }
  file.Commit();
}

// Whether the set of this recipe exists. Throws Error(kData) if something else is there, or if one
// of its files is missing or truncated.
bool AlreadyThere(const std::string& dir, const std::string& recipe) {
  const fs::path found = ExistingCifar10(dir);
  if (found.empty()) return false;
  std::ifstream file = ReadPlainFile(found / kSyntheticNote);
  const std::string note{std::istreambuf_iterator<char>(file), {}};
  if (!note.starts_with(recipe)) {
    throw Error(ExitCode::kData,
                "{}: another data set is already there. Nothing was written. Move it away, or "
                "choose another directory.",
                found.string());
  }
  (void)OpenCifar10(dir);
  return true;
}

}  // namespace

void SynthesizeCifar10(const std::string& dir, uint64_t seed, int64_t train_per_file,
                       int64_t test_count) {
  if (train_per_file < 1 || test_count < 1) {
    throw Error(
        ExitCode::kUsage,
        "procedural data set: expected at least 1 image per training file and 1 test image, "
        "found {} and {}",
        train_per_file, test_count);
  }
  const UniqueFd lock = LockDataFolder(dir);
  const std::string recipe = Recipe(seed, train_per_file, test_count);
  const fs::path target = fs::path(dir) / kCifar10Folder;
  if (AlreadyThere(dir, recipe)) {
    PrintResult(fmt::format("{}: this procedural data set is already there.", FindCifar10(dir)));
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  StageFolder(target, [&](const fs::path& staging) {
    for (size_t i = 0; i < kCifar10TrainFiles.size(); ++i) {
      WriteImages(staging / kCifar10TrainFiles[i], seed, i * static_cast<uint64_t>(train_per_file),
                  train_per_file);
    }
    WriteImages(staging / kCifar10TestFile, seed, kFirstSyntheticTestImage, test_count);
    std::string names;
    for (const char* name : kSyntheticClasses) names += fmt::format("{}\n", name);
    WriteFileAtomically(staging / "batches.meta.txt", names);
    WriteFileAtomically(staging / kSyntheticNote, recipe);
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  PrintResult(fmt::format("{}: made {} training and {} test images (seed {}) in {:.1f} s.",
                          target.string(), 5 * train_per_file, test_count, seed, seconds.count()));
}

}  // namespace muster
