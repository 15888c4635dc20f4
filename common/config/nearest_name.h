// Names that somebody may have meant.
#pragma once

#include <string>
#include <vector>

namespace muster {

// The one of `candidates` that `name` most likely means, or "" if none is near.
std::string NearestName(const std::string& name, const std::vector<std::string>& candidates);

// What to say of a name that is none of these: "did you mean …", with all of them.
std::string SuggestName(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace muster
