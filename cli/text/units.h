// Human-readable numbers in plain ASCII, so that columns line up in any locale. A value that is not
// finite prints as "-".
#pragma once

#include <cstdint>
#include <string>

#include "common/base/text.h"  // FormatCount of whole numbers

namespace muster {

std::string FormatCount(double value);       // 1,068,298, rounded to a whole number
std::string FormatRate(double value);        // per second: 1,068, 12, 0.4
std::string FormatBytes(double bytes);       // 512 B, 4.1 MB (powers of 1000)
std::string FormatFlops(double flops);       // 37.8 MFLOP
std::string FormatDuration(double seconds);  // 0.8 s, 42 s, 6 min 51 s, 2 h 05 min, 3 d 04 h
std::string FormatMilliseconds(double ms);   // 0.31 ms, 105 ms, 2,310 ms
std::string FormatPercent(double share, int decimals = 0);  // 0.713 -> 71 %
// "1 worker", "2 workers"
std::string Plural(int64_t count, const std::string& noun);

}  // namespace muster
