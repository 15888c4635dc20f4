#include "common/link/wire_type.h"

#include "proto/config.pb.h"

namespace muster {

WireType WireTypeOf(const config::Cluster& cluster) {
  switch (cluster.wire_dtype()) {
    case config::Cluster::FP32:
      return wire::FP32;
    case config::Cluster::BF16:
      return wire::BF16;
    case config::Cluster::FP16:
      return wire::FP16;
  }
  return wire::FP32;
}

ElementType ElementTypeOf(WireType type) {
  switch (type) {
    case wire::BF16:
      return ElementType::kBFloat16;
    case wire::FP16:
      return ElementType::kFloat16;
    default:
      return ElementType::kFloat32;
  }
}

}  // namespace muster
