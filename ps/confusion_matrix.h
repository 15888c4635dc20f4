// Which classes are taken for which.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <string>
#include <vector>

namespace muster {

class ConfusionMatrix {
 public:
  explicit ConfusionMatrix(int64_t classes);

  // Counts samples by label and prediction. False, and nothing is counted, if there are not as
  // many predictions as labels or one is not a class.
  bool Add(const google::protobuf::RepeatedField<uint32_t>& labels,
           const google::protobuf::RepeatedField<uint32_t>& predictions);

  int64_t at(int64_t label, int64_t predicted) const {
    return counts_[label * classes_ + predicted];
  }

  // Comma-separated: a header "label,cat,dog,…,total" (a column for each predicted class), a row
  // for each label with its total, and a row "total". Without a name for each class "label,0,1,…".
  std::string Csv(const std::vector<std::string>& class_names) const;

 private:
  const int64_t classes_;
  std::vector<int64_t> counts_;  // [label][predicted]
};

}  // namespace muster
