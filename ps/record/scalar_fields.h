// Scalars of programs as fields of events and checkpoints.
#pragma once

#include "common/plan/scalar_sums.h"
#include "proto/checkpoint.pb.h"
#include "proto/events.pb.h"

namespace muster {

google::protobuf::RepeatedPtrField<events::Scalar> MeansOf(const ScalarSums& sums);

// The state that checkpoints save.
google::protobuf::RepeatedPtrField<checkpoint::Scalar> KeptScalars(const ScalarSums& sums);
ScalarSums RestoredScalars(const google::protobuf::RepeatedPtrField<checkpoint::Scalar>& kept);

}  // namespace muster
