// Whole numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

std::string FormatCount(int64_t value);  // 1,068,298

}  // namespace muster
