#include "common/base/number_list.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <unordered_set>

#include "common/base/count_text.h"
#include "common/base/error.h"

namespace muster {
namespace {

bool ParseNumber(std::string_view text, int64_t& number) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end && number >= 0;
}

}  // namespace

std::vector<int64_t> ParseNumberList(const std::string& what, const std::string& text,
                                     int64_t end) {
  std::vector<int64_t> numbers;
  std::unordered_set<int64_t> seen;
  for (size_t at = 0; at <= text.size();) {
    const size_t stop = std::min(text.find(',', at), text.size());
    const std::string_view part = std::string_view(text).substr(at, stop - at);
    at = stop + 1;
    const size_t dash = part.find('-');
    int64_t first = 0, last = 0;
    const bool read = ParseNumber(part.substr(0, dash), first) &&
                      ParseNumber(dash == part.npos ? part : part.substr(dash + 1), last);
    if (!read || last < first) {
      throw Error(ExitCode::kUsage, "{} {}: expected numbers and ranges, as in 0-9,17, got '{}'",
                  what, text, part);
    }
    if (last >= end) {
      throw Error(ExitCode::kUsage, "{} {}: expected numbers from 0 to {}, got {}", what, text,
                  FormatCount(end - 1), FormatCount(last));
    }
    for (int64_t number = first; number <= last; ++number) {
      if (seen.insert(number).second) numbers.push_back(number);
    }
  }
  return numbers;
}

}  // namespace muster
