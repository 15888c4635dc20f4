#include "cli/data/training_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <span>
#include <utility>

#include "cli/data/download.h"
#include "common/base/text.h"

namespace muster {
namespace {

constexpr int64_t kUsualBatch = 64, kLeastBatch = 16, kUsualEpochs = 10;  // of the config

// data.class_weights under which all classes count alike.
std::string ClassWeightsText(const std::vector<int64_t>& images, int64_t all) {
  std::vector<std::string> weights;
  weights.reserve(images.size());
  for (const int64_t one : images) {
    weights.push_back(fmt::format(
        "{:.3g}", static_cast<double>(all) / static_cast<double>(std::ssize(images) * one)));
  }
  return "data.class_weights=[" + Join(weights, ",") + "]";
}

}  // namespace

std::vector<std::string> TrainingCommand(const PhotoReport& report, const std::string& exclude) {
  constexpr int64_t kFewInClass = 100, kFewInAll = 1000, kSteps = 10, kStepsInAll = 300;
  constexpr int64_t kImbalance = 3, kMostWeights = 10;
  const std::vector<int64_t>& images = report.sets.front().images;
  const auto all = std::reduce(images.begin(), images.end());
  std::vector<std::string> words{"muster launch configs/imagefolder_resnet18.txtpb --data " +
                                 ShellWord(report.dir)};
  if (all < kFewInClass * std::ssize(images)) words.emplace_back("--freeze 'conv*,bn*,layer*'");
  int64_t batch = kUsualBatch;
  while (batch > kLeastBatch && all < kSteps * batch) batch /= 2;
  const int64_t steps = std::max<int64_t>(1, all / batch);
  const int64_t epochs = std::min<int64_t>(3 * kUsualEpochs, (kStepsInAll + steps - 1) / steps);
  if (epochs > kUsualEpochs) words.push_back(fmt::format("--epochs {}", epochs));
  if (batch != kUsualBatch) words.push_back(fmt::format("--set run.global_batch={}", batch));
  if (report.needs_fraction) {
    words.push_back(
        fmt::format("--set data.validation_fraction={}", all < kFewInAll ? "0.2" : "0.1"));
  }
  const auto [rarest, commonest] = std::ranges::minmax(images);
  if (rarest > 0 && commonest >= kImbalance * rarest && std::ssize(images) <= kMostWeights) {
    words.push_back("--set '" + ClassWeightsText(images, all) + "'");
  }
  if (!exclude.empty()) {
    words.push_back("--set " + ShellWord("data.image_folder.exclude=" + exclude));
  }

  constexpr size_t kColumns = 78;  // without the backslash
  std::vector<std::string> lines{"To train:"};
  std::error_code ignored;
  if (!std::filesystem::exists(std::filesystem::path(kWeightsFolder) / "resnet18.safetensors",
                               ignored)) {
    lines.emplace_back("  muster weights get resnet18");
  }
  std::string line = "  " + words.front();
  for (const std::string& word : std::span(words).subspan(1)) {
    if (line.size() + 1 + word.size() > kColumns) {
      lines.push_back(std::exchange(line, "     ") + " \\");
    }
    line += " " + word;
  }
  lines.push_back(line);
  return lines;
}

}  // namespace muster
