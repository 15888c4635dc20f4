#include "cli/data/normalization.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "cli/text/console.h"
#include "cli/text/units.h"
#include "cli/text/wrapped.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "proto/config.pb.h"
#include "worker/data/measure.h"

namespace muster {
namespace {

constexpr int kWidth = 80;

ChannelMoments MeasureTrainingSet(const config::Config& config) {
  config::Data data = config.data();
  if (data.format() == config::Data::NPZ) {  // bytes are divided by 255 unless there is a mean
    const int64_t channels = StoredShape(data).channels;
    for (int64_t i = 0; i < channels; ++i) data.mutable_preprocess()->add_mean(0);
  }
  const Datasets sets = OpenDatasets(data, config.run().seed());
  const std::unique_ptr<SampleLoader> loader = sets.train->MakeLoader(data);
  return MeasureChannels(*sets.train, *loader, AvailableCores());
}

std::string NumbersText(const std::vector<double>& numbers) {
  constexpr size_t kMostNumbers = 4;
  const size_t shown = std::min(numbers.size(), kMostNumbers);
  std::string text;
  for (size_t i = 0; i < shown; ++i)
    text += fmt::format("{}{:.4g}", i == 0 ? "" : ", ", numbers[i]);
  return text + (shown < numbers.size() ? ", ..." : "");
}

}  // namespace

std::vector<std::string> MeasureNormalization(config::Config& config) {
  if (!MeasuresNormalization(config.data())) return {};
  PrintResult("Measuring mean and stddev of the training set ...");
  ChannelMoments moments;
  try {
    moments = MeasureTrainingSet(config);
  } catch (const Error& error) {
    throw Error(error.code(),
                "data.preprocess.measure_mean_stddev: {}. Without the training set on this host, "
                "give data.preprocess.mean and stddev instead",
                error.what());
  }
  config::Preprocess& preprocess = *config.mutable_data()->mutable_preprocess();
  for (const double mean : moments.mean) preprocess.add_mean(mean);
  for (const double stddev : moments.stddev) preprocess.add_stddev(stddev);
  preprocess.set_measure_mean_stddev(false);
  std::vector<std::string> lines = Wrapped(
      fmt::format("Measured on {}: mean {}; stddev {}", Plural(moments.samples, "training sample"),
                  NumbersText(moments.mean), NumbersText(moments.stddev)),
      kWidth);
  if (moments.constant.empty()) return lines;
  const std::string warning = fmt::format(
      "Warning: {} of {} with the same value in all samples, such as channel {}: using stddev 1",
      FormatCount(std::ssize(moments.constant)), Plural(std::ssize(moments.mean), "channel"),
      moments.constant[0]);
  for (std::string& line : Wrapped(warning, kWidth)) lines.push_back(std::move(line));
  return lines;
}

}  // namespace muster
