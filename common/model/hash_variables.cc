#include "common/model/hash_variables.h"

#include <xxhash.h>

namespace muster {

uint64_t HashVariables(const VariableLayout& layout, std::span<const float> arena) {
  XXH3_state_t* state = XXH3_createState();
  XXH3_64bits_reset(state);
  for (const Variable& variable : layout.variables()) {
    XXH3_64bits_update(state, arena.data() + variable.offset, variable.count * sizeof(float));
  }
  const uint64_t hash = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return hash;
}

}  // namespace muster
