#include "common/config/memory_rows.h"

#include "proto/config.pb.h"

namespace muster {

double SumOf(const std::vector<MemoryRow>& rows) {
  double sum = 0;
  for (const MemoryRow& row : rows) {
    if (row.holder != MemoryRow::Holder::kCard) sum += row.bytes;
  }
  return sum;
}

double SumOfCard(const std::vector<MemoryRow>& rows) {
  double sum = 0;
  for (const MemoryRow& row : rows) {
    if (row.holder == MemoryRow::Holder::kCard) sum += row.bytes;
  }
  return sum;
}

bool SharesMemory(const config::Config& config) {
  if (config.cluster().wire_dtype() != config::Cluster::FP32) return false;
  return config.cluster().transport() == config::Cluster::AUTO ||
         config.cluster().transport() == config::Cluster::LOCAL;
}

}  // namespace muster
