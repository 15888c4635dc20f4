#include "ps/confusion_matrix.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/base/csv.h"

namespace muster {

ConfusionMatrix::ConfusionMatrix(int64_t classes)
    : classes_(classes), counts_(static_cast<size_t>(classes * classes)) {}

bool ConfusionMatrix::Add(const google::protobuf::RepeatedField<uint32_t>& labels,
                          const google::protobuf::RepeatedField<uint32_t>& predictions) {
  const auto is_class = [this](uint32_t number) { return number < classes_; };
  if (labels.size() != predictions.size() || !std::all_of(labels.begin(), labels.end(), is_class) ||
      !std::all_of(predictions.begin(), predictions.end(), is_class)) {
    return false;
  }
  for (int i = 0; i < labels.size(); ++i) ++counts_[labels[i] * classes_ + predictions[i]];
  return true;
}

std::string ConfusionMatrix::Csv(const std::vector<std::string>& class_names) const {
  const bool named = std::ssize(class_names) == classes_;
  const auto name_of = [&](int64_t c) {
    return named ? CsvField(class_names[static_cast<size_t>(c)]) : std::to_string(c);
  };
  std::string text = "label";
  for (int64_t c = 0; c < classes_; ++c) text += "," + name_of(c);
  text += ",total\n";
  std::vector<int64_t> totals(static_cast<size_t>(classes_) + 1);
  const auto append_row = [&](const std::string& name, const auto& count_of) {
    int64_t sum = 0;
    text += name;
    for (int64_t c = 0; c < classes_; ++c) {
      text += fmt::format(",{}", count_of(c));
      sum += count_of(c);
    }
    text += fmt::format(",{}\n", sum);
  };
  for (int64_t label = 0; label < classes_; ++label) {
    append_row(name_of(label), [&](int64_t c) { return at(label, c); });
    for (int64_t c = 0; c < classes_; ++c) totals[c] += at(label, c);
  }
  append_row("total", [&](int64_t c) { return totals[c]; });
  return text;
}

}  // namespace muster
