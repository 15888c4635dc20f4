// What evaluations of a network measure besides loss and accuracy: means over the samples. From
// EvaluationSums on, a metric is a scalar (scalar_sums.h) with its name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace muster {

enum MetricNumber { kTop5, kMetricCount };  // the places in LossSums::metrics

struct Metric {
  const char* name;  // as displayed; not one that programs may give to scalars (IsScalarName)
  // "top5", "accuracy": test_top5_accuracy in metrics.jsonl, accuracy/test_top5 in TensorBoard.
  const char *id, *of;
  bool is_share;                     // of the samples, displayed in percent
  bool (*applies)(int64_t classes);  // whether a network has it; 1: the network predicts values

  std::string Key() const { return std::string(id) + "_" + of; }
  std::string Tag(const std::string& set) const { return std::string(of) + "/" + set + "_" + id; }
};

inline constexpr Metric kMetrics[] = {
    // With five classes or fewer it would always be 1.
    {"top 5", "top5", "accuracy", true, [](int64_t classes) { return classes > 5; }},
};
static_assert(std::size(kMetrics) == kMetricCount);

// Null for a program's own scalar.
constexpr const Metric* MetricNamed(std::string_view name) {
  for (const Metric& metric : kMetrics) {
    if (metric.name == name) return &metric;
  }
  return nullptr;
}

}  // namespace muster
