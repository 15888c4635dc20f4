// Counts how often each class is predicted for each label.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace muster {

// counts[label][predicted].
using ConfusionCounts = std::vector<std::vector<int64_t>>;

inline constexpr const char* kCsvBeginning = "label";

class ConfusionMatrix {
 public:
  explicit ConfusionMatrix(int64_t classes);

  // Counts samples by label and prediction. Returns false, without counting, if the numbers of
  // labels and predictions differ or one of them is not a class.
  bool Add(std::span<const uint32_t> labels, std::span<const uint32_t> predictions);

  const ConfusionCounts& counts() const { return counts_; }

  // Returns the matrix as comma-separated values: a header "label,cat,dog,…,total" with a column
  // per predicted class, a row per label with its total, and a row "total". If not every class has
  // a name, the header is "label,0,1,…".
  std::string Csv(const std::vector<std::string>& class_names) const;

 private:
  ConfusionCounts counts_;
};

}  // namespace muster
