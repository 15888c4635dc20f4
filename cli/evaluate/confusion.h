// Which classes were taken for which, as an evaluation has counted it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster {

// counts[label][predicted].
using ConfusionCounts = std::vector<std::vector<int64_t>>;

// Reads what the server writes: "label,0,1,…,total", a row for each label, a row "total". Throws
// Error(kFailure) for anything else.
ConfusionCounts ParseConfusion(const std::string& csv);

// A row for each class: how many images, how many of them were right, how many of those that were
// taken for it are of it, and what it is taken for most often. Then, where they fit on a page, all
// counts. `names` may be empty.
std::vector<std::string> ConfusionLines(const ConfusionCounts& counts,
                                        const std::vector<std::string>& names);

// "3 cat", or "3" without a name, or with that for one.
std::string ClassText(int64_t number, const std::vector<std::string>& names);

}  // namespace muster
