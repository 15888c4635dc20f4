#include "worker/data/measure.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <memory>

namespace muster {
namespace {

// For each channel, the sums of (x - origin) and of its square. The origin is near the mean, which
// avoids cancellation.
struct ChannelSums {
  std::vector<double> sum, squares;

  explicit ChannelSums(size_t channels) : sum(channels), squares(channels) {}
  void AddImage(const std::vector<float>& image, const std::vector<double>& origin) {
    for (size_t at = 0; at < image.size(); at += origin.size()) {
      for (size_t c = 0; c < origin.size(); ++c) {
        const double distance = image[at + c] - origin[c];
        sum[c] += distance;
        squares[c] += distance * distance;
      }
    }
  }
  void Add(const ChannelSums& other) {
    for (size_t c = 0; c < sum.size(); ++c) {
      sum[c] += other.sum[c];
      squares[c] += other.squares[c];
    }
  }
};

std::vector<float> LoadSample(const SampleLoader& loader, int64_t sample, LoaderScratch& scratch) {
  std::vector<float> image(static_cast<size_t>(loader.shape().elements()));
  loader.Evaluate(sample, scratch, image.data());
  return image;
}

}  // namespace

ChannelMoments MeasureChannels(const Dataset& set, const SampleLoader& loader, int threads) {
  const Shape shape = loader.shape();
  // The number of samples whose sums are in memory at the same time. These sums take at most 16
  // MiB.
  const int64_t block = std::clamp<int64_t>((1 << 20) / shape.channels, 1, 256);
  const auto channels = static_cast<size_t>(shape.channels);
  const int64_t samples = std::min(set.size(), kMostMeasured);
  const std::vector<float> first = LoadSample(loader, 0, *loader.MakeScratch());
  const std::vector<double> origin(first.begin(), first.begin() + shape.channels);

  ChannelSums all(channels);
  for (int64_t begin = 0; begin < samples; begin += block) {
    std::vector<ChannelSums> sums(static_cast<size_t>(std::min(block, samples - begin)),
                                  ChannelSums(channels));
    const auto add_some = [&](size_t thread) {
      const std::unique_ptr<LoaderScratch> scratch = loader.MakeScratch();
      for (size_t i = thread; i < sums.size(); i += static_cast<size_t>(threads)) {
        const int64_t sample = (begin + static_cast<int64_t>(i)) * set.size() / samples;
        sums[i].AddImage(LoadSample(loader, sample, *scratch), origin);
      }
    };
    std::vector<std::future<void>> running;
    running.reserve(static_cast<size_t>(threads));
    for (int thread = 1; thread < threads; ++thread) {
      running.push_back(std::async(std::launch::async, add_some, thread));
    }
    add_some(0);
    for (std::future<void>& one : running) one.get();
    for (const ChannelSums& one : sums) all.Add(one);
  }

  ChannelMoments moments{.samples = samples};
  const auto count = static_cast<double>(samples * shape.height * shape.width);
  for (size_t c = 0; c < channels; ++c) {
    const double mean = all.sum[c] / count;
    const double variance = std::max(0.0, all.squares[c] / count - mean * mean);
    moments.mean.push_back(origin[c] + mean);
    moments.stddev.push_back(variance > 0 ? std::sqrt(variance) : 1);
    if (variance == 0) moments.constant.push_back(static_cast<int64_t>(c));
  }
  return moments;
}

}  // namespace muster
