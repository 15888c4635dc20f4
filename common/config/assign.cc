#include "common/config/assign.h"

#include "proto/config.pb.h"

namespace muster {

Assignment FirstAssignment(const config::Config& config) {
  return AssignEvenly(config.run().slices(), config.cluster().workers());
}

}  // namespace muster
