#include "ps/record/scalar_fields.h"

namespace muster {

google::protobuf::RepeatedPtrField<events::Scalar> MeansOf(const ScalarSums& sums) {
  google::protobuf::RepeatedPtrField<events::Scalar> means;
  for (const auto& [name, sum] : sums) {
    events::Scalar& mean = *means.Add();
    mean.set_name(name);
    mean.set_value(sum.Mean());
  }
  return means;
}

google::protobuf::RepeatedPtrField<checkpoint::Scalar> KeptScalars(const ScalarSums& sums) {
  google::protobuf::RepeatedPtrField<checkpoint::Scalar> kept;
  for (const auto& [name, sum] : sums) {
    checkpoint::Scalar& one = *kept.Add();
    one.set_name(name);
    one.set_sum(sum.sum);
    one.set_samples(sum.samples);
  }
  return kept;
}

ScalarSums RestoredScalars(const google::protobuf::RepeatedPtrField<checkpoint::Scalar>& kept) {
  ScalarSums sums;
  for (const checkpoint::Scalar& one : kept) sums[one.name()] = {one.sum(), one.samples()};
  return sums;
}

}  // namespace muster
