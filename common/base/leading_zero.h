// Finds numbers such as 010. C and protobuf read them as octal (8), and others as decimal. Muster
// therefore refuses them wherever a user writes a number. It reads what other programs wrote, such
// as the variables of Slurm, in decimal, as they do.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace muster {

constexpr const char* kLeadingZero = "leave out the leading zero, which could mean an octal number";

// Whether a number begins with a zero and another digit, after blanks and a sign.
inline bool HasLeadingZero(std::string_view number) {
  number.remove_prefix(std::min(number.find_first_not_of(" \t+-"), number.size()));
  return number.size() > 1 && number[0] == '0' && number[1] >= '0' && number[1] <= '9';
}

// Returns "" if the number has no leading zero.
inline std::string LeadingZeroTrouble(const std::string& number) {
  return HasLeadingZero(number) ? "got " + number + ": " + kLeadingZero : "";
}

}  // namespace muster
