#include "common/model/hash_variables.h"

#include "common/base/running_hash.h"

namespace muster {

uint64_t HashVariables(const VariableLayout& layout, std::span<const float> arena) {
  RunningHash hash;
  for (const Variable& variable : layout.variables()) {
    hash.Add(std::as_bytes(arena.subspan(variable.offset, variable.count)));
  }
  return hash.value();
}

}  // namespace muster
