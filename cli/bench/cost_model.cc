#include "cli/bench/cost_model.h"

#include <algorithm>

namespace muster {

double UpdateBytes(const RoundShape& shape) {
  return shape.bytes * (shape.workers + 2 + 2 * shape.states);
}

double UpdateSeconds(const RoundShape& shape, double memory_bytes_per_s) {
  return UpdateBytes(shape) / memory_bytes_per_s;
}

double LocalRound(const RoundShape& shape, const MachineCosts& costs) {
  return costs.local_latency_s + UpdateSeconds(shape, costs.memory_bytes_per_s);
}

double LoopbackRound(const RoundShape& shape, const MachineCosts& costs) {
  return costs.tcp_latency_s + 2 * shape.workers * shape.bytes / costs.loopback_bytes_per_s;
}

double ServerRound(const RoundShape& shape, const HostNetwork& network, double memory_bytes_per_s) {
  const double link = network.BytesPerSecond();
  const double chunk = std::min(shape.bytes, shape.chunk_bytes);
  const double transfer = shape.workers * shape.bytes / link;
  return 2 * network.hop_s + std::max(transfer, UpdateSeconds(shape, memory_bytes_per_s)) +
         shape.workers * chunk / link;
}

double RingRound(const RoundShape& shape, const HostNetwork& network, double memory_bytes_per_s) {
  const double hops = 2.0 * (shape.workers - 1);
  RoundShape alone = shape;
  alone.workers = 1;
  return hops * (network.hop_s + shape.bytes / shape.workers / network.BytesPerSecond()) +
         UpdateSeconds(alone, memory_bytes_per_s);
}

}  // namespace muster
