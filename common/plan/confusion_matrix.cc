#include "common/plan/confusion_matrix.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/base/csv.h"

namespace muster {

ConfusionMatrix::ConfusionMatrix(int64_t classes)
    : counts_(static_cast<size_t>(classes), std::vector<int64_t>(static_cast<size_t>(classes))) {}

bool ConfusionMatrix::Add(std::span<const uint32_t> labels, std::span<const uint32_t> predictions) {
  const auto is_class = [this](uint32_t number) { return number < counts_.size(); };
  if (labels.size() != predictions.size() || !std::ranges::all_of(labels, is_class) ||
      !std::ranges::all_of(predictions, is_class)) {
    return false;
  }
  for (size_t i = 0; i < labels.size(); ++i) ++counts_[labels[i]][predictions[i]];
  return true;
}

std::string ConfusionMatrix::Csv(const std::vector<std::string>& class_names) const {
  const bool named = class_names.size() == counts_.size();
  const auto name_of = [&](size_t c) {
    return named ? CsvField(class_names[c]) : std::to_string(c);
  };
  std::string text = kCsvBeginning;
  for (size_t c = 0; c < counts_.size(); ++c) text += "," + name_of(c);
  text += ",total\n";
  std::vector<int64_t> totals(counts_.size());
  const auto append_row = [&](const std::string& name, const std::vector<int64_t>& row) {
    int64_t sum = 0;
    text += name;
    for (const int64_t count : row) {
      text += fmt::format(",{}", count);
      sum += count;
    }
    text += fmt::format(",{}\n", sum);
  };
  for (size_t label = 0; label < counts_.size(); ++label) {
    append_row(name_of(label), counts_[label]);
    for (size_t c = 0; c < totals.size(); ++c) totals[c] += counts_[label][c];
  }
  append_row("total", totals);
  return text;
}

}  // namespace muster
