// How much memory a process has.
#pragma once

#include <cstdint>
#include <optional>

namespace muster {

// What `top` shows as RES, of a process of this host or, with 0, of this one. Nothing if there is
// no such process.
std::optional<int64_t> ResidentBytes(int64_t pid = 0);

}  // namespace muster
