#include "common/base/running_hash.h"

#include <xxhash.h>

#include <new>

namespace muster {

RunningHash::RunningHash() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_64bits_reset(state_.get());
}
void RunningHash::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }
uint64_t RunningHash::value() const { return XXH3_64bits_digest(state_.get()); }
void RunningHash::Add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
}

}  // namespace muster
