// Counts which classes are predicted for which labels.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace muster {

// counts[label][predicted].
using ConfusionCounts = std::vector<std::vector<int64_t>>;

class ConfusionMatrix {
 public:
  explicit ConfusionMatrix(int64_t classes);

  // Counts samples by label and prediction. Returns false, without counting, if the numbers of
  // labels and predictions differ or one of them is not a class.
  bool Add(std::span<const uint32_t> labels, std::span<const uint32_t> predictions);

  const ConfusionCounts& counts() const { return counts_; }

  // Comma-separated: a header "label,cat,dog,…,total" (a column per predicted class), a row per
  // label with its total, and a row "total". Without a name for every class the header is
  // "label,0,1,…".
  std::string Csv(const std::vector<std::string>& class_names) const;

 private:
  ConfusionCounts counts_;
};

}  // namespace muster
