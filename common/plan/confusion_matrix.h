// Which classes are taken for which.
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

  // Counts samples by label and prediction. False, and nothing is counted, if there are not as
  // many predictions as labels or one is not a class.
  bool Add(std::span<const uint32_t> labels, std::span<const uint32_t> predictions);

  const ConfusionCounts& counts() const { return counts_; }

  // Comma-separated: a header "label,cat,dog,…,total" (a column for each predicted class), a row
  // for each label with its total, and a row "total". Without a name for each class "label,0,1,…".
  std::string Csv(const std::vector<std::string>& class_names) const;

 private:
  ConfusionCounts counts_;
};

}  // namespace muster
