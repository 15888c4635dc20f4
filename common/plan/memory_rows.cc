#include "common/plan/memory_rows.h"

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

}  // namespace muster
